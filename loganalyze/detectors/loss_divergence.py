"""loss_divergence: the loss ends well above the best it had, by a jump or by a slow creep."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves, is_excerpt
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.running import median, row_medians
from loganalyze.series import Floats, block_test, longest_rise, past_mean, slope, theil_sen
from loganalyze.series_stretches import last_parts, level_before

BLOCKS = 60  # blocks of a long curve; their medians are its shape


class Rise(Struct, frozen=True, kw_only=True):
    """From the best block to the end. onset: point; rise: nat; z: of the difference of means."""

    onset: int
    best: float
    end: float
    z: float
    creep: float  # nat, by a line from the best block to the end; 0.0 where it does not creep
    share: float  # share of the run since the onset
    falling: bool  # whether the loss falls again after the rise

    @property
    def rise(self) -> float:
        """End above best, nat."""
        return self.end - self.best

    @property
    def ratio(self) -> float:
        """End over best."""
        return self.end / self.best if self.best > 0 else 1.0


#: The rule for short logs looks at every place; a log of so many points is none.
_MOST_SHORT = 2000


def run(context: Context) -> list[Finding]:
    """One finding for each curve that ends well above its best."""
    if context.profile == "rl":
        return []
    found = []
    for curve in curves(context):
        long = len(curve.values) - curve.skip >= context.value("loss_divergence.least_points")
        rise = _long_rise(context, curve) if long else None
        severity = _severity(context, rise) if rise is not None else None
        if long and (severity is None or severity[0] == "info"):
            late = _late_rise(context, curve)
            rise, severity = (rise, severity) if late is None else late
        if not long and len(curve.values) <= _MOST_SHORT:
            rise = _short_rise(context, curve)
            severity = _short_severity(context, curve, rise) if rise is not None else None
        if rise is not None and severity is not None:
            found.append(_finding(context, curve, rise, *severity))
    return found


def _long_rise(context: Context, curve: Curve) -> Rise | None:
    values = curve.values[curve.skip :]
    size = max(1, len(values) // BLOCKS)
    count = len(values) // size
    shape = row_medians(values[len(values) - count * size :].reshape(count, size))
    start = len(values) - count * size + curve.skip
    low = int(np.argmin(shape))
    tail = max(2, count // 12)
    if low >= count - 2 * tail:
        return None
    end = median(shape[-tail:])
    best = median(np.sort(shape[max(0, low - 1) : low + 2]))
    onset_block = _onset(shape, low, best, end)
    onset = start + onset_block * size
    before = curve.values[max(start, start + (low - 1) * size) : start + (low + 2) * size]
    after = curve.values[len(curve.values) - tail * size :]
    return Rise(
        onset=onset,
        best=best,
        end=end,
        z=block_test(before, after).z if size >= 3 else _shape_z(shape, low, end - best),
        creep=_creep(
            shape[low:],
            curve.values[start + low * size :],
            context.value("loss_divergence.z"),
        ),
        share=(count - onset_block) / count,
        falling=_falls_again(shape[onset_block:], best),
    )


def _late_rise(context: Context, curve: Curve) -> tuple[Rise, tuple[Severity, Threshold]] | None:
    """A rise over too little of the run to show in its shape: the last part by itself, then the
    last part of that, as long as it has enough records.

    What ends where it, or a longer part, began (see level_before) has come back from something
    lower: no rise.
    """
    th = context.thresholds
    values, level = curve.values, -np.inf
    share, least = th.value("late.part"), int(th.value("late.points"))
    for first in last_parts(len(values), share, least):
        part = replace(
            curve, at=curve.at[first:], values=values[first:], y=curve.y[first:], skip=0
        )  # fmt: skip
        level = max(level, level_before(values, first))
        rise = _long_rise(context, part)
        new = rise is not None and rise.end - level >= th.value("late.new") * rise.rise
        decided = _late_severity(context, part, rise) if rise is not None and new else None
        if rise is not None and decided is not None:
            onset = first + rise.onset
            told = (len(values) - onset) / len(values)
            return replace(rise, onset=onset, share=told, creep=0.0), decided
    return None


def _late_severity(
    context: Context, part: Curve, rise: Rise
) -> tuple[Severity, Threshold] | None:
    """Half a nat and a fifth; less only where it has lasted longer than spikes take to heal."""
    th = context.thresholds
    if rise.z < th.value("loss_divergence.z"):
        return None
    lasted = int(part.steps[-1] - part.steps[rise.onset])
    lasting = lasted >= th.value("late.steps")
    if rise.rise >= th.value("loss_divergence.nat_critical") and rise.ratio >= th.value(
        "loss_divergence.ratio_critical"
    ):
        grave = lasting and not rise.falling
        return ("critical" if grave else "warning"), th["loss_divergence.nat_critical"]
    high = rise.ratio >= th.value("loss_divergence.ratio_mix")
    if high and rise.rise >= th.value("loss_divergence.nat_warning") and lasting:
        return ("info" if rise.falling else "warning"), th["late.steps"]
    return None


def _onset(shape: Floats, low: int, best: float, end: float) -> int:
    """The block after the last one that is still within a quarter of the rise."""
    near = np.flatnonzero(shape[low:] <= best + 0.25 * (end - best))
    return min(low + int(near[-1]) + 1, len(shape) - 1)


def _shape_z(shape: Floats, low: int, rise: float) -> float:
    """Rise over the usual distance of neighbouring blocks, where blocks are single points."""
    usual = 1.4826 * median(np.abs(np.diff(shape))) / np.sqrt(2.0)
    return rise / max(float(usual), 1e-9)


def _creep(shape: Floats, values: Floats, z: float) -> float:
    """Rise of a line through all points since the best block, if both halves rise by themselves.

    0.0 where the line's slope lies within z standard errors of none.
    """
    half = len(shape) // 2
    if half < 6 or len(values) < 60:
        return 0.0
    times = np.arange(len(shape), dtype=np.float64)
    halves = theil_sen(times[:half], shape[:half]), theil_sen(times[half:], shape[half:])
    fit = slope(np.arange(len(values), dtype=np.float64), values)
    return fit.slope * len(values) if min(halves) > 0 and fit.z > z else 0.0


def _falls_again(rest: Floats, best: float) -> bool:
    """Whether the blocks after the first third of the rise take a quarter of it back, by a line."""
    part = rest[len(rest) // 3 :]
    if len(part) < 5:
        return False
    fit = slope(np.arange(len(part), dtype=np.float64), part)
    return fit.z < -3.0 and fit.slope * len(part) < -0.25 * (median(part[:3]) - best)


def _severity(context: Context, rise: Rise) -> tuple[Severity, Threshold] | None:
    th = context.thresholds
    slow = rise.creep >= th.value("loss_divergence.creep_nat")
    if rise.z < th.value("loss_divergence.z"):
        return ("warning", th["loss_divergence.creep_nat"]) if slow else None
    lasting = rise.share >= th.value("loss_divergence.lasting_share")
    if rise.rise >= th.value("loss_divergence.nat_critical") and rise.ratio >= th.value(
        "loss_divergence.ratio_critical"
    ):
        return ("warning" if rise.falling else "critical"), th["loss_divergence.nat_critical"]
    high = rise.ratio >= th.value("loss_divergence.ratio_warning")
    if high and rise.rise >= th.value("loss_divergence.nat_warning") and lasting:
        mild = rise.falling and rise.ratio < th.value("loss_divergence.ratio_mix")
        return ("info" if mild else "warning"), th["loss_divergence.ratio_warning"]
    if slow:
        return "warning", th["loss_divergence.creep_nat"]
    if rise.rise >= th.value("loss_divergence.creep_nat"):
        return "info", th["loss_divergence.creep_nat"]
    return None


def _short_rise(context: Context, curve: Curve) -> Rise | None:
    """A short log: all points after some place lie above the two before it.

    Three points after it at least, or two at twice the height; one point before it is enough in
    an excerpt. The place with the largest rise is taken.
    """
    values = curve.values
    least = 1 if is_excerpt(context, curve.track) else 2
    best: Rise | None = None
    for at in range(least, len(values) - 1):
        before, after = values[max(0, at - 2) : at], values[at:]
        ratio = float(median(after) / median(before)) if before.min() > 0 else 0.0
        sure = ratio >= 2.0 or (len(after) >= 3 and len(before) >= 2)
        if not sure or after.min() <= before.max() * context.value("loss_divergence.short_gap"):
            continue
        rise = Rise(
            onset=at, best=median(before), end=median(after), z=0.0,
            creep=0.0, share=len(after) / len(values), falling=False,
        )  # fmt: skip
        if best is None or rise.ratio > best.ratio:
            best = rise
    return best


def _short_severity(
    context: Context, curve: Curve, rise: Rise
) -> tuple[Severity, Threshold] | None:
    th = context.thresholds
    if rise.ratio < th.value("loss_divergence.short_ratio"):
        return None
    least = (
        "loss_divergence.nat_warning"
        if _norm_rises(context, curve, rise)
        else ("loss_divergence.short_nat")
    )
    if rise.rise < th.value(least):
        return None
    huge = rise.rise >= 2 * th.value("loss_divergence.nat_critical")
    return ("critical" if huge else "warning"), th["loss_divergence.short_ratio"]


def _norm_rises(context: Context, curve: Curve, rise: Rise) -> bool:
    """Whether the gradient norm is ten times higher after the place than before."""
    step = curve.steps[rise.onset]
    for track in context.tracks("grad_norm"):
        good = np.isfinite(track.values) & (track.values > 0)
        before = track.values[good & (track.steps < step)]
        after = track.values[good & (track.steps >= step)]
        if track.segment == curve.track.segment and len(before) and len(after):
            factor = context.value("grad_explosion.ratio_warning")
            return bool(median(after) > factor * median(before))
    return False


def _finding(
    context: Context, curve: Curve, rise: Rise, severity: Severity, decided: Threshold
) -> Finding:
    low = int(np.argmin(curve.values[: max(rise.onset, 1)]))
    last = len(curve.values) - 1
    peak = rise.onset + int(np.argmax(curve.values[rise.onset :]))
    return finding(
        "loss_divergence",
        severity,
        track=curve.track,
        first=int(curve.steps[rise.onset]),
        last=int(curve.steps[last]),
        peak=int(curve.steps[peak]),
        statistics={
            "best": rise.best,
            "end": rise.end,
            "rise_nat": rise.rise,
            "ratio": rise.ratio,
            "z": rise.z,
            "share_of_run": rise.share,
            "creep_nat": rise.creep,
        },
        threshold=decided,
        rules=_seed_rules(context, curve, rise),
        evidence=(
            point(context, curve.track, int(curve.at[low]), "loss_best", unit="nat"),
            point(context, curve.track, int(curve.at[rise.onset]), "loss_onset", unit="nat"),
            point(
                context, curve.track, int(curve.at[last]), "loss_end", unit="nat",
                expected=f"{rise.best:.4g}",
            ),
        ),
    )  # fmt: skip


def _seed_rules(context: Context, curve: Curve, rise: Rise) -> tuple[Threshold, ...]:
    """Seed A's fifty rising steps, on the mean of 100 points (on raw points it never fires)."""
    mean = past_mean(curve.values[max(0, rise.onset - 100) :], 100)
    first, last = longest_rise(mean[np.isfinite(mean)])
    if last - first >= context.value("seed.loss_rising_steps"):
        return (context.thresholds["seed.loss_rising_steps"],)
    return ()


DETECTOR = Detector(name="loss_divergence", kinds=("loss_divergence",), needs=(("loss",),), run=run)
