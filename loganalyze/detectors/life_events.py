"""Failures among the events: what stopped an attempt first, and what only echoed it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze.detectors.base import Context
from loganalyze.model import Evidence, LineRef, RunLog

#: Event kind to finding kind, for everything that can end a run.
FAILURES = {
    "oom": "oom",
    "exception": "crash",
    "comm_timeout": "comm_timeout",
    "comm_error": "comm_timeout",
    "xid": "hardware_error",
    "hardware_error": "hardware_error",
    "killed": "killed",
    "signal": "killed",
    "time_limit": "killed",
    "host_oom": "killed",
    "data_exhausted": "data_exhausted",
    "hang": "hang",
}
#: These follow from something else, where anything else is to be seen (TREES, cross-tree rule 2).
_CONSEQUENCES = frozenset({"signal", "killed", "comm_error", "exit"})
#: Exit codes of a program that was told to stop: signals 2, 9 and 15, and trackers' interrupts.
_STOPPED_CODES = frozenset({"130", "137", "143", "255", "-2", "-9", "-15"})
#: A row with one of these numbers shows that a step was trained.
_PROGRESS = ("loss", "reward", "grad_norm", "lr", "step_time_s", "samples_seen", "tokens_per_s")
#: Xid codes that tell of an earlier fault, and codes that a program can cause on its own.
_ECHO_XIDS = frozenset({43, 45})


class Happening(Struct, frozen=True, kw_only=True):
    """One event of the run. after: rows of the same input that come later; order: log position."""

    kind: str
    step: int | None
    segment: int
    rank: int | None
    wall_s: float | None
    ref: LineRef
    text: str
    detail: dict[str, Any]
    followed: bool
    has_row_before: bool

    @property
    def place(self) -> tuple[int, int]:
        """Sorts happenings of one run in the order of the inputs."""
        return (self.ref.source, self.ref.offset)

    @property
    def echo(self) -> bool:
        """Whether such an event is a consequence by its nature."""
        role = self.detail.get("role")
        if role in ("consequence", "context"):
            return True
        if role is None and self.kind == "xid":
            return _number(self.detail.get("xid", self.detail.get("code"))) in _ECHO_XIDS
        return role != "root" and self.kind in _CONSEQUENCES

    @property
    def becomes(self) -> str:
        """Kind of the finding that tells it; an exit with an error code is a crash or a kill."""
        if self.kind != "exit":
            return FAILURES[self.kind]
        return "killed" if _exit_code(self) in _STOPPED_CODES else "crash"

    def evidence(self, label: str) -> Evidence:
        """The event's own line."""
        return Evidence(label=label, step=self.step, value=self.text[:300], ref=self.ref)


def _number(value: object) -> int | None:
    text = str(value).strip()
    return int(text) if text.isdecimal() else None


class Attempt(Struct, frozen=True, kw_only=True):
    """The failures of one try to train, in order of time; last: nothing was trained after it.

    clean: the program had ended by its own will before the first of them.
    """

    failures: tuple[Happening, ...]
    last: bool
    clean: bool

    def first_mover(self) -> Happening:
        """The earliest failure that is not a consequence; the earliest of all if all are."""
        return next((item for item in self.failures if not item.echo), self.failures[0])


def happenings(context: Context, kinds: Sequence[str]) -> list[Happening]:
    """The events of these kinds, in order of the inputs."""
    frame = context.events(*kinds)
    spans = _spans(context) if len(frame) else {}
    found = []
    for row in frame.iter_rows(named=True):
        source, offset = row["source"], row["offset"]
        found.append(
            Happening(
                kind=row["kind"],
                step=row["step"],
                segment=row["segment"] or 0,
                rank=row["rank"],
                wall_s=row["wall_s"],
                ref=LineRef(source=source, line=row["line"], offset=offset, length=row["length"]),
                text=row["text"],
                detail=json.loads(row["detail"] or "{}"),
                followed=spans.get(source, (0, -1))[1] > offset,
                has_row_before=spans.get(source, (offset + 1, 0))[0] < offset,
            )
        )
    return sorted(found, key=lambda item: item.place)


def progress_rows(context: Context) -> pl.DataFrame:
    """Source, offset, step, segment and wall time of the rows that show a step was trained."""
    return context.once("progress rows", lambda: _progress(context.run.readings).collect())


