"""Feeds a piece of text to the text driver, as the tests of every dialect need it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loganalyze.ingest import ingest
from loganalyze.model import RunLog


def run_of(text: str | bytes, folder: Path, name: str = "train.log") -> RunLog:
    """The one run of a log with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    made = ingest([str(path)])
    assert len(made.runs) == 1
    return made.runs[0]


def column(run: RunLog, metric: str) -> list[float | None]:
    """A metric's values, row by row, where the row has a step; None where the line is silent."""
    rows = run.readings.filter(pl.col("step").is_not_null())
    return rows[metric].to_list()


def megatron_line(step: int, **fields: str) -> str:
    """A Megatron training line: the fields given, keys with spaces for underscores."""
    pairs = "".join(f" {key.replace('_', ' ')}: {value} |" for key, value in fields.items())
    return f" iteration {step:8d}/     900 |{pairs}"
