"""Every real tracker export: as many records as an expert counts, first and last step, accounts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.tracker_folders import tracker_inputs
from loganalyze_parsers.tracker_join import join_columns
from paths import CORPUS, needs_corpus
from trackers import assert_adds_up

from loganalyze.model import Batch

pytestmark = [pytest.mark.corpus, needs_corpus]
FOLDER = CORPUS / "wandb_tb"
#: Files beside exports that hold no curve.
_BESIDE = (".yaml", ".log", ".json", ".txt")
#: Metrics of the machine, not of a training step.
_SYSTEM = ("gpu_", "host_", "mem_used", "mem_total", "raw/system/")


def _truths() -> list[Mapping[str, Any]]:
    file = FOLDER / "TRUTH.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


TRUTHS = _truths()


@cache
def read(case: str) -> tuple[tuple[str, tuple[Batch, ...], pl.DataFrame | None], ...]:
    """Runs of a case: name, batches, rows."""
    folder = FOLDER / case
    runs = [run for run in tracker_inputs(folder) if run.paths]
    made = []
    claimed = {file for run in runs for file in (*run.paths, *run.texts, *run.beside)}
    for run in runs:
        batches = [batch for at, path in enumerate(run.paths) for batch in _batches(path, at)]
        frames = [batch.readings for batch in batches if batch.readings is not None]
        made.append((run.label, tuple(batches), _joined(frames, columns=run.columns)))
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in claimed and path.suffix not in _BESIDE:
            made.extend(_by_run(_batches(path, 0)))
    return tuple(made)


def _batches(path: Path, source: int) -> list[Batch]:
    parser = parser_for(head_of(path))
    assert parser is not None, path
    return list(parser.parse(path, source))


def _joined(frames: list[pl.DataFrame], *, columns: bool) -> pl.DataFrame | None:
    if not frames:
        return None
    return join_columns(frames) if columns else pl.concat(frames, how="diagonal")


def _by_run(
    batches: list[Batch],
) -> list[tuple[str, tuple[Batch, ...], pl.DataFrame | None]]:
    names = sorted({batch.run for batch in batches})
    made = []
    for name in names:
        mine = tuple(batch for batch in batches if batch.run == name)
        frames = [batch.readings for batch in mine if batch.readings is not None]
        if frames or len(names) == 1:
            made.append((name, mine, _joined(frames, columns=False)))
    return made


def training(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that are not of the machine alone."""
    names = [
        name
        for name in frame.columns[7:]
        if not name.startswith(_SYSTEM) and not name.startswith("raw/nan_hidden")
    ]
    return frame.filter(pl.any_horizontal(pl.col(names).is_not_null())) if names else frame.clear()


def records(truth: Mapping[str, Any]) -> int:
    """Records in the unit of the truth."""
    found = read(truth["case"])
    if truth["record_unit"].startswith(("metric line", "metrics row (key")):
        return sum(_counted(batch) for _, batches, _ in found for batch in batches)
    if truth["record_unit"] == "whole json line":
        return sum(
            batch.account.lines - batch.account.unknown
            for _, batches, _ in found
            for batch in batches
        )
    return sum(len(training(frame)) for _, _, frame in found if frame is not None)


def _counted(batch: Batch) -> int:
    return batch.account.read if batch.readings is not None else 0


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth["case"])
def test_account_adds_up(truth: Mapping[str, Any]) -> None:
    """Read + ignored + unknown = all records, and nothing raises."""
    for _, batches, _ in read(truth["case"]):
        for batch in batches:
            assert_adds_up(batch.account)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth["case"])
def test_records_equal_the_truth(truth: Mapping[str, Any]) -> None:
    """As many records as the expert counts; first and last step are the expert's."""
    assert records(truth) == truth["records"]
    steps = [
        training(frame)["step"].drop_nulls()
        for _, _, frame in read(truth["case"])
        if frame is not None
    ]
    steps = [one for one in steps if len(one)]
    if truth["first_step"] is not None:
        assert min(one.min() for one in steps) == truth["first_step"]
        assert max(one.max() for one in steps) == truth["last_step"]


@pytest.mark.parametrize(
    "truth", [t for t in TRUTHS if t["loss_count"]], ids=lambda truth: truth["case"]
)
def test_losses_equal_the_truth(truth: Mapping[str, Any]) -> None:
    """As many loss values as the expert counts."""
    frames = [frame for _, _, frame in read(truth["case"]) if frame is not None]
    count = sum(frame["loss"].count() for frame in frames if "loss" in frame.columns)
    assert count == truth["loss_count"]


@pytest.mark.parametrize(
    "truth",
    [t for t in TRUTHS if t["records"] and t["confidence"] != "low"],
    ids=lambda truth: truth["case"],
)
def test_runs_equal_the_truth(truth: Mapping[str, Any]) -> None:
    """Files are put together into as many runs as the expert sees."""
    runs = [frame for _, _, frame in read(truth["case"]) if frame is not None and len(frame)]
    assert len(runs) in (truth["runs"], *truth.get("runs_also_ok", ()))
