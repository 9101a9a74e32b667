"""Every format's sample: records, and what its numbers mean: value, unit, scope, mean, source."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from paths import ROOT

from loganalyze.assemble import training_rows
from loganalyze.config import metrics
from loganalyze.ingest import ingest
from loganalyze.model import RunLog

FOLDERS = sorted(path.parent for path in (ROOT / "parsers" / "samples").glob("*/expected.toml"))
#: Over what a number is taken. Ranks and GPUs: the metric's own scope in metrics.toml.
MEANS = (
    "last step", "interval mean", "interval sum", "running mean", "cumulative", "peak",
    "evaluation mean",
)  # fmt: skip


def expected(folder: Path) -> Mapping[str, Any]:
    """What the sample's author says of it."""
    return tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))


@cache
def run_of(folder: Path) -> RunLog:
    """The sample, read with no flag."""
    (run,) = ingest([str(folder / expected(folder)["log"])]).runs
    return run


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_sample_is_read_whole(folder: Path) -> None:
    """As many step records as are in it, and no line that nobody knows."""
    run = run_of(folder)
    assert len(training_rows(run.readings)) == expected(folder)["records"]
    assert sum(source.account.unknown for source in run.sources) == 0


PINS = [(folder, pin) for folder in FOLDERS for pin in expected(folder)["pins"]]


@pytest.mark.parametrize(
    ("folder", "pin"), PINS, ids=lambda v: v.name if isinstance(v, Path) else v["metric"]
)
def test_number_means_what_its_source_says(folder: Path, pin: Mapping[str, Any]) -> None:
    """The value in the metric's unit stands at its step; what it is a mean of, and who says so."""
    rows = run_of(folder).readings
    if "step" in pin:
        rows = rows.filter(pl.col("step") == pin["step"])
    values = rows[pin["metric"]].drop_nulls().to_list()
    wanted = float(pin["value"])
    same = [
        v for v in values if math.isclose(v, wanted, rel_tol=1e-12) or (v != v and wanted != wanted)
    ]
    assert same, values
    name = pin["metric"].split("/")[0]
    known = metrics().get(pin["metric"]) or metrics().get(f"{name}/<name>")
    assert known is not None
    assert known.unit
    assert known.scope in ("global", "per_gpu", "per_process", "per_host")
    assert pin["mean"] in MEANS
    assert len(pin["source"]) > 10
