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


#: Steps and places beyond this are none: a double, as trackers use, holds no larger integer.
_MOST_STEP, _MOST_RANK = 2**53, 2**31 - 1


def within(value: int | None, most: int) -> int | None:
    """The value, or None where it is absent or its size is beyond `most`.

    >>> within(12, 2**53), within(10**30, 2**53)
    (12, None)
    """
    return value if value is not None and abs(value) <= most else None


def readings_frame(readings: Sequence[Reading]) -> pl.DataFrame | None:
    """One row per reading: the key columns, then a Float64 column per metric that occurs."""
    if not readings:
        return None
    names: dict[str, None] = {}
    for reading in readings:
        names.update(dict.fromkeys(reading.values))
    columns: dict[str, list[object]] = {
        "step": [within(r.step, _MOST_STEP) for r in readings],
        "rank": [within(r.rank, _MOST_RANK) for r in readings],
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
