"""lr_schedule: a learning rate that jumps at a resume, restarts, or is zero."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import curves, falls, is_excerpt
from loganalyze.model import Evidence, Finding, Severity
from loganalyze.series import stretches
from loganalyze.tracks import Track


def run(context: Context) -> list[Finding]:
    """Breaks of the schedule, one finding each."""
    known = context.tracks("lr")
    found: list[Finding] = []
    for track in known:
        found += _zero(context, track)
        found += _restarts(context, track)
    found += _resumes(context, known)
    return found


def _zero(context: Context, track: Track) -> list[Finding]:
    """Zero for long, elsewhere than at the two ends of the schedule."""
    least = max(context.value("lr_schedule.zero_points"), 0.05 * len(track))
    ends = track.steps[-1] - context.value("start.burst_steps")
    for first, last in stretches(track.values == 0.0):
        if last - first + 1 < least or track.steps[first] >= ends:
            continue
        falling = falls(context, track.segment, int(track.steps[first]), int(track.steps[last]))
        if falling or _rounded(context, track, first):
            return [_printed(context, track, first, last)]
        severity = _zero_severity(context, track, first, last, known=falling is not None)
        made = _state(context, track, first, last, severity, "zero", "lr_schedule.zero_points")
        if not first:  # nothing stands before
            ends = (point(context, track, at, "lr_zero") for at in (first, last))
            made = replace(made, evidence=(*ends, *_losses(context, track, first, last)))
        return [made]
    return []


def _zero_severity(
    context: Context, track: Track, first: int, last: int, *, known: bool
) -> Severity:
    """A tail of zeros is how schedules end; where they fill much of the run, it was for nothing.

    known: whether the loss of these steps was seen.
    """
    share = (last - first + 1) / len(track)
    if share >= 0.9:
        return "critical" if known and not is_excerpt(context, track) else "warning"
    late = first > 0 and last == len(track) - 1
    return "info" if late and share < context.value("lr_schedule.zero_share") else "warning"


def _rounded(context: Context, track: Track, first: int) -> bool:
    """Whether the digits printed end right above the zeros: 0.0002, 0.0001, 0.0000."""
    values = track.values[:first]
    positive = np.unique(values[np.isfinite(values) & (values > 0)])
    if len(positive) < 3 or values[-1] != positive[0]:
        return False
    coarse = positive[0] > context.value("lr_schedule.grid_share") * positive[-1]
    return bool(coarse) and bool(np.diff(positive).min() > 0.99 * positive[0])


def _printed(context: Context, track: Track, first: int, last: int) -> Finding:
    """A note on zeros that are the print's, not the optimizer's, as far as the log can tell."""
    made = _state(context, track, first, last, "info", "zero_printed", "lr_schedule.zero_points")
    told = (made.evidence[0],) if first else ()
    zero = point(context, track, first, "lr_printed_zero")
    return replace(made, evidence=(*told, zero, *_losses(context, track, first, last)))


def _losses(context: Context, track: Track, first: int, last: int) -> list[Evidence]:
    """The loss at both ends of a stretch of the rate; empty where none was logged."""
    same = (c for c in curves(context) if c.track.segment == track.segment)
    curve = next(same, None)
    if curve is None:
        return []
    ends = np.searchsorted(curve.steps, (track.steps[first], track.steps[last]))
    places = [int(curve.at[min(int(end), len(curve.at) - 1)]) for end in ends]
    return [
        point(context, curve.track, at, label, unit="nat")
        for at, label in zip(places, ("loss_onset", "loss_end"), strict=True)
    ]


def _restarts(context: Context, track: Track) -> list[Finding]:
    """The rate leaps up after it had come down: a schedule that starts again."""
    values = track.values
    if len(values) < 20:
        return []
    ratio = context.value("lr_schedule.restart_ratio")
    finite = np.where(np.isfinite(values), values, 0.0)
    up = (values[:-1] > 0) & (finite[1:] > ratio * finite[:-1])
    if not up.any():
        return []
    top = np.maximum.accumulate(np.nan_to_num(values))
    fallen, values = values[:-1] < 0.9 * top[:-1], finite
    hits = np.flatnonzero(up & fallen)
    leaps = [i for i in np.flatnonzero(up & ~fallen) if _leap(values, top, int(i), ratio)]
    if leaps:
        at = int(leaps[0]) + 1
        made = _state(context, track, at, at, "warning", "leap", "lr_schedule.restart_ratio")
        return [made]
    return [
        _state(
            context, track, int(i) + 1, int(i) + 1, "info", "restart", "lr_schedule.restart_ratio"
        )
        for i in hits[:3]
    ]


def _leap(values: np.ndarray, top: np.ndarray, at: int, ratio: float) -> bool:
    """Whether a rate that stood still or fell leaps above all that it ever was."""
    if at < 20:  # a warm-up may double from line to line
        return False
    recent = values[at - 5 : at + 1]
    return bool(values[at + 1] > ratio * top[at] and np.all(np.diff(recent) <= 1e-9 * top[at]))


def _resumes(context: Context, known: tuple[Track, ...]) -> list[Finding]:
    """After a resume the rate must be what it was at that step before."""
    resumed = {s.index for s in context.run.meta.segments if s.relation == "resume"}
    found = []
    for track in known:
        before = [t for t in known if t.segment == track.segment - 1 and t.rank == track.rank]
        if track.segment not in resumed or not before:
            continue
        old = before[0]
        place = min(int(np.searchsorted(old.steps, track.steps[0])), len(old) - 1)
        was, now = float(old.values[place]), float(track.values[0])
        apart = abs(int(old.steps[place]) - int(track.steps[0]))
        if (
            not (np.isfinite(was) and np.isfinite(now))
            or was <= 0
            or now < 0
            or apart > 20 * track.interval
        ):
            continue
        change = abs(now / was - 1.0)
        if change <= context.value("lr_schedule.resume_share"):
            continue
        severity: Severity = (
            "warning" if change > context.value("lr_schedule.resume_warning") else "info"
        )
        item = _state(
            context, track, 0, 0, severity, "resume", "lr_schedule.resume_share", before=was
        )
        found.append(item)
    return found


def _state(
    context: Context, track: Track, first: int, last: int, severity: Severity, shape: str,
    name: str, **more: float,
) -> Finding:  # fmt: skip
    return finding(
        "lr_schedule",
        severity,
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[last]),
        peak=int(track.steps[first]),
        statistics={"shape": shape, "rate": float(track.values[first]), **more},
        threshold=context.thresholds[name],
        evidence=(
            point(context, track, max(first - 1, 0), "lr_before"),
            point(context, track, first, "lr_after"),
        ),
    )


DETECTOR = Detector(name="lr_schedule", kinds=("lr_schedule",), needs=(("lr",),), run=run)
