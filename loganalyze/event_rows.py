"""The frame of a run's events: each with the step and segment of the row before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from loganalyze.inputs import log_of
from loganalyze.model import EVENT_COLUMNS, Event, Segment, Source
from loganalyze.spill import slices

KEYS: Mapping[str, pl.DataType] = {
    "step": pl.Int64(), "segment": pl.Int32(), "rank": pl.Int32(), "wall_s": pl.Float64(),
    "source": pl.Int32(), "line": pl.Int64(), "offset": pl.Int64(), "length": pl.Int64(),
}  # fmt: skip
EVENT_SCHEMA: Mapping[str, pl.DataType] = {
    "kind": pl.String(), **KEYS, "text": pl.String(), "detail": pl.String(),
}  # fmt: skip
_PIECE = 1 << 18  # rows looked at together


def segment_at(cut: Sequence[Segment], source: int, step: int) -> int:
    """The last segment that came as far as a step; for events of an input without rows."""
    return next((s.index for s in reversed(cut) if s.first <= step <= s.last), 0)


def parts_before(sources: Sequence[Source]) -> dict[int, int]:
    """For each part of a rotated log the part before it, by their places among the inputs."""
    last: dict[str, int] = {}
    before: dict[int, int] = {}
    for index, source in enumerate(sources):
        log = log_of(Path(source.path))
        if log in last:
            before[index] = last[log]
        last[log] = index
    return before


def events_frame(
    events: Sequence[Event],
    readings: pl.DataFrame,
    at: Callable[[int, int], int],
    before: Mapping[int, int] = MappingProxyType({}),
) -> pl.DataFrame:
    """Events with the step and segment of the last row before them in the same input.

    at: the segment of a source and step, for events with a step of an input without rows. before:
    for inputs that go on from another one, that one.
    """
    columns: dict[str, list[object]] = {name: [] for name in EVENT_COLUMNS}
    steps, segments = _rows_before(events, readings, before)
    rowless = {event.ref.source for event in events} - _sources(readings)
    for event, step, segment in zip(events, steps, segments, strict=True):
        ref = event.ref
        if ref.source in rowless and event.step is not None:
            segment = at(ref.source, event.step)
        row = (
            event.kind, step if event.step is None else event.step, segment, event.rank,
            event.wall_s, ref.source, ref.line, ref.offset, ref.length, event.text,
            json.dumps(dict(event.detail), ensure_ascii=False, sort_keys=True),
        )  # fmt: skip
        for name, value in zip(EVENT_COLUMNS, row, strict=True):
            columns[name].append(value)
    return pl.DataFrame(columns, schema=dict(EVENT_SCHEMA))


def _sources(readings: pl.DataFrame) -> set[int]:
    found: set[int] = set()
    for piece in slices(readings.select("source"), _PIECE):
        column = piece["source"]
        low, high = column.min(), column.max()  # mostly all rows are of one
        found.update([low] if low == high and isinstance(low, int) else column.unique())
    return found


def _rows_before(
    events: Sequence[Event], readings: pl.DataFrame, earlier: Mapping[int, int]
) -> tuple[list[int | None], list[int]]:
    """Step and segment of the last row before each event in its input, or in the parts before it.

    Before the first row: None and that row's segment; in an input without rows None and 0.
    """
    sources = np.array([event.ref.source for event in events], dtype=np.int64)
    offsets = np.array([event.ref.offset for event in events], dtype=np.int64)
    found = np.full(len(events), -1, dtype=np.int64)  # offset of the row
    steps, segments = np.zeros_like(found), np.zeros_like(found)
    first: dict[int, tuple[int, int]] = {}  # offset and segment of the first row of an input
    last: dict[int, tuple[int, int, int]] = {}  # offset, step and segment of its last row
    keys = readings.select("source", "offset", "step", "segment")
    for piece in slices(keys, _PIECE) if events else ():
        told = piece.filter(pl.col("step").is_not_null()) if piece["step"].null_count() else piece
        for source, rows in _by_source(told):
            places, step, segment = (rows[n].to_numpy() for n in ("offset", "step", "segment"))
            opening = (int(places[0]), int(segment[0]))
            first[source] = min(first.get(source, opening), opening)
            ending = (int(places[-1]), int(step[-1]), int(segment[-1]))
            last[source] = max(last.get(source, ending), ending)
            mine = np.flatnonzero(sources == source)
            at = np.searchsorted(places, offsets[mine], side="right") - 1
            better = (at >= 0) & (places[at] >= found[mine])
            mine, at = mine[better], at[better]
            found[mine], steps[mine], segments[mine] = places[at], step[at], segment[at]
    ends: dict[int, tuple[int, int, int]] = {}  # last row of the parts before an input
    for source, before in sorted(earlier.items()):
        if before in last or before in ends:
            ends[source] = last.get(before) or ends[before]
    for index in np.flatnonzero(found < 0).tolist():
        source = int(sources[index])
        if source in ends:
            found[index], steps[index], segments[index] = ends[source]
        else:
            segments[index] = first.get(source, (0, 0))[1]
    return [s if f >= 0 else None for s, f in zip(steps.tolist(), found.tolist(), strict=True)], (
        segments.tolist()
    )


def _by_source(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of each input by their offsets; mostly they are of one and in order."""
    source = rows["source"]
    alike = len(rows) > 0 and not source.null_count() and source.min() == source.max()
    parts = {(source[0],): rows} if alike else rows.partition_by("source", as_dict=True)
    for (name,), part in parts.items():
        assert isinstance(name, int)
        yield name, part if part["offset"].is_sorted() else part.sort("offset", maintain_order=True)
