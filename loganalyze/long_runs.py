"""Runs of more rows than the memory should hold: cut into stretches, and thinned to an overview.

Rows lie in the order of their places: segment, then step. A stretch is all rows between two places,
whatever inputs and ranks they came from; the overview holds every k-th step of the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.columns import given, in_place
from loganalyze.model import READING_COLUMNS, RunLog, Segment
from loganalyze.spill import release

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Packed = npt.NDArray[np.uint8]  # eight rows a byte: kept or not

#: Rows that are judged at once; a run with more is judged in stretches.
LONGEST = 1_200_000
#: Rows of a stretch, and those before and after it that its detectors see as well.
ROWS, MARGIN = 700000, 25000
#: Rows of the overview that are every k-th step of the run.
OVERVIEW = 300_000
_PIECE = 1 << 16  # rows looked at together
_BIN = 2_000  # rows between two places where a run may be cut
_STEP_BITS = 44
_FIRST_STEP = -(1 << 42)
_ENDS = 2_000  # rows at the beginning and at the end that are all shown
_RARE = 20_000  # rows of a metric that are all shown
_MOST_RARE = 200_000
_MOST_EVENTS = 5_000  # of which the rows beside are shown
_AMONG = 2_048  # rows whose lowest and highest numbers are shown
_STEPLESS = 64  # rows without a step that stand together: a monitor's lines of one moment
Span = tuple[int, int, int]  # segment, first and last step


class Stretch(NamedTuple):
    """Places (see place()). Rows of [first, end) are looked at; what begins in [own, own_end) is
    told. Behind `tail` stand the last rows of all."""

    first: int
    own: int
    own_end: int
    tail: int
    end: int


class Cut(Struct, frozen=True, kw_only=True, eq=False):
    """The stretches of a run, and where its rows lie.

    low, high: the places of the rows of each piece of the frame; held: the step that rows without
    one at a piece's beginning follow.
    """

    stretches: tuple[Stretch, ...]
    low: IntArray
    high: IntArray
    held: tuple[int, ...]


def is_long(run: RunLog) -> bool:
    """Whether a run is judged in stretches."""
    return len(run.readings) > LONGEST


def place(segment: int | IntArray, step: int | IntArray) -> IntArray:
    """A number for a step of a segment; it grows with both.

    >>> bool(place(0, 10**9) < place(1, -5) < place(1, 0))
    True
    """
    steps = np.clip(np.asarray(step, dtype=np.int64), _FIRST_STEP, -_FIRST_STEP - 1)
    return (np.asarray(segment, dtype=np.int64) << _STEP_BITS) + (steps - _FIRST_STEP)


def cut(run: RunLog) -> Cut:
    """The stretches of a run, of about as many rows each."""
    edges = _edges(run)
    counts = np.zeros(len(edges), dtype=np.int64)
    low, high, held = [], [], [0]
    for places, last in _places(run.readings):
        at = np.maximum(np.searchsorted(edges, places, side="right") - 1, 0)
        counts += np.bincount(at, minlength=len(edges))
        low.append(int(places.min()))
        high.append(int(places.max()))
        held.append(last)
    return Cut(
        stretches=tuple(_stretches(edges, counts)),
        low=np.array(low, dtype=np.int64),
        high=np.array(high, dtype=np.int64),
        held=tuple(held),
    )


def _edges(run: RunLog) -> IntArray:
    """Where the run may be cut: places with a few rows between them."""
    segments = run.meta.segments
    steps = max(sum(segment.count for segment in segments), 1)
    parts = [np.empty(0, dtype=np.int64)]
    for one in segments:
        bins = max(1, len(run.readings) * one.count // steps // _BIN)
        width = max(1, -(-(one.last - one.first + 1) // bins))
        firsts = np.arange(one.first, one.last + 1, width, dtype=np.int64)
        parts.append(place(one.index, firsts))
    edges = np.unique(np.concatenate(parts))
    return edges if len(edges) else np.zeros(1, dtype=np.int64)


def _places(readings: pl.DataFrame, pieces: Iterable[int] | None = None, held: Sequence[int] = ()
            ) -> Iterator[tuple[IntArray, int]]:  # fmt: skip
    """Places of the rows of each piece (of all, or of those asked for), and its last step."""
    keys, step = readings.select("segment", "step"), 0
    for number in range(-(-len(keys) // _PIECE)) if pieces is None else pieces:
        piece = keys.slice(number * _PIECE, _PIECE)
        before = held[number] if held else step
        steps = piece["step"].fill_null(strategy="forward").fill_null(before).to_numpy()
        step = int(steps[-1])
        yield place(piece["segment"].fill_null(0).to_numpy(), steps), step
        release()


def _stretches(edges: IntArray, counts: IntArray) -> Iterator[Stretch]:
    """Stretches of whole bins. The first and the last one have no border."""
    upto = np.concatenate(([0], np.cumsum(counts)))  # rows before each edge
    number = max(1, -(-int(upto[-1]) // ROWS))
    wanted = np.arange(1, number) * (upto[-1] / number)
    cuts = [c for c in np.unique(np.searchsorted(upto, wanted)).tolist() if 0 < c < len(edges)]
    least, most = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
    for first, end in zip([0, *cuts], [*cuts, len(edges)], strict=True):
        before = int(np.searchsorted(upto, upto[first] - MARGIN, side="right")) - 1
        after = int(np.searchsorted(upto, upto[end] + MARGIN))
        last = end == len(edges) or after >= len(edges)
        yield Stretch(
            first=least if before <= 0 else int(edges[before]),
            own=least if first == 0 else int(edges[first]),
            own_end=most if end == len(edges) else int(edges[end]),
            tail=most if last else int(edges[max(after - 1, end)]),
            end=most if last else int(edges[after]),
        )


def part_of(run: RunLog, made: Cut, one: Stretch) -> RunLog:
    """The run as if nothing had been logged but this stretch."""
    numbers = np.flatnonzero((made.low < one.end) & (made.high >= one.first)).tolist()
    places = _places(run.readings, numbers, made.held)
    parts = [run.readings.clear()]
    for number, (own, _) in zip(numbers, places, strict=True):
        piece = run.readings.slice(number * _PIECE, _PIECE)
        keep = (own >= one.first) & (own < one.end)
        parts.append(piece if keep.all() else piece.filter(pl.Series(keep)))
    held = (segment for segment in run.meta.segments if _within(segment, one))
    segments = tuple(_clipped(segment, one) for segment in held)
    return RunLog(
        meta=replace(run.meta, segments=segments),
        readings=pl.concat(parts),
        events=run.events.filter(pl.Series(_kept(run.events, one), dtype=pl.Boolean)),
        problems=run.problems,
        sources=run.sources,
        ranks=run.ranks,
    )


def _kept(events: pl.DataFrame, one: Stretch) -> BoolArray:
    if not len(events):
        return np.zeros(0, dtype=bool)
    steps = events["step"].fill_null(strategy="forward").fill_null(_FIRST_STEP).to_numpy()
    places = place(events["segment"].fill_null(0).to_numpy(), steps)
    return (places >= one.first) & (places < one.end)


def _within(segment: Segment, one: Stretch) -> bool:
    return bool(
        place(segment.index, segment.first) < one.end
        and place(segment.index, segment.last) >= one.first
    )


def _clipped(segment: Segment, one: Stretch) -> Segment:
    begin = int(place(segment.index, segment.first))
    first = max(begin, one.first)
    last = min(int(place(segment.index, segment.last)), one.end - 1)
    whole, steps = segment.last - segment.first + 1, last - first + 1
    start = segment.first + first - begin
    return replace(
        segment,
        first=start,
        last=start + last - first,
        count=max(1, segment.count * steps // max(whole, 1)),
    )


def overview(run: RunLog, rows: Sequence[Packed]) -> RunLog:
    """The run with these rows alone (see telling_rows), and all others as its `whole`."""
    readings = run.readings
    parts = [readings.clear()]
    for number, packed in enumerate(rows):
        piece = readings.slice(number * _PIECE, _PIECE)
        parts.append(piece.filter(pl.Series(_unpacked(packed, len(piece)))))
        release()
    return with_rows(run, pl.concat(parts), whole=readings)


def with_rows(run: RunLog, rows: pl.DataFrame, whole: pl.DataFrame | None = None) -> RunLog:
    """The run with other rows; also of a run whose rows are read when they are asked for."""
    return RunLog(
        meta=run.meta,
        readings=rows,
        events=run.events,
        problems=run.problems,
        sources=run.sources,
        ranks=run.ranks,
        whole=whole,
    )


def step_of(run: RunLog) -> int:
    """Of how many logged steps the overview shows one."""
    return max(1, -(-len(run.readings) // OVERVIEW))


def is_rare(column: pl.Series) -> bool:
    """Whether so few rows have a metric that the overview shows them all."""
    return len(column) - column.null_count() <= _RARE


def telling_rows(run: RunLog) -> list[Packed]:
    """Of each piece the rows of every k-th step, and all that are few or tell most.

    They are the run's beginning and its end, the rows of a metric that few rows have, and those
    beside its events.
    """
    readings = run.readings
    every = step_of(run)
    interval = max(run.meta.log_interval, 1)
    starts, ends = _joined(_beside_events(run, interval))
    rare = _rare(readings)
    made = []
    for number, (places, _) in enumerate(_places(readings)):
        piece = readings.select("step", *rare).slice(number * _PIECE, _PIECE)
        rows = np.arange(number * _PIECE, number * _PIECE + len(piece))
        keep = _inside(places, starts, ends) | (rows < _ENDS) | (rows >= len(readings) - _ENDS)
        known = given(piece["step"])
        at = np.where(known, in_place(piece["step"].rechunk()) // interval, rows // _STEPLESS)
        keep |= at % every == 0
        for name in rare:
            keep |= given(piece[name])
        made.append(np.packbits(keep))
    return made


def rows_to_show(
    rows: Sequence[Packed], run: RunLog, made: Cut, spans: Sequence[Span]
) -> list[Packed]:
    """The rows, all that lie within the spans (of findings), and each metric's extremes.

    These are the lowest and the highest of every few thousand rows: what a curve of fewer points
    than the log has to show.
    """
    starts, ends = _joined(spans)
    metrics = [name for name in run.readings.columns if name not in READING_COLUMNS]
    held = []
    for number, packed in enumerate(rows):
        piece = run.readings.select(metrics).slice(number * _PIECE, _PIECE)
        keep = _unpacked(packed, len(piece))
        keep[_extremes(piece)] = True
        held.append(np.packbits(keep))
        release()
    near = np.searchsorted(ends, made.low) < np.searchsorted(starts, made.high, side="right")
    numbers = np.flatnonzero(near).tolist()
    for number, (places, _) in zip(numbers, _places(run.readings, numbers, made.held), strict=True):
        keep = _unpacked(held[number], len(places)) | _inside(places, starts, ends)
        held[number] = np.packbits(keep)
    return held


def _extremes(piece: pl.DataFrame) -> IntArray:
    """Rows with the lowest or the highest number of a metric among _AMONG rows; NaN is both."""
    found = [np.zeros(0, dtype=np.int64)]
    starts = np.arange(0, len(piece), _AMONG)
    for column in piece.get_columns():
        known, values = given(column), column.cast(pl.Float64).fill_null(0.0).to_numpy()
        for sign in (1.0, -1.0):
            ranked = np.where(known, sign * values, np.inf)
            least = np.fmin.reduceat(ranked, starts)
            told = known & (ranked == np.repeat(least, np.diff(starts, append=len(piece))))
            at = np.flatnonzero(told)
            found.append(at[np.unique(at // _AMONG, return_index=True)[1]])
        found.append(np.flatnonzero(known & np.isnan(values))[:_AMONG])
    return np.concatenate(found)


def _unpacked(packed: Packed, count: int) -> BoolArray:
    return np.unpackbits(packed, count=count).view(np.bool_)


def _rare(readings: pl.DataFrame) -> list[str]:
    """Metrics that few rows have, as an evaluation's, the rarest first, up to a limit of rows."""
    metrics = [name for name in readings.columns if name not in READING_COLUMNS]
    few = [name for name in metrics if is_rare(readings[name])]
    counts = {name: len(readings) - readings[name].null_count() for name in few}
    rare, rows = [], 0
    for name, count in sorted(counts.items(), key=lambda pair: pair[1]):
        rows += count
        if rows > _MOST_RARE:
            break
        rare.append(name)
    return rare


def _beside_events(run: RunLog, interval: int) -> list[Span]:
    """The steps beside events; of very many, of some all over the run."""
    told = run.events.filter(pl.col("step").is_not_null()).select("segment", "step").unique()
    told = told.sort("segment", "step").gather_every(-(-len(told) // _MOST_EVENTS) or 1)
    return [
        (segment or 0, step - 2 * interval, step + 2 * interval) for segment, step in told.rows()
    ]


def _joined(spans: Iterable[Span]) -> tuple[IntArray, IntArray]:
    """First and last places of what the spans cover, none over another."""
    ends: list[list[int]] = []
    for segment, first, last in sorted(spans):
        begin, end = int(place(segment, first)), int(place(segment, last))
        if ends and begin <= ends[-1][1]:
            ends[-1][1] = max(ends[-1][1], end)
        else:
            ends.append([begin, end])
    both = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _inside(places: IntArray, starts: IntArray, ends: IntArray) -> BoolArray:
    if not len(starts):
        return np.zeros(len(places), dtype=bool)
    at = np.searchsorted(starts, places, side="right") - 1
    return np.asarray((at >= 0) & (places <= ends[np.maximum(at, 0)]))
