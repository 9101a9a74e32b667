"""Cuts a run's readings into tracks: one metric of one segment and rank, in the order logged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.model import LineRef, RunLog

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FEW = 6  # segments times ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One metric as logged: nulls dropped, NaN kept, steps never decreasing.

    steps, values, rows: arrays of one length; rows index RunLog.readings.
    interval: steps between two points (median), at least 1.
    """

    metric: str
    segment: int
    rank: int | None
    steps: IntArray
    values: FloatArray
    rows: IntArray
    interval: int

    def __len__(self) -> int:
        """Number of points."""
        return len(self.steps)


def tracks(run: RunLog, metric: str) -> tuple[Track, ...]:
    """All tracks of a metric, by segment, then rank; empty where the log has none of it.

    Where several ranks print the same global value (the same step, the same number), only the
    lowest rank's track is returned: they are copies, not measurements.
    """
    frame = run.readings
    if metric not in frame.columns:
        return ()
    rows = frame.select("step", "segment", "rank", value=pl.col(metric)).with_row_index("row")
    if rows["value"].null_count() or rows["step"].null_count():
        rows = rows.filter(pl.col("value").is_not_null() & pl.col("step").is_not_null())
    made = [_track(metric, key, part) for key, part in _parts(rows).items()]
    made.sort(key=lambda track: (track.segment, -1 if track.rank is None else track.rank))
    return tuple(_without_copies(made))


def _parts(rows: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    """Rows by segment and rank, in the order logged.

    Few segments and ranks are picked out one by one: a third of the time that grouping takes.
    """
    names = ("segment", "rank")
    keys = list(product(*(rows[name].unique().to_list() for name in names)))
    if len(keys) > FEW:
        return dict(rows.partition_by(*names, as_dict=True, maintain_order=True))
    if len(keys) == 1:
        return {keys[0]: rows}
    parts = {
        key: rows.filter(*(pl.col(n).eq_missing(k) for n, k in zip(names, key, strict=True)))
        for key in keys
    }
    return {key: part for key, part in parts.items() if part.height}


def _track(metric: str, key: tuple[object, ...], part: pl.DataFrame) -> Track:
    if not part["step"].is_sorted():
        part = part.sort("step", maintain_order=True)
    steps = part["step"].to_numpy().astype(np.int64)
    gaps = np.diff(steps)
    gaps = gaps[gaps > 0]
    segment, rank = key
    return Track(
        metric=metric,
        segment=int(segment) if isinstance(segment, int) else 0,
        rank=rank if isinstance(rank, int) else None,
        steps=steps,
        values=part["value"].to_numpy().astype(np.float64),
        rows=part["row"].to_numpy().astype(np.int64),
        interval=int(np.median(gaps)) if len(gaps) else 1,
    )


def _without_copies(made: list[Track]) -> list[Track]:
    kept: list[Track] = []
    for track in made:
        if not any(_is_copy(track, other) for other in kept):
            kept.append(track)
    return kept


def _is_copy(one: Track, other: Track) -> bool:
    if one.segment != other.segment or len(one) != len(other):
        return False
    same_steps = np.array_equal(one.steps, other.steps)
    return same_steps and np.array_equal(one.values, other.values, equal_nan=True)


def within(track: Track, low: float, high: float) -> Track:
    """Only the points with low <= value <= high: what a metric can be; NaN and Inf drop out."""
    keep = (track.values >= low) & (track.values <= high)
    if keep.all():
        return track
    return replace(track, steps=track.steps[keep], values=track.values[keep], rows=track.rows[keep])


def row_ref(run: RunLog, row: int) -> LineRef:
    """Where a row of the readings stands in its input."""
    source, line, offset, length = run.readings.select("source", "line", "offset", "length").row(
        row
    )
    return LineRef(source=source, line=line, offset=offset, length=length)


def longest_row(steps: np.ndarray, counts: np.ndarray, interval: int) -> int:
    """Most steps in a row that messages tell of.

    Messages between two lines of a log are known by the step of one line, so a row goes on over
    one interval if there are as many messages as steps in it.
    """
    places, inverse = np.unique(steps, return_inverse=True)
    if not len(places):
        return 0
    told = np.minimum(np.bincount(inverse, weights=counts), interval)
    gaps = np.diff(places)
    goes_on = (gaps <= interval) & (np.maximum(told[1:], told[:-1]) >= gaps)
    breaks = np.flatnonzero(~goes_on)
    edges = np.concatenate(([0], breaks + 1, [len(places)]))
    return int(max(told[a:b].sum() for a, b in pairwise(edges)))
