"""Crashes, time-outs, kills and hangs: one finding for each kind of failure of each attempt."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.life_events import (
    Attempt,
    Happening,
    attempts,
    last_row_wall,
    ranks_of,
)
from loganalyze.detectors.speed_series import paces
from loganalyze.model import Evidence, Finding, Severity

_SHOWN = 3  # lines of echoes that go into the evidence
_NO_END = "no_exit_record"  # the rule of the trackers' parsers
#: Xid codes of the vendor's catalogue that a running job survives (corrected or retired memory).
_CORRECTED_XIDS = frozenset({63, 92, 94})


def detect_failures(context: Context) -> list[Finding]:
    """crash, oom, comm_timeout, hardware_error, killed, data_exhausted and hang, from events."""
    found: list[Finding] = []
    for attempt in attempts(context):
        found += _attempt(context, attempt)
    return found or _unsaid_end(context)


def _unsaid_end(context: Context) -> list[Finding]:
    """A tracker's log that never says how the run ended: killed, or copied while it ran."""
    found = []
    for problem in context.run.problems:
        if problem.rule == _NO_END:
            evidence = Evidence(label="life_no_end", value=problem.message[:300], ref=problem.ref)
            last = context.run.readings["step"].max()
            step = int(last) if isinstance(last, int) else None
            found.append(finding("killed", "info", first=step, last=step, evidence=(evidence,)))
    return found[:1]


def _attempt(context: Context, attempt: Attempt) -> list[Finding]:
    """The first mover with its full severity, everything that followed from it as a note."""
    mover = attempt.first_mover()
    by_kind: dict[str, list[Happening]] = {}
    for item in attempt.failures:
        by_kind.setdefault(item.becomes, []).append(item)
    found = [
        _failure(context, attempt, kind, own, mover)
        for kind, own in by_kind.items()
        if not _same_line(own, mover, kind)
    ]
    silence = _silence(context, attempt)
    return found + ([silence] if silence is not None and "hang" not in by_kind else [])


def _same_line(own: Sequence[Happening], mover: Happening, kind: str) -> bool:
    """Whether another kind's events only repeat the first mover's own line or traceback."""
    if mover.becomes == kind:
        return False
    return kind == "crash" and all(item.place >= mover.place for item in own)


def _failure(
    context: Context, attempt: Attempt, kind: str, own: Sequence[Happening], mover: Happening
) -> Finding:
    leads = mover.becomes == kind
    first = mover if leads else own[0]
    severity = _severity(attempt, kind, own, leads)
    if kind == "killed" and _planned(context, own):
        severity = "info"
    step = first.step
    others = [item for item in own if item is not first][:_SHOWN]
    evidence = [first.evidence("life_first_event")]
    evidence += [item.evidence("life_echo") for item in others]
    if not leads:
        evidence.append(mover.evidence("life_first_mover"))
    made = finding(
        kind,
        severity,
        first=step,
        last=step,
        peak=step,
        statistics={
            "event": first.kind,
            "signature": _text(first.detail.get("signature")),
            "echoes": len(own) - 1,
            "ranks": ranks_of(own),
            "first_mover": int(leads),
            "follows_from": "" if leads else mover.becomes,
            "ended_the_run": int(attempt.last and not attempt.clean),
            "after_clean_end": int(attempt.clean),
        },
        evidence=tuple(evidence),
    )
    return replace(made, segment=first.segment, rank=first.rank if leads else None)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _severity(attempt: Attempt, kind: str, own: Sequence[Happening], leads: bool) -> Severity:
    if attempt.clean or not leads:
        return "info"
    if kind == "data_exhausted":
        return (
            "info" if not any(item.kind == "exception" for item in attempt.failures) else "warning"
        )
    if all(_harmless(item) for item in own):
        return "info"
    if kind == "killed":
        return _killed_severity(attempt, own)
    if attempt.last:
        return "critical"
    return "info" if kind == "crash" and _went_on(attempt) else "warning"


def _killed_severity(attempt: Attempt, own: Sequence[Happening]) -> Severity:
    """The host's memory killer is a fault; a scheduler's stop is somebody's will."""
    if any(item.kind == "host_oom" for item in own):
        return "critical" if attempt.last else "warning"
    return "warning" if not _went_on(attempt) else "info"


def _planned(context: Context, own: Sequence[Happening]) -> bool:
    """Whether a time limit ended an attempt that a later one resumed: chained jobs do so."""
    later = [s.index for s in context.run.meta.segments if s.relation == "resume"]
    return bool(later) and all(
        item.kind == "time_limit" and item.segment < max(later) for item in own
    )


def _went_on(attempt: Attempt) -> bool:
    """Whether training went on in the same input, right after the failure's lines."""
    return all(item.followed for item in attempt.failures)


def _harmless(item: Happening) -> bool:
    """Whether the signature itself (or, without one, the vendor's catalogue) calls it a note."""
    told = item.detail.get("severity")
    if told is not None:
        return bool(told == "info")
    code = str(item.detail.get("xid", item.detail.get("code", "")))
    return item.kind == "xid" and code.isdecimal() and int(code) in _CORRECTED_XIDS


def _silence(context: Context, attempt: Attempt) -> Finding | None:
    """A long gap of the clock between the last step and the failure: the run had hung."""
    first = attempt.failures[0]
    if attempt.clean or first.wall_s is None or not first.has_row_before:
        return None
    before = last_row_wall(context.run, first.ref)
    usual = max((float(p.seconds.mean()) for p in paces(context) if p.unit == "s"), default=0.0)
    least = context.thresholds["hang.silence_s"]
    if before is None or not usual:
        return None
    gap = first.wall_s - before
    if gap < max(least.value, usual * context.value("hang.silence_steps")):
        return None
    made = finding(
        "hang",
        "info",
        first=first.step,
        last=first.step,
        statistics={"silent_seconds": gap, "usual_time": usual},
        threshold=least,
        evidence=(
            Evidence(label="life_silence", step=first.step, value=gap, unit="s", ref=first.ref),
        ),
    )
    return replace(made, segment=first.segment)


FAILURE_EVENTS = Detector(
    name="failures",
    kinds=("crash", "oom", "comm_timeout", "hardware_error", "killed", "data_exhausted", "hang"),
    needs=(),
    run=detect_failures,
)
