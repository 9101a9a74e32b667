"""Checkpoints and restarts: failed or unfinished saves, resumes, and the work they cost."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.life_events import (
    Attempt,
    Happening,
    attempts,
    happenings,
    planned_steps,
    progress_rows,
)
from loganalyze.detectors.speed_series import paces
from loganalyze.model import Evidence, Finding, LineRef, Segment, Severity
from loganalyze.reruns import Rerun, rerun
from loganalyze.running import median
from loganalyze.tracks import row_ref

_SAVE = ("checkpoint_save_begin", "checkpoint_save_end")


def detect_saves(context: Context) -> list[Finding]:
    """checkpoint_failed, checkpoint_incomplete, restart and work_lost."""
    saves = happenings(context, _SAVE)
    return [
        *_failed(context, saves),
        *_incomplete(context, saves),
        *_restarts(context),
        *_lost_tail(context, saves),
    ]


# -- failed and unfinished saves ------------------------------------------------------------


def _failed(context: Context, saves: Sequence[Happening]) -> list[Finding]:
    """One finding a segment with failed saves; critical while no later save was confirmed."""
    events = happenings(context, ("checkpoint_failed", "disk_full"))
    by_segment: dict[int, list[Happening]] = {}
    for item in events:
        by_segment.setdefault(item.segment, []).append(item)
    found = []
    for segment, own in by_segment.items():
        last = own[-1]
        saved = any(s.kind == _SAVE[1] and s.place > last.place for s in saves)
        made = finding(
            "checkpoint_failed",
            "warning" if saved or last.followed else "critical",
            first=own[0].step,
            last=last.step,
            statistics={"events": len(own), "saved_later": int(saved)},
            evidence=tuple(item.evidence("life_save_failed") for item in own[:3]),
        )
        found.append(replace(made, segment=segment))
    return found


def _incomplete(context: Context, saves: Sequence[Happening]) -> list[Finding]:
    """Saves that were begun and never confirmed, where this log can tell."""
    confirmed = {item.step for item in saves if item.kind == _SAVE[1]}
    begins: dict[int | None, Happening] = {}
    for item in saves:
        if item.kind == _SAVE[0]:
            begins[item.step] = item
    open_saves = [item for step, item in begins.items() if step not in confirmed]
    if not open_saves:
        return []
    habit = len(confirmed & set(begins)) / len(begins)
    confirms = habit >= context.value("checkpoint_incomplete.habit")
    found = []
    for item in open_saves:
        torn = _ends_here(context, item) and (confirms or len(begins) == 1)
        if torn or (confirms and not _rows_follow(context, item)):
            found.append(_unfinished(context, item, "warning", habit, torn))
        elif confirms:
            found.append(_unfinished(context, item, "info", habit, torn))
    return found


def _ends_here(context: Context, item: Happening) -> bool:
    """Whether the input ends within a few lines of the save's own, before the planned end."""
    lines = context.run.sources[item.ref.source].account.lines
    planned = planned_steps(context.run)
    unfinished = item.step is None or planned is None or item.step < planned
    return unfinished and lines - item.ref.line <= context.value("checkpoint_incomplete.tail_lines")


def _rows_follow(context: Context, item: Happening) -> bool:
    """Whether the same segment went on after the line."""
    rows = progress_rows(context).filter(
        (pl.col("source") == item.ref.source)
        & (pl.col("offset") > item.ref.offset)
        & (pl.col("segment") == item.segment)
    )
    return len(rows) > 0


def _unfinished(
    context: Context, item: Happening, severity: Severity, habit: float, torn: bool
) -> Finding:
    made = finding(
        "checkpoint_incomplete",
        severity,
        first=item.step,
        last=item.step,
        statistics={"confirmed_share": habit, "log_ends_here": int(torn)},
        threshold=context.thresholds["checkpoint_incomplete.habit"],
        evidence=(item.evidence("life_save_begun"),),
    )
    return replace(made, segment=item.segment)


# -- restarts and lost work -----------------------------------------------------------------


def _restarts(context: Context) -> list[Finding]:
    """One restart for each resumed segment, and the work it did again."""
    found: list[Finding] = []
    for before, segment in zip(
        context.run.meta.segments, context.run.meta.segments[1:], strict=False
    ):
        if segment.relation != "resume":
            continue
        found.append(_restart(context, before, segment))
        if segment.superseded_steps > 0:
            found.append(_superseded(context, before, segment))
    return found


def _restart(context: Context, before: Segment, segment: Segment) -> Finding:
    again = rerun(context.run, segment.index)
    made = finding(
        "restart",
        "info",
        first=segment.first,
        last=max(segment.first, before.last),
        peak=segment.first,
        statistics={
            "stopped_at": before.last,
            "resumed_at": segment.first,
            "superseded_steps": segment.superseded_steps,
            "reason": segment.reason,
            **_compared(again),
        },
        evidence=(*_edge(context, before, segment), *_both_times(context, again)),
    )
    return replace(made, segment=segment.index)


