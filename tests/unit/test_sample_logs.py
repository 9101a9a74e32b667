"""The shipped samples: what their expected.toml says is what is found in them, end to end."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from paths import SAMPLES

from loganalyze.assemble import training_rows
from loganalyze.model import Diagnosis, severity_rank
from loganalyze.pipeline import Judging, report_on

CASES = sorted(path.parent.name for path in SAMPLES.glob("*/expected.toml"))


def expected(case: str) -> Mapping[str, Any]:
    """What the case's author says of it."""
    return tomllib.loads((SAMPLES / case / "expected.toml").read_text(encoding="utf-8"))


@cache
def diagnosis(case: str) -> Diagnosis:
    """The case, diagnosed once for all tests."""
    (found,) = report_on([str(SAMPLES / case / f"{case}.log")], Judging()).diagnoses
    return found


@pytest.mark.parametrize("case", CASES)
def test_records_by_an_independent_count(case: str) -> None:
    """A naive count of the log's training lines gives the records and steps that we read."""
    truth = expected(case)
    text = (SAMPLES / case / f"{case}.log").read_bytes().decode()
    pattern = truth.get("pattern", r"\] iteration +(\d+)/ +\d+ \|")
    steps = [int(n) for n in re.findall(pattern, text, re.MULTILINE)]
    rows = training_rows(diagnosis(case).run.readings)
    if "pattern" in truth:  # layouts that give a step several rows, or run steps twice
        steps = sorted(set(steps))
        assert rows["step"].unique().sort().to_list() == steps
    else:
        assert rows["step"].to_list() == steps
    assert (len(steps), min(steps), max(steps)) == (
        truth["records"], truth["first_step"], truth["last_step"],
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_expected_is_found(case: str) -> None:
    """Every expected finding is there: its kind, its steps, at least its severity."""
    for wanted in expected(case)["expect"]:
        low = wanted["step_first"] - wanted["tolerance"]
        high = wanted["step_last"] + wanted["tolerance"]
        assert any(
            found.kind == wanted["kind"]
            and severity_rank(found.severity) >= severity_rank(wanted["severity_min"])
            and found.step_first is not None
            and found.step_first <= high
            and (found.step_last or found.step_first) >= low
            for found in diagnosis(case).findings
        ), wanted


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_alarms(case: str) -> None:
    """No finding of warning or worse is of a kind that is neither expected nor allowed."""
    truth = expected(case)
    kinds = {*truth["allow"], *(wanted["kind"] for wanted in truth["expect"])}
    alarms = {found.kind for found in diagnosis(case).findings if found.severity != "info"}
    assert alarms <= (set() if truth["healthy"] else kinds)


@pytest.mark.parametrize("case", [case for case in CASES if "first_mover" in expected(case)])
def test_first_mover_is_named(case: str) -> None:
    """The story's first mover is the finding that really moved first."""
    incident = diagnosis(case).incidents[0]
    (first,) = [f for f in diagnosis(case).findings if f.id == incident.first_mover]
    assert first.kind == expected(case)["first_mover"]


@pytest.mark.parametrize("case", CASES)
def test_every_line_is_accounted_for(case: str) -> None:
    """Read + ignored + unknown = all lines of the file."""
    (source,) = diagnosis(case).run.sources
    text = (SAMPLES / case / f"{case}.log").read_bytes()
    account = source.account
    assert account.lines == text.count(b"\n")
    assert account.read + account.ignored_total + account.unknown == account.lines


@pytest.mark.slow
def test_a_case_is_made_again_byte_for_byte(tmp_path: Any) -> None:
    """The maker gives the same bytes twice (a short training; needs torch)."""
    pytest.importorskip("torch", reason="the samples are made with torch")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from lab.megatron_log import MegatronLog\nfrom lab.train import Trainer, steps\n"
        "log, trainer = MegatronLog(20, seed=5), Trainer(seed=5, total=20)\n"
        "[log.step(step) for step in steps(trainer, 1, 20)]\nprint(log.text())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code, str(SAMPLES)], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].count("lm loss") == 20
