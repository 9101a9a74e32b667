"""What a run is made of while its inputs are read, and how side logs find their run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze.grouping import Group
from loganalyze.model import Batch, Event, Problem, Source


class Parts(Struct):
    """Frames, events and problems of one run, in the order read."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    frameworks: Counter[str] = field(default_factory=Counter)

    def add(self, batch: Batch, rank: int | None) -> None:
        """Take a batch in; rows without a rank get the one of the file's name."""
        if batch.readings is not None and len(batch.readings):
            frame = batch.readings
            if rank is not None and frame["rank"].null_count() == len(frame):
                frame = frame.with_columns(rank=pl.lit(rank, dtype=pl.Int32))
            self.frames.append(frame)
            self.frameworks[batch.framework] += len(frame)
        self.events.extend(batch.events)
        self.problems.extend(batch.problems)

    def extend(self, other: Parts) -> None:
        """Take all of another's parts in."""
        self.frames.extend(other.frames)
        self.events.extend(other.events)
        self.problems.extend(other.problems)
        self.frameworks.update(other.frameworks)


class Pending(Struct, kw_only=True):
    """A group that was read: its runs' parts by label, its sources, and what nobody could read."""

    group: Group
    by_run: dict[str, Parts] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    missed: list[Source] = field(default_factory=list)


def renamed(frame: pl.DataFrame, mapped: Mapping[str, str]) -> pl.DataFrame:
    """Columns that the user named (`raw/<column>`) under the metric that they are."""
    known = {
        f"raw/{column}": metric
        for column, metric in mapped.items()
        if f"raw/{column}" in frame.columns
    }
    for column, metric in known.items():
        value = pl.col(column).cast(frame.schema[metric]) if metric in frame.columns else None
        if value is None:
            frame = frame.rename({column: metric})
        else:
            frame = frame.with_columns(pl.coalesce(metric, value).alias(metric)).drop(column)
    return frame


def attached(read: Sequence[Pending]) -> list[Pending]:
    """The groups that are runs; logs without steps (a GPU monitor's) joined to the run whose
    time they overlap, if there is exactly one."""
    runs = [one for one in read if not _is_side(one)]
    for one in read:
        if not _is_side(one):
            continue
        hosts = [run for run in runs if not one.group.named and _overlap(run, one)]
        if len(hosts) == 1:
            _attach(hosts[0], one)
        else:
            runs.append(one)
    return runs


def _is_side(one: Pending) -> bool:
    frames = [frame for part in one.by_run.values() for frame in part.frames]
    timed = any(frame["wall_s"].null_count() < len(frame) for frame in frames)
    return timed and all(frame["step"].null_count() == len(frame) for frame in frames)


def _span(one: Pending) -> tuple[float, float] | None:
    times = [
        frame["wall_s"].drop_nulls()
        for part in one.by_run.values()
        for frame in part.frames
        if frame["wall_s"].null_count() < len(frame)
    ]
    if not times:
        return None
    return min(float(t.min()) for t in times), max(float(t.max()) for t in times)  # type: ignore[arg-type]


def _overlap(run: Pending, side: Pending) -> bool:
    own, other = _span(run), _span(side)
    if own is None or other is None or len(run.by_run) != 1:
        return False
    return own[0] <= other[1] and other[0] <= own[1]


def _attach(run: Pending, side: Pending) -> None:
    shift = len(run.sources)
    (target,) = run.by_run.values()
    for part in side.by_run.values():
        target.frames.extend(
            frame.with_columns(source=(pl.col("source") + shift).cast(pl.Int32))
            for frame in part.frames
        )
        target.events.extend(
            replace(event, ref=replace(event.ref, source=event.ref.source + shift))
            for event in part.events
        )
        target.problems.extend(part.problems)
    run.sources.extend(side.sources)
    run.group = replace(
        run.group, reason=f"{run.group.reason}; side logs of the same time: {side.group.name}"
    )


def safe_name(name: str) -> str:
    """A run's name that is safe as a file name on every system: words, at most 180 bytes."""
    words = re.sub(r"[^\w.+-]+", "_", name).strip("._")[:120]
    return words.encode("utf-8", "replace")[:180].decode("utf-8", "ignore") or "run"
