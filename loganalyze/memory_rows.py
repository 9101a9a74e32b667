"""Prints of the memory that say no step: they belong to the record above them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl


def memory_alone(columns: Collection[str]) -> pl.Expr:
    """Whether a row tells of memory without a step. columns: those of its frame."""
    names = [name for name in columns if "mem_" in name or name == "host_rss_bytes"]
    told = pl.any_horizontal(pl.col(names).is_not_null()) if names else pl.lit(False)
    return pl.col("step").is_null() & told


def memory_beside(rows: pl.DataFrame, before: Mapping[int, int]) -> pl.DataFrame:
    """The rows, such prints with the step of the record above them in their log.

    before: for a source that goes on from another one (a rotated log), that one.
    """
    alone = memory_alone(rows.columns)
    if not rows["step"].null_count() or not rows.select(alone.any()).item():
        return rows
    log: dict[int, int] = {}
    for part, earlier in sorted(before.items()):
        log[part] = log.get(earlier, earlier)
    source = pl.col("source").replace(log) if log else pl.col("source")
    above = pl.col("step").forward_fill().over(source)
    return rows.with_columns(step=pl.when(alone).then(above).otherwise(pl.col("step")))
