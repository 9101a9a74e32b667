"""The sample logs by themselves, read naively, without the program: they hold what they promise."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from paths import SAMPLES

CASES = ("fp16_start", "healthy", "nan_death", "resume", "spike")
#: What depends on the processor's rounding; all else in a log follows from seeds alone.
MEASURED = re.compile(r"((?:lm loss|grad norm|params norm|lm loss value|lm loss PPL): )\S+|-{40,}")


class Line(NamedTuple):
    """One training line."""

    step: int
    fields: Mapping[str, str]

    @property
    def loss(self) -> float:
        """The loss, which must be there."""
        return float(self.fields["lm loss"])

    @property
    def grad_norm(self) -> float:
        """The gradient norm, which must be there."""
        return float(self.fields["grad norm"])


def text(case: str, folder: Path = SAMPLES) -> str:
    """The whole log."""
    return (folder / case / f"{case}.log").read_text(encoding="utf-8")


def training_lines(log: str) -> list[Line]:
    """The training lines, in the log's order."""
    found = re.findall(r"\] iteration +(\d+)/ +\d+ \|(.*)\|$", log, re.MULTILINE)
    split = ((step, [part.rsplit(": ", 1) for part in fields.split("|")]) for step, fields in found)
    return [
        Line(int(step), {key.strip(): value.strip() for key, value in pairs})
        for step, pairs in split
    ]


def expected(case: str) -> Mapping[str, Any]:
    """What the case's author says of it."""
    return tomllib.loads((SAMPLES / case / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_the_log_has_the_records_that_its_author_promises(case: str) -> None:
    """Records, first and last step are those of expected.toml, and the log stays small."""
    truth, steps = expected(case), [line.step for line in training_lines(text(case))]
    assert (len(steps), min(steps), max(steps)) == (
        truth["records"], truth["first_step"], truth["last_step"],
    )  # fmt: skip
    assert len(text(case).encode()) < 400_000


@pytest.mark.parametrize("case", CASES)
def test_the_clock_never_goes_back(case: str) -> None:
    """All the times in a log, whoever printed them, are in order."""
    stamps = re.findall(r"(?:2026-03-14[ T_]|\bE0314 )(\d\d:\d\d:\d\d)", text(case))
    assert len(stamps) > 100
    assert stamps == sorted(stamps)


def test_the_spike_is_led_by_the_gradient_norm_and_comes_back() -> None:
    """The gradient norm doubles one to four steps before the loss rises by a fifth; it heals."""
    lines = training_lines(text("spike"))
    before = [line for line in lines if 420 <= line.step < 521]
    loss, norm = median(r.loss for r in before), median(r.grad_norm for r in before)
    late = [line for line in lines if line.step >= 521]
    moved = next(line.step for line in late if line.grad_norm > 2 * norm)
    risen = next(line.step for line in late if line.loss > 1.2 * loss)
    assert 1 <= risen - moved <= 4
    assert max(line.loss for line in before) < 1.1 * loss < 1.5 * loss < max(r.loss for r in late)
    assert all(line.loss < 1.1 * loss for line in late if line.step > risen + 100)


def test_the_loss_vanishes_for_good_when_it_is_nan() -> None:
    """From the first NaN on no line has a loss, all gradient norms are nan, no counter counts."""
    lines = training_lines(text("nan_death"))
    lost = [line for line in lines if "lm loss" not in line.fields]
    assert lost == lines[-40:]
    assert {line.fields["grad norm"] for line in lost} == {"nan"}
    assert {line.fields["number of nan iterations"] for line in lines} == {"0"}
    assert {line.fields["number of skipped iterations"] for line in lines} == {"0"}
    assert "NaN for 40 iterations" in text("nan_death")


def test_steps_that_are_run_twice_have_the_same_loss() -> None:
    """After the resume steps 401 to 463 repeat their numbers, but for the averaged second line."""
    seen: dict[int, list[Line]] = {}
    for line in training_lines(text("resume")):
        seen.setdefault(line.step, []).append(line)
    twice = {step: lines for step, lines in seen.items() if len(lines) == 2}
    assert list(twice) == list(range(401, 464))
    assert [step for step, (a, b) in twice.items() if a.loss != b.loss] == [402]
    assert all(a.grad_norm == b.grad_norm for a, b in twice.values())


def test_fp16_skips_its_first_steps_only() -> None:
    """Lines whose steps were all skipped have no loss and no gradient norm; the others do."""
    lines = training_lines(text("fp16_start"))
    bare = [line.step for line in lines if "lm loss" not in line.fields]
    assert bare == [line.step for line in lines if "grad norm" not in line.fields]
    assert bare == [1, 5, 10, 15]
    assert {line.fields["number of skipped iterations"] for line in lines[4:]} == {"0"}


def made_again(case: str, folder: Path) -> str:
    """The case as the one documented command makes it, in a copy of the maker's folder."""
    shutil.copytree(SAMPLES / "lab", folder / "lab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SAMPLES / "make.py", folder)
    subprocess.run([sys.executable, str(folder / "make.py"), case], check=True, capture_output=True)
    return text(case, folder)


def assert_only_rounding_differs(fresh: str, committed: str, before: int) -> None:
    """Up to the fault all but the measured numbers is equal, and these are until rounding grew."""
    new, old = (log.split(f"iteration {before:8d}/")[0] for log in (fresh, committed))
    assert MEASURED.sub(r"\1", new) == MEASURED.sub(r"\1", old)
    pairs = zip(training_lines(new)[:50], training_lines(old)[:50], strict=True)
    assert all(a.loss == pytest.approx(b.loss, rel=0.01) for a, b in pairs)


@pytest.mark.slow
def test_make_gives_the_committed_log_again(tmp_path: Path) -> None:
    """The committed bytes come again; where the processor rounds otherwise, all but rounding."""
    pytest.importorskip("torch", reason="the samples are made with torch")
    fresh, committed = made_again("nan_death", tmp_path), text("nan_death")
    if fresh != committed:
        assert_only_rounding_differs(fresh, committed, before=430)
