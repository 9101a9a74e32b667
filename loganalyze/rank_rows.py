"""The rows and events of many ranks, each cut into segments by itself, as one table.

What assemble() makes of each rank alone, made of all of them at once: a column is built once for
a shard, not once for each of ten thousand ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze.assemble import (
    PLACEHOLDER_ZERO,
    THROUGHPUT,
    TRAINING_METRICS,
    empty_readings,
    joined,
    loads_of,
    masked_names,
    ordered_events,
    placeholder,
    record,
)
from loganalyze.event_rows import events_frame
from loganalyze.line_places import borders
from loganalyze.masking import masked_problem
from loganalyze.model import READING_COLUMNS, Problem
from loganalyze.parts import Parts
from loganalyze.segments import IntArray, followed, integers, leader_of, stream_labels

Bools = npt.NDArray[np.bool_]
Spans = Sequence[tuple[int, int]]
#: Metrics that nobody wired, by the rank's place: on how many lines each is 0.
Dropped = dict[int, dict[str, int]]
#: Columns that decide which rows are records; the others are no matter.
_DECIDING = frozenset((*TRAINING_METRICS, *THROUGHPUT))


class RankRows(Struct, frozen=True, kw_only=True):
    """All rows, events and problems. records: of each rank, how many training steps it tells."""

    readings: pl.DataFrame
    events: pl.DataFrame
    problems: tuple[Problem, ...]
    records: tuple[int, ...]


class _Stream(Struct, frozen=True, kw_only=True):
    """The segments of one rank's rows (-1: none), and steps and segments of its records."""

    rows: IntArray
    steps: IntArray
    own: IntArray

    @property
    def records(self) -> int:
        """Different steps, of all segments together."""
        return len(np.unique(np.stack([self.own, self.steps]), axis=1).T)

    def at(self, step: int) -> int:
        """The last segment that came as far as a step, 0 if none did."""
        for label in range(int(self.own.max(initial=-1)), -1, -1):
            steps = self.steps[self.own == label]
            if steps.min() <= step <= steps.max():
                return label
        return 0


def rank_rows(
    ranks: Sequence[Parts], inputs: Sequence[range], before: Mapping[int, int]
) -> RankRows:
    """The table of some ranks' parts, in their order. inputs: the sources of each rank.

    before: for sources that go on from another one, that one.
    """
    frames = [frame for parts in ranks for frame in parts.frames]
    ends = np.cumsum([sum(map(len, parts.frames)) for parts in ranks]).tolist()
    spans = list(zip([0, *ends], ends, strict=False))
    rows = masked_names(joined(frames).rechunk()) if frames else empty_readings()
    rows, dropped = _without_placeholders(rows, spans)
    events = ordered_events([event for parts in ranks for event in parts.events])
    training = _training(rows, ranks, spans, dropped)
    streams = _streams(rows, borders(rows, loads_of(events)), training, spans)
    rows = _labelled(rows, streams)
    of_source = {source: at for at, sources in enumerate(inputs) for source in sources}
    told = events_frame(
        events, rows, lambda source, step: streams[of_source[source]].at(step), before
    )
    return RankRows(
        readings=rows,
        events=told,
        problems=_problems(ranks, dropped),
        records=tuple(one.records for one in streams),
    )


def _without_placeholders(rows: pl.DataFrame, spans: Spans) -> tuple[pl.DataFrame, Dropped]:
    """A metric that is 0 on every line of a rank is taken out of that rank's rows."""
    dropped: Dropped = {}
    for name in PLACEHOLDER_ZERO:
        if name not in rows.columns:
            continue
        said, zero = _sums(rows[name].is_not_null()), _sums(rows[name] == 0.0)
        gone = np.zeros(len(rows), np.bool_)
        for at, (first, end) in enumerate(spans):
            count = int(said[end] - said[first])
            if count and count == zero[end] - zero[first]:
                gone[first:end] = True
                dropped.setdefault(at, {})[name] = count
        if gone.any():
            kept = rows.select(pl.when(~pl.Series(gone)).then(pl.col(name)))[name]
            none = kept.null_count() == len(kept)
            rows = rows.drop(name) if none else rows.with_columns(kept)
    return rows, dropped


def _sums(told: pl.Series) -> npt.NDArray[np.int64]:
    """How many are true before each place."""
    return np.concatenate([[0], np.cumsum(told.fill_null(False).to_numpy())])


def _training(rows: pl.DataFrame, ranks: Sequence[Parts], spans: Spans, dropped: Dropped) -> Bools:
    """Which rows are a training step's record, by the columns that their rank has."""
    training = np.zeros(len(rows), np.bool_)
    known: dict[frozenset[str], Bools] = {}
    for at, (parts, (first, end)) in enumerate(zip(ranks, spans, strict=True)):
        held = {name for frame in parts.frames for name in frame.columns}
        key = frozenset((held - set(dropped.get(at, ()))) & _DECIDING)
        if key not in known:
            known[key] = rows.select(record(key)).to_series().to_numpy()
        training[first:end] = known[key][first:end]
    return training


def _streams(rows: pl.DataFrame, before: IntArray, training: Bools, spans: Spans) -> list[_Stream]:
    steps, ranks = integers(rows["step"]), integers(rows["rank"])
    sources = rows["source"].to_numpy()
    return [
        _stream(steps[a:b], ranks[a:b], before[a:b], training[a:b], sources[a:b]) for a, b in spans
    ]


def _stream(
    steps: IntArray, ranks: IntArray, before: IntArray, main: Bools, sources: IntArray
) -> _Stream:
    """As segments.cut_segments cuts the rows of one rank's files."""
    if not main.any():
        none = np.zeros(0, np.int32)
        return _Stream(rows=np.full(len(steps), -1, np.int32), steps=none, own=none)
    labels, _ = stream_labels(steps, ranks, before, main)
    leader = leader_of(ranks, main)
    own = labels[leader]
    if not bool((labels >= 0).all()):
        labels = followed(labels, sources)
    return _Stream(rows=np.minimum(labels, own.max()), steps=steps[leader], own=own)


def _labelled(rows: pl.DataFrame, streams: Sequence[_Stream]) -> pl.DataFrame:
    """The rows with their segment, the columns in their order."""
    labels = np.concatenate([np.zeros(0, np.int32), *(one.rows for one in streams)])
    rows = rows.with_columns(segment=pl.Series(np.maximum(labels, 0), dtype=pl.Int32))
    metrics = sorted(set(rows.columns) - set(READING_COLUMNS))
    return rows.select(*READING_COLUMNS, *metrics)


def _problems(ranks: Sequence[Parts], dropped: Dropped) -> tuple[Problem, ...]:
    told: list[Problem] = []
    for at, parts in enumerate(ranks):
        told.extend(map(masked_problem, parts.problems))
        told.extend(placeholder(name, lines) for name, lines in dropped.get(at, {}).items())
    return tuple(told)
