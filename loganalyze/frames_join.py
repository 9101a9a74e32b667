"""Rows of two inputs that tell one run, put together: every number once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from loganalyze.model import READING_COLUMNS


def merged_frames(
    host: Sequence[pl.DataFrame], guest: Sequence[pl.DataFrame], again: int | None
) -> list[pl.DataFrame]:
    """The host's rows, and of the guest's what the host does not say at that step.

    again: from this step on the guest's rows are an earlier attempt that the host ran again; they
    stay whole and stand before the host's rows of those steps. None: there are no such rows.
    """
    ours = pl.concat(host, how="diagonal")
    theirs = pl.concat(guest, how="diagonal")
    step = pl.col("step")
    if again is None:
        return _ordered([ours, _rest(theirs, ours)])
    attempt = theirs.filter(step >= again)
    rest = _rest(theirs.filter(step.is_null() | (step < again)), ours)
    before = _ordered([ours.filter(step.is_null() | (step < again)), rest])
    return [*before, attempt, ours.filter(step >= again)]


def _rest(theirs: pl.DataFrame, ours: pl.DataFrame) -> pl.DataFrame:
    """Rows of which at least one number is not said by the host at the same step."""
    metrics = [name for name in theirs.columns if name not in READING_COLUMNS]
    common = [name for name in metrics if name in ours.columns]
    said = {
        name: ours.filter(pl.col(name).is_not_null())["step"].drop_nulls().unique()
        for name in common
    }
    left = theirs.with_columns(
        pl.when(~pl.col("step").is_in(said[name].implode()).fill_null(False))
        .then(pl.col(name))
        .alias(name)
        for name in common
    )
    return left.filter(pl.any_horizontal(pl.col(metrics).is_not_null())) if metrics else left


def _ordered(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """By step where each of them goes forward; else one behind the other."""
    kept = [frame for frame in frames if len(frame)]
    if len(kept) < 2 or not all(frame["step"].drop_nulls().is_sorted() for frame in kept):
        return kept
    return [pl.concat(kept, how="diagonal").sort("step", nulls_last=True, maintain_order=True)]
