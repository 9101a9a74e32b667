"""Ranks that a log tells in a column of its own: JSON lines and tables of home-made loops.

A number called rank is a rank where several rows tell the same step, one a rank, or where the rows
of one rank follow those of another over the same steps. Else (the rank of an adapter, a mean rank
of answers) it stays what the log calls it.
"""

from __future__ import annotations

import polars as pl

#: Columns that may tell it, the surest first.
NAMES = ("raw/global_rank", "raw/global rank", "raw/rank", "raw/process_index")
_MOST = 1 << 20
_LOOKED_AT = 200_000  # rows that show whether steps repeat
_REPEATED = 0.75  # different steps, as a share of such rows, at most


def with_told_ranks(readings: pl.DataFrame) -> pl.DataFrame:
    """The readings with such a column as their ranks, where they have none."""
    name = next((one for one in NAMES if one in readings.columns), None)
    if name is None or not _are_ranks(readings.select("step", "rank", told=name)):
        return readings
    told = pl.col(name).cast(pl.Int32)
    alone = readings["rank"].null_count() == len(readings)
    rank = told if alone else pl.coalesce("rank", told)
    return readings.with_columns(rank=rank).drop(name)


def _are_ranks(rows: pl.DataFrame) -> bool:
    told = rows["told"]
    low, high = told.min(), told.max()
    if not isinstance(low, float) or not isinstance(high, float) or low < 0 or high >= _MOST:
        return False
    if not bool((told.drop_nulls() % 1 == 0).all()):  # NaN is none either
        return False
    if rows.select((pl.col("rank").is_not_null() & pl.col("told").is_not_null()).any()).item():
        return False  # a launcher's rank stands before the line
    if rows["rank"].null_count() < len(rows):  # those of a stored run whose log has grown
        return bool(told.drop_nulls().unique().is_in(rows["rank"].unique().cast(pl.Float64)).all())
    both = pl.col("told").is_not_null() & pl.col("step").is_not_null()
    first = rows.head(_LOOKED_AT).filter(both)
    return _side_by_side(first) or _one_after_the_other(rows.filter(both))


def _side_by_side(rows: pl.DataFrame) -> bool:
    """Whether a step is told by several ranks, each once."""
    if rows["told"].n_unique() < 2 or rows["step"].n_unique() > _REPEATED * len(rows):
        return False
    return rows.select("step", "told").n_unique() > _REPEATED * len(rows)


def _one_after_the_other(rows: pl.DataFrame) -> bool:
    """Whether each rank's rows stand together, over steps that the others tell as well."""
    ranks = rows["told"].n_unique()
    if ranks < 2 or int((rows["told"].diff() != 0).sum()) != ranks - 1:
        return False
    spans = rows.group_by("told").agg(first=pl.col("step").min(), last=pl.col("step").max())
    return bool(spans.select(pl.col("first").max() <= pl.col("last").min()).item())
