"""Columns by tag -> the readings frame that every parser yields.

Trackers keep one series per tag; here the tags get their canonical names and units, and what a
trainer hid (a NaN loss written as 0) is put right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze.model import LineRef, Problem
from loganalyze_parsers.frames import KEY_SCHEMA, masked_column, sparse_column
from loganalyze_parsers.tracker_names import assign, known

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Cells of one table, 8 bytes each; so many columns may always be.
MOST_CELLS, LEAST_COLUMNS = 100_000_000, 2048
#: A share above this was written in per cent (nanoGPT logs 100 times its mfu).
_MOST_MFU = 1.5


class Rows(Struct, frozen=True, kw_only=True):
    """Rows of one run, all columns of one length.

    step: null where the row names none. wall_s: seconds since the epoch. line, offset, length:
    where the row stands. columns: tag to Float64 with nulls; a tag that begins with `raw/` or is
    canonical already must not be given.
    """

    step: pl.Series
    wall_s: pl.Series
    line: IntArray
    offset: IntArray
    length: IntArray
    columns: Mapping[str, pl.Series]


def column(values: Sequence[float | None] | FloatArray, have: BoolArray | None = None) -> pl.Series:
    """A Float64 column; null where `have` is false (or the value is None)."""
    if have is not None:
        return masked_column(np.asarray(values, dtype=np.float64), ~have)
    return pl.Series(values, dtype=pl.Float64, strict=False)


def scattered(
    rows: Sequence[int] | IntArray, values: Sequence[float] | FloatArray, count: int
) -> pl.Series:
    """A column of `count` cells with values at the given rows (the last one wins), else null."""
    return sparse_column(rows, values, count)


def scattered_columns(
    found: Mapping[str, tuple[Sequence[int] | IntArray, Sequence[float] | FloatArray]],
    count: int,
    problems: list[Problem],
    where: str,
) -> dict[str, pl.Series]:
    """A column of `count` cells for every tag's rows and values.

    Rows times columns stay bounded: of too many tags the known and the fullest are kept, which is
    told in `problems`.
    """
    most = max(LEAST_COLUMNS, MOST_CELLS // max(count, 1))
    kept = set(found)
    if len(found) > most:
        ordered = sorted(found, key=lambda tag: (known(tag) is None, -len(found[tag][0])))
        kept = set(ordered[:most])
        message = f"{where}: {len(found)} columns of {count} rows; the fullest {most} are read"
        problems.append(Problem(rule="limit_reached", message=message))
    return {tag: scattered(*pair, count) for tag, pair in found.items() if tag in kept}


def readings_of(
    rows: Rows, source: int, path: str
) -> tuple[pl.DataFrame | None, tuple[Problem, ...]]:
    """The frame of rows that carry a number, and what could not be taken at face value."""
    used = {
        tag: values for tag, values in rows.columns.items() if values.null_count() < len(values)
    }
    if not used:
        return None, ()
    names = assign(used)
    frame = pl.DataFrame(
        {
            "step": rows.step.cast(pl.Int64),
            "rank": pl.Series([None] * len(rows.step), dtype=pl.Int32),
            "wall_s": rows.wall_s.cast(pl.Float64),
            "source": np.full(len(rows.step), source, dtype=np.int32),
            "line": rows.line,
            "offset": rows.offset,
            "length": rows.length,
            **{names[tag][0]: _scaled(values, names[tag][1]) for tag, values in used.items()},
        }
    ).with_columns(pl.col(name).cast(kind) for name, kind in KEY_SCHEMA.items())
    metrics = frame.columns[len(KEY_SCHEMA) :]
    frame = frame.filter(pl.any_horizontal(pl.col(metrics).is_not_null()))
    return _revealed(_as_share(frame), path)


def _scaled(values: pl.Series, factor: float) -> pl.Series:
    return values if factor == 1.0 else values * factor


def _as_share(frame: pl.DataFrame) -> pl.DataFrame:
    """mfu as a share; negative values stand for `not measured yet`."""
    if "mfu" not in frame.columns:
        return frame
    mfu = frame["mfu"]
    largest = mfu.max()
    factor = 0.01 if isinstance(largest, float) and largest > _MOST_MFU else 1.0
    value = pl.when(pl.col("mfu") >= 0).then(pl.col("mfu") * factor)
    return frame.with_columns(value.alias("mfu"))


def _revealed(frame: pl.DataFrame, path: str) -> tuple[pl.DataFrame, tuple[Problem, ...]]:
    """Undo the Hugging Face Trainer's NaN filter (logging_nan_inf_filter, on by default).

    It replaces a NaN loss by the mean of the window so far: 0.0 in a window of NaN alone. Only a
    grad_norm that is NaN beside it gives it away.
    """
    if not {"loss", "grad_norm"} <= set(frame.columns):
        return frame, ()
    hidden = (pl.col("loss") == 0.0) & pl.col("grad_norm").is_nan()
    rows = frame.filter(hidden)
    if rows.is_empty():
        return frame, ()
    frame = frame.with_columns(
        pl.when(hidden).then(float("nan")).otherwise(pl.col("loss")).alias("loss"),
        pl.when(hidden).then(1.0).alias("raw/nan_hidden"),
    )
    first = rows.row(0, named=True)
    ref = LineRef(**{name: first[name] for name in ("source", "line", "offset", "length")})
    message = (
        f"{path}: record {ref.line}: step {first['step']}: the loss is 0 beside a grad_norm of "
        f"NaN ({len(rows)} rows): the Trainer's logging_nan_inf_filter hides a NaN loss; it is "
        "read as NaN. Set logging_nan_inf_filter=False to see the loss"
    )
    return frame, (Problem(rule="nan_hidden_by_trainer", message=message, ref=ref),)
