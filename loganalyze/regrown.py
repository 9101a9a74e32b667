"""Puts news behind a stored run: as new parts where nothing else changes, else assembled anew."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.assemble import (
    assemble,
    config_of,
    ordered_events,
    record,
    training_rows,
)
from loganalyze.event_rows import events_frame, segment_at
from loganalyze.memory_rows import memory_alone
from loganalyze.model import READING_COLUMNS, Event, LineRef, RunLog, Segment, Source
from loganalyze.parts import Parts
from loganalyze.spill import mapped, release
from loganalyze.store import EVENTS, META, READINGS, dump, link, put, read_head, write_run
from loganalyze.store_parts import PART_ROWS, scan_parts, write_part

#: Events that say where a segment begins.
_BORDERS = frozenset({"checkpoint_load", "start_fresh"})
#: Stands for the rank of rows that have none.
_NO_RANK = -1


class Regrown(Struct, frozen=True, kw_only=True):
    """A run to be written. kept: parts that stay, in `old`; its readings are the rows behind them.

    Without `old` its readings are all rows.
    """

    run: RunLog
    old: Path | None = None
    kept: tuple[str, ...] = ()

    def write(self, store: Path) -> tuple[RunLog, int]:
        """Put the run in its place. Returns it, and how many rows it has. Raises OutputError."""
        if self.old is None:
            write_run(self.run, store)
            return self.run, len(self.run.readings)
        put(store, self.run.meta.id, self._fill)
        return self.run, len(self.kept) * PART_ROWS + len(self.run.readings)

    def _fill(self, fresh: Path) -> None:
        assert self.old is not None
        folder = fresh / READINGS
        folder.mkdir()
        for name in self.kept:
            link(self.old / READINGS / name, folder / name)
        rows, names = self.run.readings, list(self.kept)
        for first in range(0, len(rows), PART_ROWS):
            names.append(write_part(rows.slice(first, PART_ROWS), len(names), folder))
        self.run.events.write_parquet(fresh / EVENTS, compression="zstd")
        (fresh / META).write_text(dump(self.run, names), encoding="utf-8")


def appended(
    old: RunLog, document: Mapping[str, Any], new: Parts, source: Source, offset: int, place: Path
) -> Regrown | None:
    """The run with rows and events behind its own; None where more than that may change.

    old: the run without its rows. offset: where in the log the news begin.
    """
    names = tuple(document["parts"])
    borders = any(event.kind in _BORDERS for event in new.events)
    other = set(new.frameworks) - {old.meta.framework}
    if len(old.meta.segments) != 1 or borders or other or not names:
        return None
    last = pl.read_parquet(place / READINGS / names[-1])
    fresh = _rows_like(last, new)
    if fresh is None or not len(last) or bool((last["offset"] >= offset).any()):
        return None
    before, after = training_rows(last)["step"], training_rows(fresh)
    gaps = pl.concat([before.tail(1), after["step"]]).diff().drop_nulls()
    if not len(before) or not (gaps.filter(gaps > 0) == old.meta.log_interval).all():
        return None
    segment = _segment_on(old.meta.segments[0], after, place, names)
    if segment is None:
        return None
    return _behind(old, new, source, names, last, fresh, segment, place)


def _segment_on(
    segment: Segment, after: pl.DataFrame, place: Path, names: Sequence[str]
) -> Segment | None:
    """The run's only segment with new records; None where they begin another.

    Segments are those of the rank with the most records (the lowest of equals), which must stay
    the same one.
    """
    known = _records(place, names)
    more = Counter(after["rank"].fill_null(_NO_RANK).to_list())
    leader = _most(known)
    if leader != _most(known + more if len(known) > 1 or set(more) - set(known) else known):
        return None
    own = after.filter(pl.col("rank").fill_null(_NO_RANK) == leader)["step"]
    steps = pl.concat([pl.Series([segment.last], dtype=pl.Int64), own])
    if bool((steps.diff().drop_nulls() < 0).any()):
        return None
    return replace(segment, last=int(steps[-1]), count=segment.count + steps.n_unique() - 1)


def _records(place: Path, names: Sequence[str]) -> Counter[int]:
    """Training records of each rank in the stored parts; one rank alone is not counted."""
    parts = scan_parts([place / READINGS / name for name in names])
    rank = pl.col("rank").fill_null(_NO_RANK)
    ranks = parts.select(rank.unique()).collect(engine="streaming")["rank"].to_list()
    if len(ranks) == 1:
        return Counter(ranks)
    told = parts.filter(record(parts.collect_schema().names())).group_by(rank).len()
    return Counter(dict(told.collect(engine="streaming").iter_rows()))


def _most(records: Mapping[int, int]) -> int | None:
    return min(records, key=lambda rank: (-records[rank], rank), default=None)


def _behind(
    old: RunLog, new: Parts, source: Source, names: tuple[str, ...], last: pl.DataFrame,
    fresh: pl.DataFrame, segment: Segment, place: Path,
) -> Regrown | None:  # fmt: skip
    rows = pl.concat([last, fresh])
    events = ordered_events(new.events)
    if events and not rows["step"].is_not_null().any():
        return None  # the row before them stands in an earlier part
    told = events_frame(events, rows, partial(segment_at, (segment,)))
    config = dict(sorted({**old.meta.config, **config_of(events)}.items()))
    run = replace(
        old,
        meta=replace(old.meta, segments=(segment,), config=config),
        readings=rows,
        events=pl.concat([old.events, told]).rechunk(),
        sources=(source,),
    )
    return Regrown(run=run, old=place, kept=names[:-1])


def _rows_like(last: pl.DataFrame, new: Parts) -> pl.DataFrame | None:
    """The new rows with the columns of the stored ones; None if they have others, or are odd."""
    made = assemble("", new.frames, (), new.problems, (), framework="", grouping="")
    if made.problems or not set(made.readings.columns) <= set(last.columns):
        return None
    alone = made.readings.select(memory_alone(made.readings.columns).any()).item()
    if len(made.meta.segments) > 1 or alone:  # the record above such a print stands in the store
        return None
    lacking = [name for name in last.columns if name not in made.readings.columns]
    rows = made.readings.with_columns(
        pl.lit(None, dtype=last.schema[name]).alias(name) for name in lacking
    )
    return rows.select(last.columns).with_columns(segment=pl.lit(0, dtype=pl.Int32))


def assembled(place: Path, new: Parts, source: Source, offset: int) -> Regrown | None:
    """The run of the stored rows and the new ones; None where it must be read whole.

    What a load without a step says cannot be told from the store.
    """
    old, document = read_head(place)
    kept = old.events.filter(pl.col("offset") < offset)
    if set(kept["kind"]) & _BORDERS or set(new.frameworks) - {old.meta.framework}:
        return None
    rows = [_mapped_rows(place / READINGS / name, offset) for name in document["parts"]]
    silent = [
        name
        for name in rows[0].columns
        if name not in READING_COLUMNS and all(r[name].null_count() == len(r) for r in rows)
    ]
    run = assemble(
        old.meta.id,
        [*(frame.drop(silent) for frame in rows), *new.frames],
        [*map(_event, kept.iter_rows(named=True)), *new.events],
        new.problems,
        [source],
        framework=old.meta.framework,
        grouping=old.meta.grouping,
    )
    return Regrown(run=run)


def _mapped_rows(part: Path, offset: int) -> pl.DataFrame:
    """A part's rows before that offset, without their segment, out of the memory."""
    rows = mapped(pl.read_parquet(part).filter(pl.col("offset") < offset).drop("segment"))
    release()
    return rows


def _event(row: Mapping[str, Any]) -> Event:
    return Event(
        kind=row["kind"],
        ref=LineRef(
            source=row["source"], line=row["line"], offset=row["offset"], length=row["length"]
        ),
        text=row["text"],
        step=row["step"],
        rank=row["rank"],
        wall_s=row["wall_s"],
        detail=json.loads(row["detail"]),
    )