def _compared(again: Rerun | None) -> dict[str, int | str]:
    """What the rows of the steps that were run twice say of each other."""
    if again is None:
        return {}
    return {
        "rerun_metric": again.metric, "rerun_rows": again.common, "rerun_equal": again.equal,
    }  # fmt: skip


def _both_times(context: Context, again: Rerun | None) -> tuple[Evidence, ...]:
    """The step run twice at which both times differ most; nothing where all are equal."""
    if again is None or again.equal == again.common:
        return ()
    return tuple(
        Evidence(label=label, step=again.step, value=value, ref=row_ref(context.run, row))
        for label, value, row in (
            ("life_run_first", again.before, again.row_before),
            ("life_run_again", again.after, again.row_after),
        )
    )


def _edge(context: Context, before: Segment, segment: Segment) -> tuple[Evidence, ...]:
    """The last line before and the first line after a restart, and the load between them."""
    evidence = []
    rows = context.run.readings
    for index, take, label in (
        (before.index, -1, "life_stopped"),
        (segment.index, 0, "life_resumed"),
    ):
        own = rows.filter((pl.col("segment") == index) & pl.col("step").is_not_null())
        if len(own):
            row = own.row(take, named=True)
            ref = LineRef(**{name: row[name] for name in ("source", "line", "offset", "length")})
            evidence.append(
                Evidence(label=label, step=row["step"], value=float(row["step"]), ref=ref)
            )
    return tuple(evidence)


def _superseded(context: Context, before: Segment, segment: Segment) -> Finding:
    seconds = _step_seconds(context)
    severity, share = _loss_severity(context, segment.superseded_steps, before.last, seconds)
    made = finding(
        "work_lost",
        severity,
        first=segment.first,
        last=before.last,
        statistics={
            "lost_steps": segment.superseded_steps,
            "lost_seconds": None if seconds is None else segment.superseded_steps * seconds,
            "lost_share": share,
            "how": "superseded",
        },
        threshold=context.thresholds["work_lost.warning_share"],
        evidence=_edge(context, before, segment),
    )
    return replace(made, segment=segment.index)


def _lost_tail(context: Context, saves: Sequence[Happening]) -> list[Finding]:
    """Steps after the last confirmed save of a run that a failure ended."""
    ended = [a for a in attempts(context) if a.last and not a.clean and _fatal(a)]
    if not ended or not saves or not len(rows := progress_rows(context)):
        return []
    kinds = {item.kind for item in saves}
    done = _SAVE[1] if _SAVE[1] in kinds else _SAVE[0]
    kept = max((s.step for s in saves if s.kind == done and s.step is not None), default=None)
    last = int(rows["step"].to_numpy()[-1])
    if kept is None or last - kept < context.value("work_lost.least_steps"):
        return []
    seconds = _step_seconds(context)
    severity, share = _loss_severity(context, last - kept, last, seconds)
    mover = ended[-1].first_mover()
    made = finding(
        "work_lost",
        severity,
        first=kept + 1,
        last=last,
        statistics={
            "lost_steps": last - kept,
            "lost_seconds": None if seconds is None else (last - kept) * seconds,
            "lost_share": share,
            "last_checkpoint": kept,
            "how": "unsaved",
        },
        threshold=context.thresholds["work_lost.warning_share"],
        evidence=(mover.evidence("life_first_event"),),
    )
    return [replace(made, segment=mover.segment)]


def _fatal(attempt: Attempt) -> bool:
    return attempt.first_mover().becomes != "data_exhausted"


def _loss_severity(
    context: Context, steps: int, upto: int, seconds: float | None
) -> tuple[Severity, float]:
    """A warning if a tenth of the run, or hours of it, have to be done again."""
    share = steps / max(1, upto)
    hours = seconds is not None and steps * seconds >= context.value("work_lost.warning_s")
    many = steps >= context.value("work_lost.warning_steps")
    dear = hours or (many and share >= context.value("work_lost.warning_share"))
    return ("warning" if dear else "info"), share


def _step_seconds(context: Context) -> float | None:
    """Usual seconds of a step; None where none are told. Made once: there may be many restarts."""

    def made() -> float | None:
        known = [median(pace.seconds) for pace in paces(context) if pace.unit == "s" and len(pace)]
        return median(known) if known else None

    return context.once("step seconds", made)


SAVES_AND_RESTARTS = Detector(
    name="restarts",
    kinds=("checkpoint_failed", "checkpoint_incomplete", "restart", "work_lost"),
    needs=(),
    run=detect_saves,
)
