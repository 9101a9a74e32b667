"""One number a step: the branch of a run that counts in the end, and two of them side by side."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze.model import RunLog
from loganalyze.tracks import FloatArray, IntArray


class Curve(Struct, frozen=True, kw_only=True):
    """Strictly rising steps, one value each."""

    steps: IntArray
    values: FloatArray


def curve(run: RunLog, metric: str) -> Curve:
    """A metric on the branch that counts; median over ranks and lines of one step.

    Steps that a resume ran again count as it ran them; a fresh start discards what was before;
    parallel streams are left out. Empty where the log has none of it.
    """
    frame = run.readings
    if metric not in frame.columns:
        return Curve(steps=np.zeros(0, dtype=np.int64), values=np.zeros(0))
    rows = frame.select("step", "segment", value=pl.col(metric)).drop_nulls()
    kept = rows.filter(_kept(run)) if run.meta.segments else rows
    # NaN sorts above every number, so the median of a step is NaN where most ranks say so.
    by_step = kept.group_by("step").agg(pl.col("value").median()).sort("step")
    return Curve(
        steps=by_step["step"].to_numpy().astype(np.int64),
        values=by_step["value"].to_numpy().astype(np.float64),
    )


def _kept(run: RunLog) -> pl.Expr:
    """Rows of the branch that counts: of each segment, the steps before the next one's first."""
    ends: dict[int, int | None] = {}
    for segment in sorted(run.meta.segments, key=lambda s: s.index):
        if segment.relation == "parallel":
            continue
        if segment.relation == "fresh":
            ends = {}
        for index, end in ends.items():
            ends[index] = segment.first if end is None else min(end, segment.first)
        ends[segment.index] = None
    keep = pl.lit(False)
    for index, end in ends.items():
        mine = pl.col("segment") == index
        keep = keep | (mine if end is None else mine & (pl.col("step") < end))
    return keep


def aligned(base: Curve, other: Curve) -> tuple[IntArray, FloatArray, FloatArray]:
    """The common steps and both values there."""
    steps, one, two = np.intersect1d(
        base.steps, other.steps, assume_unique=True, return_indices=True
    )
    return steps, base.values[one], other.values[two]
