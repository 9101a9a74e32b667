"""Cuts a run's readings into tracks: one metric of one segment and rank, in the order logged."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.columns import given, numbers, where_given
from loganalyze.model import LineRef, RunLog
from loganalyze.segments import distinct, integers, middle
from loganalyze.spill import release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
AnyInts = npt.NDArray[np.integer[Any]]


class Track(Struct, frozen=True, kw_only=True):
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
    return _tracks_of(run.readings, metric)


def _tracks_of(frame: pl.DataFrame, metric: str) -> tuple[Track, ...]:
    streams = _streams_of(frame, metric)
    values = numbers(frame[metric]) if streams else np.empty(0)
    release()
    made = [
        Track(
            metric=metric,
            segment=one.segment,
            rank=one.rank,
            steps=one.steps,
            values=_picked(values, one),
            rows=one.rows,
            interval=one.interval,
        )
        for one in streams
    ]
    return tuple(_without_copies(made))


class Outline(Struct, frozen=True, kw_only=True):
    """What is known of a track without its numbers: how many points, its first and last step."""

    segment: int
    rank: int | None
    points: int
    first: int
    last: int


def outlines(run: RunLog, metric: str) -> tuple[Outline, ...]:
    """An outline of each of tracks(), in their order; cheaper, as it copies no numbers.

    Only where ranks may print copies of each other their numbers are looked at.
    """
    frame = run.readings
    streams = _streams_of(frame, metric)
    sizes = Counter((one.segment, len(one.rows)) for one in streams)
    made = streams if len(sizes) == len(streams) else _tracks_of(frame, metric)
    return tuple(
        Outline(
            segment=one.segment,
            rank=one.rank,
            points=len(one.rows),
            first=int(one.steps[0]),
            last=int(one.steps[-1]),
        )
        for one in made
    )


def first_value(run: RunLog, metric: str) -> float | None:
    """The first value of the first of tracks(); None where there are none."""
    frame = run.readings
    streams = _streams_of(frame, metric)
    return float(frame[metric][int(streams[0].rows[0])]) if streams else None


class _Stream(Struct, frozen=True, kw_only=True):
    """The rows of one segment and rank by their steps. ordered: whether as they were logged."""

    segment: int
    rank: int | None
    steps: IntArray
    rows: IntArray
    interval: int
    ordered: bool


#: Streams of the run looked at last (by the identity of its frame, while that lives), by which of
#: its rows have a number: the metrics of a line share them. Few patterns are held.
_HELD: dict[int, dict[tuple[bytes, bytes], tuple[_Stream, ...]]] = {}
_MOST_HELD = 4
_FEW_CODES = 8  # to look for each of so many takes less than to sort
_GUARD = Lock()  # detectors work beside each other


def _streams_of(frame: pl.DataFrame, metric: str) -> tuple[_Stream, ...]:
    """The rows that tell a metric and a step, by segment, then rank."""
    if metric not in frame.columns:
        return ()
    key = where_given(frame[metric]), where_given(frame["step"])
    with _GUARD:
        return _held_streams(frame, metric, key)


def _held_streams(
    frame: pl.DataFrame, metric: str, key: tuple[bytes, bytes]
) -> tuple[_Stream, ...]:
    held = _HELD.setdefault(id(frame), {})
    if len(_HELD) > 1 or not held:  # another run, or the first look
        _HELD.clear()
        _HELD[id(frame)] = held
        weakref.finalize(frame, _HELD.pop, id(frame), None).atexit = False
    found = held.pop(key, None)
    if found is None:
        told = given(frame[metric])
        if key[1]:
            told = told & given(frame["step"])
        found = tuple(_cut(frame, np.flatnonzero(told)))
    held[key] = found  # the one asked for last stands last
    while len(held) > _MOST_HELD:
        held.pop(next(iter(held)), None)
    return found


def _cut(frame: pl.DataFrame, rows: IntArray) -> Iterator[_Stream]:
    if not len(rows):
        return
    named = frame.select("step", "segment", "rank")
    few = len(rows) < len(frame) // 8  # for these no whole columns of a long run are read
    named = named[rows] if few else named
    picked = slice(None) if len(rows) == len(named) else rows
    least = named["rank"].min()
    none = min(least if isinstance(least, int) else 0, 0) - 1  # stands for no rank
    steps = integers(named["step"])[picked]
    segments = _some_of(named["segment"], picked)
    ranks = _some_of(named["rank"], picked, none)
    for segment, rank, own in _by_rank(segments, ranks):
        at = steps[own].astype(np.int64)
        yield _stream(segment, rank if rank > none else None, at, rows[own])


def _some_of(column: pl.Series, picked: IntArray | slice, null: int = -1) -> AnyInts:
    """Some of a column's integers; where all are alike nothing is copied, not to be written to."""
    low, high = column.min(), column.max()
    if isinstance(low, int) and low == high and not column.null_count():
        size = len(column) if isinstance(picked, slice) else len(picked)
        return np.broadcast_to(np.int64(low), size)
    return integers(column, null)[picked]


def _by_rank(segments: AnyInts, ranks: AnyInts) -> Iterator[tuple[int, int, IntArray | slice]]:
    """Which rows are of which segment and rank, by segment, then rank."""
    alone = bool((segments == segments[0]).all())
    if alone and (ranks == ranks[0]).all():
        yield int(segments[0]), int(ranks[0]), slice(None)
        return
    for own in _alike(ranks if alone else _codes(segments, ranks)):
        yield int(segments[own[0]]), int(ranks[own[0]]), own


def _codes(segments: AnyInts, ranks: AnyInts) -> AnyInts:
    """A number for each segment and rank, growing with both."""
    low = int(ranks.min())
    codes = segments.astype(np.int64) * (int(ranks.max()) - low + 1)
    codes += ranks
    codes -= low
    if int(codes.max()) < 1 << 16:
        return codes.astype(np.uint16)  # numpy sorts such by their digits
    return codes


def _alike(codes: AnyInts) -> Iterator[IntArray]:
    """Places of each code, by code."""
    names = distinct(codes)
    if len(names) <= _FEW_CODES:
        yield from (np.flatnonzero(codes == name) for name in names)
        return
    order = np.argsort(codes, kind="stable")
    told = codes[order]
    firsts = np.flatnonzero(np.concatenate(([True], told[1:] != told[:-1]))).tolist()
    for first, end in zip(firsts, [*firsts[1:], len(order)], strict=True):
        yield order[first:end]


def _stream(segment: int, rank: int | None, steps: IntArray, rows: IntArray) -> _Stream:
    gaps = np.diff(steps)
    ordered = not len(gaps) or int(gaps.min()) >= 0
    if not ordered:
        order = np.argsort(steps, kind="stable")
        steps, rows = steps[order], rows[order]
        gaps = np.diff(steps)
    gaps = gaps if len(gaps) and int(gaps.min()) > 0 else gaps[gaps > 0]
    interval = middle(gaps) if len(gaps) else 1
    return _Stream(
        segment=segment, rank=rank, steps=steps, rows=rows, interval=interval, ordered=ordered
    )


def _picked(values: FloatArray, one: _Stream) -> FloatArray:
    if len(one.rows) == len(values) and one.ordered:
        return values.copy()  # a third of the time
    return values.take(one.rows, mode="clip")  # all are places: to check takes a third more


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
    return row_of(run.readings, row)


def row_of(frame: pl.DataFrame, row: int) -> LineRef:
    """Where a row of readings or events stands in its input."""
    source, line, offset, length = frame.select("source", "line", "offset", "length").row(row)
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
