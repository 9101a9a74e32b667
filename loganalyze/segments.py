"""Cuts a run's rows into segments: where the step goes back, and what that step back means.

A step back is a resume (the run went on from a checkpoint), a fresh run in the same file, or
one of several streams that write into one file at the same time (parallel).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze.columns import given, in_place
from loganalyze.line_places import all_alike, borders, first_behind, line_places
from loganalyze.long_runs import LONGEST
from loganalyze.model import Relation, Segment
from loganalyze.running import median
from loganalyze.spill import release

#: Of 32 bits wherever the values allow: runs have millions of rows.
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]

#: More step backs than this share of the rows: streams are interleaved, not restarted.
_INTERLEAVED_SHARE = 0.05
_INTERLEAVED_MIN = 4
_MAX_STREAMS = 64
#: Logging intervals that a stream may jump over (lost lines).
_REACH = 20
#: Rows looked at together where a run's millions need not be.
_PIECE = 1 << 18
_FEW = 8


class Cut(Struct, frozen=True):
    """Segment of every row (-1 where the row has no step) and what the segments are."""

    labels: IntArray
    segments: tuple[Segment, ...]


def cut_segments(readings: pl.DataFrame, loads: pl.DataFrame, main: BoolArray) -> Cut:
    """Segments of a run's rows in the order they were written.

    readings: columns step, rank, source, offset. main: which rows are a training step's record;
    they alone decide, other rows (memory, timers, validation) follow the record before them.
    loads: source, offset, step of every checkpoint load and fresh start, in order. Ranks are cut
    apart and numbered alike.
    """
    if not main.any():
        return Cut(np.full(len(readings), -1, dtype=np.int32), ())
    ranks = integers(readings["rank"])
    steps = integers(readings["step"])
    before = borders(readings, loads)
    labels, parallel = stream_labels(steps, ranks, before, main)
    leader = leader_of(ranks, main)
    segments = _describe(
        steps[leader], labels[leader], parallel, _load_labels(readings, loads, labels)
    )
    if not bool((labels >= 0).all()):
        labels = followed(labels, integers(readings["source"]))
    return Cut(np.minimum(labels, len(segments) - 1, out=labels), segments)


def stream_labels(
    steps: IntArray, ranks: IntArray, before: IntArray, main: BoolArray
) -> tuple[IntArray, bool]:
    """Segment of each row that is a record (else -1), ranks apart, and whether streams mix.

    before: borders() of the rows.
    """
    labels: IntArray = np.full(len(steps), -1, dtype=np.int16)
    if not _goes_back(steps[where(main)]) and bool((before == before[:1]).all()):
        labels[where(main)] = 0  # the rows of each rank go forward too
        return labels, False
    parallel = False
    for rank in distinct(ranks[where(main)]):
        rows = places(where((ranks == rank) & main))
        part, mixed = _cut_stream(steps[rows], before[rows])
        labels = labels.astype(np.result_type(labels, part), copy=False)
        labels[rows] = part
        parallel = parallel or mixed
    return labels, parallel


def integers(column: pl.Series, null: int = -1) -> IntArray:
    """A column of integers, `null` where it is null, in as few bits as hold their differences.

    Chunk by chunk, as a run has millions of rows and its columns may be mapped files.
    """
    if column.null_count() == len(column):
        return all_alike(-1, len(column))
    low, high = _range(column)
    sizes = ("i2", 2**14), ("i4", 2**30), ("i8", 2**63)
    kind = next(kind for kind, most in sizes if -most <= min(low, null) and high < most)
    made: IntArray = np.empty(len(column), dtype=kind)
    first = seen = 0
    for chunk in column.get_chunks():
        made[first : first + len(chunk)] = in_place(chunk)
        first += len(chunk)
        if first - seen >= _PIECE:
            release()
            seen = first
    if column.null_count():
        np.copyto(made, null, where=~given(column))
    release()
    return made


def _range(column: pl.Series) -> tuple[int, int]:
    """The lowest and the highest value; -1 and -1 of none."""
    ends: list[int] = []
    for chunk in column.get_chunks():
        ends += [end for end in (chunk.min(), chunk.max()) if isinstance(end, int)]
        if len(column) > LONGEST:
            release()
    return min(ends, default=-1), max(ends, default=-1)


def where(mask: BoolArray) -> BoolArray | slice:
    """What picks the true ones; to pick all of them copies nothing."""
    return slice(None) if mask.all() else mask


def middle(gaps: IntArray) -> int:
    """int(median(gaps)) of at least one; to count is quick, and mostly all are alike.

    >>> middle(np.array([5, 1, 5, 5])), middle(np.array([1, 2, 5, 6]))
    (5, 3)
    """
    one = gaps[len(gaps) // 2]
    if 2 * int(np.count_nonzero(gaps == one)) > len(gaps):
        return int(one)
    return int(median(gaps.astype(np.int64)))


def places(rows: BoolArray | slice) -> IntArray | slice:
    """The same by numbers: to pick by a mask that often changes takes thrice as long."""
    if isinstance(rows, slice):
        return rows
    made: IntArray = np.empty(np.count_nonzero(rows), np.int32 if len(rows) < 2**31 else np.int64)
    end = 0
    for first in range(0, len(rows), _PIECE):
        own = np.flatnonzero(rows[first : first + _PIECE])
        np.add(own, first, out=made[end : end + len(own)], casting="unsafe")
        end += len(own)
    return made


def distinct(values: IntArray) -> IntArray:
    """The different values, growing; most inputs are sorted already.

    >>> distinct(np.array([3, 3, 4, 4])).tolist(), distinct(np.array([4, 3, 4])).tolist()
    ([3, 4], [3, 4])
    """
    if _goes_back(values):
        low, size = int(values.min()), int(values.max()) - int(values.min()) + 1
        values = _ticked(values, low, size) if size <= _PIECE else np.sort(values)
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    different: IntArray = values[new]
    return different


def _goes_back(values: IntArray) -> bool:
    return bool((values[1:] < values[:-1]).any())


def _ticked(values: IntArray, low: int, size: int) -> IntArray:
    """The different values of few that are possible (low, low + 1, ...), growing."""
    seen = np.zeros(size, dtype=bool)
    for first in range(0, len(values), _PIECE):
        seen[np.subtract(values[first : first + _PIECE], low, dtype=np.int64)] = True
    found: IntArray = (np.flatnonzero(seen) + low).astype(values.dtype)
    return found


def leader_of(ranks: IntArray, main: BoolArray) -> BoolArray | slice:
    """Rows of the rank with the most records (the lowest of equals)."""
    own = ranks[where(main)]
    names = distinct(own)
    if len(names) == 1:
        return where(main)
    if len(names) <= _FEW:  # to count each takes less than to sort
        most = int(np.argmax([np.count_nonzero(own == name) for name in names]))
    else:
        most = int(np.unique(own, return_counts=True)[1].argmax())
    return where((ranks == names[most]) & main)


def followed(labels: IntArray, sources: IntArray) -> IntArray:
    """Rows without a label get the one before them in the same input, else the one after."""
    filled = labels.copy()
    for source in distinct(sources):
        rows = where(sources == source)
        filled[rows] = _filled(labels[rows])
    return filled


def _filled(labels: IntArray) -> IntArray:
    """Labels of one input, each hole (-1) with the one before it; holes at the start with the
    first. Piece by piece, as there may be millions."""
    made: IntArray = labels.copy()
    held = int(labels[int((labels >= 0).argmax())]) if len(labels) else 0
    held = max(held, 0)  # none at all
    for first in range(0, len(made), _PIECE):
        own = made[first : first + _PIECE]
        holes = np.flatnonzero(own < 0)
        before = holes - np.arange(len(holes))  # alike for neighbours: labels before them
        begins = np.flatnonzero(np.diff(before, prepend=-1))
        told = np.where(before[begins] > 0, own[holes[begins] - 1], held)
        own[holes] = np.repeat(told, np.diff(begins, append=len(holes)))
        held = int(own[-1])
    return made


def _cut_stream(steps: IntArray, borders: IntArray) -> tuple[IntArray, bool]:
    """Segment label of each row of one rank, and whether streams are interleaved."""
    backward = steps[1:] < steps[:-1]
    back = np.flatnonzero(backward)
    if len(back) >= _INTERLEAVED_MIN and len(back) > _INTERLEAVED_SHARE * len(steps):
        streams = _interleaved(steps)
        if streams is not None:
            return streams, True
    begins = backward | (borders[1:] > borders[:-1])
    if not begins.any():
        return all_alike(0, len(steps)), False
    few = int(np.count_nonzero(begins)) < 2**15
    labels: IntArray = np.zeros(len(steps), dtype=np.int16 if few else np.int32)
    np.cumsum(begins, dtype=labels.dtype, out=labels[1:])
    return labels, False


def _interleaved(steps: IntArray) -> IntArray | None:
    """Rows dealt out to streams that each go forward; None if that needs too many streams.

    A row goes to the stream whose last step it follows most closely, and to a new one if it
    follows none within a few logging intervals.
    """
    reach = _REACH * middle(np.diff(distinct(steps)))
    last: list[int] = []
    labels = np.empty(len(steps), dtype=np.int64)
    for row, step in enumerate(steps.tolist()):
        fits = [(step - end, index) for index, end in enumerate(last) if 0 <= step - end <= reach]
        if fits:
            index = min(fits)[1]
            last[index] = step
        else:
            index = len(last)
            last.append(step)
        if len(last) > _MAX_STREAMS:
            return None
        labels[row] = index
    counts = np.bincount(labels)
    return labels if counts.min() >= 3 else None


def _load_labels(readings: pl.DataFrame, loads: pl.DataFrame, labels: IntArray) -> dict[int, int]:
    """Segment index -> step of the checkpoint that was loaded right before its first row."""
    found: dict[int, int] = {}
    if not len(loads) or not len(readings):
        return found
    told = zip(first_behind(readings, labels, line_places(loads)), loads["step"], strict=True)
    for row, step in told:
        if row >= 0:
            found[int(labels[row])] = -1 if step is None else int(step)
    return found


def _describe(
    steps: IntArray, labels: IntArray, parallel: bool, loaded: dict[int, int]
) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for index in range(int(labels.max(initial=-1)) + 1):
        own = steps[where(labels == index)]
        relation, reason = _relation(index, own, segments, parallel, loaded)
        segments.append(
            Segment(
                index=index,
                first=int(own.min()),
                last=int(own.max()),
                count=_different(own),
                relation=relation,
                superseded_steps=_superseded(
                    relation, own, steps[labels == index - 1], loaded.get(index)
                ),
                reason=reason,
            )
        )
    return tuple(segments)


def _different(values: IntArray) -> int:
    """How many different values; of sorted ones nothing is copied."""
    if _goes_back(values):
        return len(distinct(values))
    return int(np.count_nonzero(values[1:] != values[:-1])) + min(len(values), 1)


def _relation(
    index: int, own: IntArray, before: Iterable[Segment], parallel: bool, loaded: dict[int, int]
) -> tuple[Relation, str]:
    if index == 0:
        return "start", "first rows of the run"
    if parallel:
        return "parallel", "steps alternate between several counters"
    first = int(own.min())
    step = loaded.get(index)
    if step is not None and step > 0:
        return "resume", f"a checkpoint of step {step} was loaded"
    gaps = np.diff(distinct(own))
    interval = middle(gaps) if len(gaps) else 1
    if first <= max(1, interval):
        return "fresh", f"steps begin again at {first} and no checkpoint was loaded"
    if first > max(segment.last for segment in before):
        return "resume", "a new start of the trainer, steps go on"
    return "resume", f"steps go back to {first}"


def _superseded(relation: Relation, own: IntArray, before: IntArray, loaded: int | None) -> int:
    """Steps of the segment before that this one ran again, to the step, not by logged rows.

    They lie behind the checkpoint that was loaded: the one the log names, if it lies within a
    logging interval before the first row; else the step one interval before that row.
    """
    if relation != "resume" or not len(before):
        return 0
    first, gaps = int(own.min()), np.diff(distinct(own))
    interval = middle(gaps) if len(gaps) else 1
    start = first - interval
    if loaded is not None and start <= loaded < first:
        start = loaded
    return max(0, int(before.max()) - max(start, 0))
