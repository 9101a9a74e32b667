"""What a detector is, and the few helpers that all families use to state a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.config import Thresholds, kinds
from loganalyze.model import Evidence, Finding, RunLog, Severity, Threshold
from loganalyze.tracks import Track, row_ref, tracks

Made = TypeVar("Made")
#: Rows of a long run: its detectors work beside each other, and memory is scarce.
LONG = 200_000
_MOST_TRACKS = 6  # metrics whose tracks are held of such a run
_NOT_MADE: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that a detector may look at.

    memo: what one detector worked out and another may use, by a name of their own: see once().
    """

    run: RunLog
    thresholds: Thresholds
    profile: str
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    _recent: dict[str, None] = field(default_factory=dict, compare=False, repr=False)
    _locks: dict[str, RLock] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` gives, made at the first call by that name; others wait for it."""
        with self._locks.setdefault(name, RLock()):
            made: Made = self.memo.get(name, _NOT_MADE)
            if made is _NOT_MADE:
                made = self.memo[name] = make()
        return made

    def tracks(self, metric: str) -> tuple[Track, ...]:
        """Tracks of one metric of the run; empty where it was not logged.

        Cut once; of a long run only those asked for last are held, as they fill the memory.
        """
        name = f"tracks {metric}"
        made = self.once(name, lambda: tracks(self.run, metric))
        if len(self.run.readings) >= LONG:
            self._recent.pop(name, None)
            self._recent[name] = None
            for old in list(self._recent)[:-_MOST_TRACKS]:
                self._recent.pop(old, None)
                self.memo.pop(old, None)
        return made

    def has(self, metric: str) -> bool:
        """Whether the log carries at least one number of that metric."""
        frame = self.run.readings
        return metric in frame.columns and frame[metric].null_count() < frame.height

    def family(self, prefix: str) -> tuple[str, ...]:
        """The metrics whose names begin so, in the order of the columns."""
        names = self.run.readings.columns
        return tuple(name for name in names if name.startswith(prefix) and self.has(name))

    def events(self, *wanted: str) -> pl.DataFrame:
        """The events of these kinds, in the order logged."""
        events = self.run.events
        told = self.once("event kinds", lambda: frozenset(events["kind"].unique()))
        if told.isdisjoint(wanted):  # most kinds are asked for in vain
            return events.clear()
        return self.once(
            " ".join(("events", *wanted)), lambda: events.filter(pl.col("kind").is_in(wanted))
        )

    def value(self, name: str) -> float:
        """The number of a threshold."""
        return self.thresholds.value(name)


class Detector(Struct, frozen=True, kw_only=True):
    """One detector: what it can find, what it needs, and the function that looks.

    needs: groups of metrics; of each group at least one must be in the log. `event:<kind>` in a
    group stands for at least one event of that kind, `<family>/` for any metric of a family (the
    report names no family as missing). run: findings with id "" (detect names them).
    local: it looks at neighbourhoods, so a run too long for the memory is judged stretch by
    stretch; also_whole: kinds that it finds in the overview of such a run, too (see in_stretches).
    """

    name: str
    kinds: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    run: Callable[[Context], list[Finding]]
    local: bool = False
    also_whole: tuple[str, ...] = ()

    def missing(self, context: Context) -> tuple[str, ...]:
        """The groups that the log does not satisfy, each as `a|b`."""
        return tuple(
            "|".join(name for name in group if not name.endswith("/"))
            for group in self.needs
            if not _any(context, group)
        )


def _any(context: Context, group: Sequence[str]) -> bool:
    return any(
        context.events(name.removeprefix("event:")).height > 0
        if name.startswith("event:")
        else bool(context.family(name))
        if name.endswith("/")
        else context.has(name)
        for name in group
    )


def finding(
    kind: str,
    severity: Severity,
    *,
    track: Track | None = None,
    first: int | None = None,
    last: int | None = None,
    peak: int | None = None,
    statistics: Mapping[str, float | int | str | None] | None = None,
    threshold: Threshold | None = None,
    rules: tuple[Threshold, ...] = (),
    evidence: tuple[Evidence, ...] = (),
    metric: str | None = None,
) -> Finding:
    """A finding of a kind of kinds.toml; steps as logged; rank and segment from the track."""
    return Finding(
        id="",
        code=kinds()[kind].code,
        kind=kind,
        metric=metric if metric is not None else (track.metric if track else None),
        severity=severity,
        step_first=first,
        step_last=last,
        step_peak=peak,
        rank=track.rank if track else None,
        segment=track.segment if track else None,
        statistics=_plain(statistics or {}),
        threshold=threshold,
        rules=rules,
        evidence=evidence,
    )


def _plain(
    statistics: Mapping[str, float | int | str | None],
) -> dict[str, float | int | str | None]:
    """Numpy scalars become Python numbers, so that every writer can take them."""
    return {key: getattr(value, "item", lambda v=value: v)() for key, value in statistics.items()}


def point(
    context: Context, track: Track, at: int, label: str, *, unit: str = "", expected: str = ""
) -> Evidence:
    """The observed value of point `at` of a track, with the log line it stands in."""
    return Evidence(
        label=label,
        step=int(track.steps[at]),
        value=float(track.values[at]),
        unit=unit,
        expected=expected,
        ref=row_ref(context.run, int(track.rows[at])),
    )


def named(found: Finding, number: int) -> Finding:
    """The finding with its id `<code>-<number>`."""
    return replace(found, id=f"{found.code}-{number}")