def _progress(frame: pl.DataFrame) -> pl.LazyFrame:
    shown = [pl.col(name).is_not_null() for name in _PROGRESS if name in frame.columns]
    keep = pl.col("step").is_not_null() & (pl.any_horizontal(shown) if shown else pl.lit(False))
    return frame.lazy().filter(keep).select("source", "offset", "step", "segment", "wall_s")


def _spans(context: Context) -> dict[int, tuple[int, int]]:
    """For each source the offsets of its first and its last row that shows progress."""

    def spans() -> dict[int, tuple[int, int]]:
        ends = pl.col("offset").min().alias("first"), pl.col("offset").max().alias("last")
        found = _progress(context.run.readings).group_by("source").agg(*ends).collect()
        return {source: (first, last) for source, first, last in found.iter_rows()}

    return context.once("progress spans", spans)


def attempts(context: Context) -> list[Attempt]:
    """Failures grouped by the try they ended, oldest first."""
    run = context.run
    failures = [
        item
        for item in happenings(context, (*FAILURES, "exit"))
        if item.kind != "exit" or not _planned(item)
    ]
    marks = happenings(context, ("exit", "config", "start_fresh", "checkpoint_load"))
    groups: dict[tuple[int, bool], list[Happening]] = {}
    for item in failures:
        segment, started = _place(run, item)
        groups.setdefault((segment, started), []).append(item)
    final = max(groups, default=None)
    return [
        Attempt(
            failures=tuple(_in_time(own)),
            last=key == final and not any(item.followed for item in own),
            clean=_clean_before(context, own, marks),
        )
        for key, own in sorted(groups.items())
    ]


def _place(run: RunLog, item: Happening) -> tuple[int, bool]:
    """Segment that an event belongs to; an input without rows belongs to the last segment."""
    if item.has_row_before:
        return item.segment, True
    if item.followed:
        return item.segment, False
    return max((segment.index for segment in run.meta.segments), default=0), True


def _in_time(own: list[Happening]) -> list[Happening]:
    """By wall time where every failure has one (clocks may differ by two seconds), else as read."""
    if all(item.wall_s is not None for item in own):
        return sorted(own, key=lambda item: (round((item.wall_s or 0.0) / 2.0), item.place))
    return own


def _clean_before(context: Context, own: list[Happening], marks: list[Happening]) -> bool:
    """Whether the program said good-bye, and nothing was started after that, before `own`."""
    first = min(own, key=lambda item: item.place)
    if all(item.kind == "data_exhausted" for item in own):
        return False
    rows = progress_rows(context).filter(
        (pl.col("source") == first.ref.source) & (pl.col("offset") < first.ref.offset)
    )
    since = (first.ref.source, int(rows["offset"].to_numpy()[-1]) if len(rows) else -1)
    between = [mark for mark in marks if since < mark.place < first.place]
    if between and between[-1].kind == "exit" and _planned(between[-1]):
        return True
    return _finished(context.run, first) and all(mark.kind == "exit" for mark in between)


def _planned(mark: Happening) -> bool:
    return _exit_code(mark) == "0"


def _exit_code(mark: Happening) -> str:
    """Code of an exit as text; one that names none was planned."""
    return str(mark.detail.get("exit_code", mark.detail.get("code", 0))).strip()


def _finished(run: RunLog, item: Happening) -> bool:
    """Whether the last step before an event is the last one planned."""
    total = planned_steps(run)
    return total is not None and item.step is not None and item.step >= total


def planned_steps(run: RunLog) -> int | None:
    """Steps the configuration asks for; None if it does not say."""
    for name in ("train_iters", "train_iterations", "max_steps", "total_steps", "num_train_steps"):
        value = _number(run.meta.config.get(name, ""))
        if value:
            return value
    return None


def ranks_of(items: Sequence[Happening]) -> str:
    """The ranks that reported, as text; empty if no line names one."""
    ranks = sorted({item.rank for item in items if item.rank is not None})
    shown = ",".join(str(rank) for rank in ranks[:8])
    return shown + (f",… ({len(ranks)})" if len(ranks) > 8 else "")


def last_row_wall(run: RunLog, before: LineRef) -> float | None:
    """Wall time of the last row before a line of the same input; None if it carries none."""
    rows = run.readings.filter(
        (pl.col("source") == before.source)
        & (pl.col("offset") < before.offset)
        & pl.col("wall_s").is_not_null()
    )
    value = rows["wall_s"].max() if len(rows) else None
    return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else None
