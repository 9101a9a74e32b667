"""Puts news behind a stored run: as new parts where nothing else changes, else assembled anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from loganalyze.assemble import (
    assemble,
    config_of,
    events_frame,
    ordered_events,
    segment_at,
    training_rows,
)
from loganalyze.model import READING_COLUMNS, Event, LineRef, RunLog, Source
from loganalyze.parts import Parts
from loganalyze.store import EVENTS, META, READINGS, dump, link, put, read_run, write_run
from loganalyze.store_parts import PART_ROWS, scan_parts, write_part

#: Events that say where a segment begins.
_BORDERS = frozenset({"checkpoint_load", "start_fresh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrown:
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
    if _any_rank(place, names) or fresh["rank"].null_count() < len(fresh):
        return None
    steps = training_rows(fresh)["step"]
    before = training_rows(last)["step"]
    gaps = pl.concat([before.tail(1), steps]).diff().drop_nulls()
    if not len(before) or not (gaps == old.meta.log_interval).all():
        return None
    return _behind(old, new, source, names, last, fresh, steps, place)


def _behind(
    old: RunLog, new: Parts, source: Source, names: tuple[str, ...], last: pl.DataFrame,
    fresh: pl.DataFrame, steps: pl.Series, place: Path,
) -> Regrown | None:  # fmt: skip
    (segment,) = old.meta.segments
    if len(steps):
        segment = replace(segment, last=int(steps[-1]), count=segment.count + len(steps))
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
    if len(made.meta.segments) > 1:
        return None
    lacking = [name for name in last.columns if name not in made.readings.columns]
    rows = made.readings.with_columns(
        pl.lit(None, dtype=last.schema[name]).alias(name) for name in lacking
    )
    return rows.select(last.columns).with_columns(segment=pl.lit(0, dtype=pl.Int32))


def _any_rank(place: Path, names: tuple[str, ...]) -> bool:
    parts = scan_parts([place / READINGS / name for name in names])
    return bool(parts.select(pl.col("rank").is_not_null().any()).collect().item())


def assembled(place: Path, new: Parts, source: Source, offset: int) -> Regrown | None:
    """The run of the stored rows and the new ones; None where it must be read whole.

    What a load without a step says cannot be told from the store.
    """
    old = read_run(place)
    kept = old.events.filter(pl.col("offset") < offset)
    if set(kept["kind"]) & _BORDERS or set(new.frameworks) - {old.meta.framework}:
        return None
    rows = old.readings.filter(pl.col("offset") < offset).drop("segment")
    silent = [
        name
        for name in rows.columns
        if name not in READING_COLUMNS and rows[name].null_count() == len(rows)
    ]
    run = assemble(
        old.meta.id,
        [rows.drop(silent), *new.frames],
        [*map(_event, kept.iter_rows(named=True)), *new.events],
        new.problems,
        [source],
        framework=old.meta.framework,
        grouping=old.meta.grouping,
    )
    return Regrown(run=run)


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
