"""Real DeepSpeed and Hugging Face logs: an expert's counts, full accounts, no number dropped."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from paths import CORPUS, needs_corpus

from loganalyze.assemble import training_rows
from loganalyze.ingest import Ingested, ingest

pytestmark = [pytest.mark.corpus, needs_corpus]
FOLDER = CORPUS / "deepspeed_hf"
FORMATS = (
    "hf_", "deepspeed", "msswift", "llamafactory", "megatron_deepspeed",
)  # fmt: skip


def _truths() -> list[Mapping[str, Any]]:
    file = FOLDER / "TRUTH.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [t for t in map(json.loads, lines) if t["format"].startswith(FORMATS)]


TRUTHS = _truths()


@cache
def read(path: str) -> Ingested:
    """A file's runs, read once for all tests."""
    return ingest([str(FOLDER / path)])


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth["case"])
def test_account_adds_up(truth: Mapping[str, Any]) -> None:
    """Read + ignored + unknown = all lines, counted by another way; nothing raises."""
    data = (FOLDER / truth["path"]).read_bytes()
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    got = read(truth["path"])
    sources = [source for run in got.runs for source in run.sources] or list(got.unread)
    account = sources[0].account
    assert account.lines == lines
    assert account.read + account.ignored_total + account.unknown == lines


def test_records_equal_the_truth() -> None:
    """The number of step records is the expert's in at least 95 % of the confident files."""
    wrong = []
    confident = [truth for truth in TRUTHS if truth["confidence"] != "low"]
    for truth in confident:
        count = sum(len(training_rows(run.readings)) for run in read(truth["path"]).runs)
        if count not in [truth["records"], *truth.get("records_alt", [])]:
            wrong.append((truth["case"], count, truth["records"]))
    assert len(wrong) <= 0.05 * len(confident), wrong


def test_first_and_last_step_equal_the_truth() -> None:
    """Where the expert names steps, the first is that of the first record and the last one's is
    the last that any row has, or an event of the run (steps that overflow print no row)."""
    wrong = []
    for truth in TRUTHS:
        runs = read(truth["path"]).runs
        rows = training_rows(runs[0].readings) if runs else None
        if rows is None or not len(rows) or truth["first_step"] is None:
            continue
        steps = (rows["step"].min(), runs[0].readings["step"].max())
        if steps[0] != truth["first_step"] or truth["last_step"] not in (
            steps[1], rows["step"].max(), runs[0].events["step"].max(),
        ):  # fmt: skip
            wrong.append((truth["case"], steps, truth["first_step"], truth["last_step"]))
    assert not wrong


_NUMBER = r"-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_NAIVE_PAIR = re.compile(rf"""['"]([\w/() ]+)['"]: ?['"]?({_NUMBER})['"]?(?=[,}}])""")


_STEPS = ("step", "current_steps")


def _naive_rows(text: str) -> Iterator[tuple[int, list[float]]]:
    """Line and numbers of all that looks like a Trainer's dictionary, found the crude way."""
    for number, line in enumerate(text.replace("\ufe0f", "").split("\n"), 1):
        if re.search(r"""['"](?:loss|eval_loss)['"]:""", line) and "log_history" not in line:
            yield number, [float(v) for k, v in _NAIVE_PAIR.findall(line) if k not in _STEPS]


@pytest.mark.parametrize(
    "path",
    [t["path"] for t in TRUTHS if t["format"].startswith(("hf_stdout", "msswift", "llama"))],
)
def test_no_number_of_a_dictionary_is_dropped(path: str) -> None:
    """A naive second reader finds no number on a line that the line's rows lack."""
    text = (FOLDER / path).read_text(encoding="utf-8", errors="replace")
    kept = _kept_numbers(path)
    for number, row in _naive_rows(text):
        assert all(_among(value, kept[number]) for value in row), (number, row)


@pytest.mark.parametrize("path", [t["path"] for t in TRUTHS if "trainer_state" in t["path"]])
def test_no_number_of_a_history_is_dropped(path: str) -> None:
    """json.loads reads the same training entries, number by number."""
    entries = json.loads((FOLDER / path).read_text())["log_history"]
    run = read(path).runs[0]
    rows = [entry for entry in entries if "train_runtime" not in entry]
    assert run.readings.height == len(rows)
    for key, metric in (("loss", "loss"), ("learning_rate", "lr"), ("eval_loss", "val_loss")):
        wanted = [entry.get(key) for entry in rows]
        if any(value is not None for value in wanted):
            assert run.readings[metric].to_list() == wanted
    assert run.readings["step"].to_list() == [entry["step"] for entry in rows]
    for entry, row in zip(rows, run.readings.iter_rows(), strict=True):
        numbers = [float(v) for k, v in entry.items() if isinstance(v, int | float) and k != "step"]
        kept = {value for value in row if isinstance(value, float)}
        assert all(_among(value, kept) for value in numbers), entry


_STEP_LINE = re.compile(r"step=(\d+), skipped=(\d+), lr=\[([^,\]]+).*?mom=\[\(([\d.]+), ([\d.]+)")
_RATE_LINE = re.compile(r"global_step=(\d+), RunningAvg\w+=([\d.]+), Curr\w+=([\d.]+)")


@pytest.mark.parametrize("path", [t["path"] for t in TRUTHS if t["path"].startswith("dschat")])
def test_no_number_of_an_engine_line_is_dropped(path: str) -> None:
    """Two regular expressions find the same numbers of DeepSpeed's engine, line by line."""
    text = (FOLDER / path).read_text(encoding="utf-8", errors="replace")
    readings = read(path).runs[0].readings
    by_line = {row["line"]: row for row in readings.iter_rows(named=True)}
    for number, line in enumerate(text.split("\n"), 1):
        for pattern in (_STEP_LINE, _RATE_LINE):
            match = pattern.search(line)
            if match is None:
                continue
            row = by_line[number]
            assert row["step"] == int(match[1])
            values = {value for value in row.values() if isinstance(value, float)}
            assert {float(raw) for raw in match.groups()[1:]} <= values


def test_overflows_equal_the_skipped_count() -> None:
    """In every chat log the overflow events are as many as the engine's own count of skips.

    One engine's last line may stand before its last overflow; the PPO log has two engines.
    """
    for truth in TRUTHS:
        if not re.match("dschat_step[12]", truth["path"]):
            continue
        run = read(truth["path"]).runs[0]
        skipped = run.readings["raw/skipped"].drop_nulls()[-1]
        assert (run.events["kind"] == "overflow").sum() == skipped


def _kept_numbers(path: str) -> Mapping[int, set[float]]:
    """All numbers of a case's rows, by line."""
    kept: dict[int, set[float]] = defaultdict(set)
    for run in read(path).runs:
        for row in run.readings.iter_rows(named=True):
            kept[row["line"]].update(v for v in row.values() if isinstance(v, float))
    return kept


def _among(value: float, kept: set[float]) -> bool:
    """Whether a number was kept: a hidden NaN is no longer 0, GiB became bytes."""
    if math.isnan(value) or value == 0.0:
        return any(math.isnan(other) or other == 0.0 for other in kept)
    return value in kept or value * 1024.0**3 in kept
