"""Several event files in one folder: restarts of one run, or runs that have nothing in common?

Writers open a new file at every start. A file goes on with the run before it if it begins behind
that run's first step, at or before the step after its last one, later than the run's last record,
and with the same tags. One that begins at the start again is a run of its own; so is one that was
written at the same time (another rank). Files without a scalar (failed starts) join the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.tensorboard import parse

_STAMP = lazy.pattern(r"\.tfevents\.(\d+)\.")
#: Share of tags in common, from which on two files may be of one run.
_ALIKE = 0.5
#: Logging intervals that may lie between the last step and the first one of the next file.
_REACH = 20


class Extent(Struct, frozen=True):
    """What a file covers: steps, seconds, tags; the interval between its steps (median)."""

    first: int
    last: int
    begin_s: float
    end_s: float
    interval: int
    tags: frozenset[str]


def extent_of(path: Path) -> Extent | None:
    """The extent of an event file; None without a scalar."""
    frames = [batch.readings for batch in parse(path, 0) if batch.readings is not None]
    if not frames or not len(frames[0]):
        return None
    frame = frames[0]
    extent = extent_of_steps(frame["step"], frozenset(frame.columns) - frozenset(KEY_SCHEMA))
    low, high = frame["wall_s"].min(), frame["wall_s"].max()
    if extent is None or not isinstance(low, float) or not isinstance(high, float):
        return extent
    return replace(extent, begin_s=low, end_s=high)


def extent_of_steps(steps: pl.Series, tags: frozenset[str]) -> Extent | None:
    """The extent of a source without a clock; None without a step."""
    steps = steps.drop_nulls().sort()
    if not len(steps):
        return None
    gaps = steps.diff().drop_nulls()
    middle = gaps.filter(gaps > 0).median()
    return Extent(
        first=int(steps[0]),
        last=int(steps[-1]),
        begin_s=0.0,
        end_s=0.0,
        interval=int(middle) if isinstance(middle, float) and middle >= 1 else 1,
        tags=tags,
    )


def event_chains(files: Sequence[Path]) -> list[tuple[tuple[Path, ...], str]]:
    """Event files by run, in order of time, with the reason for putting them together."""
    return chains_of(sorted(files, key=_stamp), extent_of, "event file")


def chains_of(
    files: Sequence[Path], extent_of: Callable[[Path], Extent | None], what: str
) -> list[tuple[tuple[Path, ...], str]]:
    """Files by run, with the reason for putting them together. files: in order of time."""
    chains: list[list[Path]] = []
    last: list[Extent | None] = []
    for file in files:
        extent = extent_of(file) if len(files) > 1 else None
        at = _home(extent, last) if chains else None
        if at is None:
            chains.append([file])
            last.append(extent)
            continue
        chains[at].append(file)
        last[at] = _joined(last[at], extent)
    return [(tuple(chain), _reason(chain, what)) for chain in chains]


def _stamp(file: Path) -> tuple[int, str]:
    match = _STAMP.search(file.name)
    return (int(match[1]) if match else 0), file.name


def _reason(chain: Sequence[Path], what: str) -> str:
    if len(chain) == 1:
        return f"one {what}"
    return f"{len(chain)} {what}s that continue each other's steps"


def _home(extent: Extent | None, chains: Sequence[Extent | None]) -> int | None:
    """The run that a file goes on with, the youngest first; None for a run of its own."""
    if extent is None:
        return len(chains) - 1
    for at in range(len(chains) - 1, -1, -1):
        before = chains[at]
        if before is None or _continues(before, extent):
            return at
    return None


def _continues(before: Extent, after: Extent) -> bool:
    interval = max(before.interval, after.interval)
    in_reach = before.first + interval < after.first <= before.last + _REACH * interval
    later = after.begin_s >= before.end_s
    common = len(before.tags & after.tags) / max(1, min(len(before.tags), len(after.tags)))
    return in_reach and later and common >= _ALIKE


def _joined(before: Extent | None, after: Extent | None) -> Extent | None:
    if before is None or after is None:
        return before or after
    return Extent(
        first=min(before.first, after.first),
        last=max(before.last, after.last),
        begin_s=min(before.begin_s, after.begin_s),
        end_s=max(before.end_s, after.end_s),
        interval=max(before.interval, after.interval),
        tags=before.tags | after.tags,
    )
