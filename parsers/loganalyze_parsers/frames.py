"""Rows to columns: the readings frame that every parser yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from loganalyze.model import Reading

KEY_SCHEMA: Mapping[str, pl.DataType] = {
    "step": pl.Int64(),
    "rank": pl.Int32(),
    "wall_s": pl.Float64(),
    "source": pl.Int32(),
    "line": pl.Int64(),
    "offset": pl.Int64(),
    "length": pl.Int64(),
}


def readings_frame(readings: Sequence[Reading]) -> pl.DataFrame | None:
    """One row per reading: the key columns, then a Float64 column per metric that occurs."""
    if not readings:
        return None
    names: dict[str, None] = {}
    for reading in readings:
        names.update(dict.fromkeys(reading.values))
    columns: dict[str, list[object]] = {
        "step": [r.step for r in readings],
        "rank": [r.rank for r in readings],
        "wall_s": [r.wall_s for r in readings],
        "source": [r.ref.source for r in readings],
        "line": [r.ref.line for r in readings],
        "offset": [r.ref.offset for r in readings],
        "length": [r.ref.length for r in readings],
    }
    for name in names:
        columns[name] = [r.values.get(name) for r in readings]
    schema = {**KEY_SCHEMA, **{name: pl.Float64() for name in names}}
    return pl.DataFrame(columns, schema=schema)
