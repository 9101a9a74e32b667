"""loss_divergence: the loss ends well above the best it had, by a jump or by a slow creep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.series import Floats, block_test, longest_rise, past_mean, slope, theil_sen

BLOCKS = 60  # blocks of a long curve; their medians are its shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """From the best block to the end. onset: point; rise: nat; z: of the difference of means."""

    onset: int
    best: float
    end: float
    z: float
    creeps: bool
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


def run(context: Context) -> list[Finding]:
    """One finding for each curve that ends well above its best."""
    if context.profile == "rl":
        return []
    found = []
    for curve in curves(context):
        long = len(curve.values) - curve.skip >= context.value("loss_divergence.least_points")
        rise = _long_rise(curve) if long else None
        severity = _severity(context, rise) if rise is not None else None
        if not long:
            rise = _short_rise(context, curve)
            severity = _short_severity(context, rise) if rise is not None else None
        if rise is not None and severity is not None:
            found.append(_finding(context, curve, rise, *severity))
    return found


def _long_rise(curve: Curve) -> Rise | None:
    values = curve.values[curve.skip :]
    size = max(1, len(values) // BLOCKS)
    count = len(values) // size
    shape = np.median(values[len(values) - count * size :].reshape(count, size), axis=1)
    start = len(values) - count * size + curve.skip
    low = int(np.argmin(shape))
    tail = max(2, count // 12)
    if low >= count - 2 * tail:
        return None
    end = float(np.median(shape[-tail:]))
    best = float(np.median(np.sort(shape[max(0, low - 1) : low + 2])))
    onset_block = _onset(shape, low, best, end)
    onset = start + onset_block * size
    before = curve.values[max(start, start + (low - 1) * size) : start + (low + 2) * size]
    after = curve.values[len(curve.values) - tail * size :]
    rest = shape[onset_block:]
    half = len(rest) // 2
    times = np.arange(len(rest), dtype=np.float64)
    creeps = (
        half >= 4
        and min(theil_sen(times[:half], rest[:half]), theil_sen(times[half:], rest[half:])) > 0
    )
    return Rise(
        onset=onset,
        best=best,
        end=end,
        z=block_test(before, after).z if size >= 3 else _shape_z(shape, low, end - best),
        creeps=creeps,
        share=(count - onset_block) / count,
        falling=_falls_again(rest),
    )


def _onset(shape: Floats, low: int, best: float, end: float) -> int:
    """The block after the last one that is still within a quarter of the rise."""
    near = np.flatnonzero(shape[low:] <= best + 0.25 * (end - best))
    return min(low + int(near[-1]) + 1, len(shape) - 1)


def _shape_z(shape: Floats, low: int, rise: float) -> float:
    """Rise over the usual distance of neighbouring blocks, where blocks are single points."""
    usual = 1.4826 * float(np.median(np.abs(np.diff(shape)))) / np.sqrt(2.0)
    return rise / max(float(usual), 1e-9)


def _falls_again(rest: Floats) -> bool:
    """Whether the blocks after the first third of the rise fall for good."""
    part = rest[len(rest) // 3 :]
    if len(part) < 5:
        return False
    fit = slope(np.arange(len(part), dtype=np.float64), part)
    return fit.z < -3.0 and fit.slope * len(part) < -0.1 * float(rest.max() - part.min())


def _severity(context: Context, rise: Rise) -> tuple[Severity, Threshold] | None:
    th = context.thresholds
    if rise.z < th.value("loss_divergence.z"):
        return None
    lasting = rise.share >= th.value("loss_divergence.lasting_share")
    if rise.rise >= th.value("loss_divergence.nat_critical") and rise.ratio >= th.value(
        "loss_divergence.ratio_critical"
    ):
        return ("warning" if rise.falling else "critical"), th["loss_divergence.nat_critical"]
    high = rise.ratio >= th.value("loss_divergence.ratio_warning")
    if high and rise.rise >= th.value("loss_divergence.nat_warning") and lasting:
        return ("info" if rise.falling else "warning"), th["loss_divergence.ratio_warning"]
    if rise.creeps and rise.rise >= th.value("loss_divergence.creep_nat") and lasting:
        return "warning", th["loss_divergence.creep_nat"]
    if rise.rise >= th.value("loss_divergence.creep_nat"):
        return "info", th["loss_divergence.creep_nat"]
    return None


def _short_rise(context: Context, curve: Curve) -> Rise | None:
    """A short log: all points after some place lie above the few before it.

    The place with the largest gap is taken; at least two points on each side.
    """
    values = curve.values
    best: Rise | None = None
    for at in range(2, len(values) - 1):
        before, after = values[max(0, at - 4) : at], values[at:]
        if after.min() <= before.max() * 1.02:
            continue
        end = float(np.median(after))
        rise = Rise(
            onset=at, best=float(np.median(before)), end=end, z=0.0, creeps=False,
            share=len(after) / len(values), falling=False,
        )  # fmt: skip
        if best is None or rise.ratio > best.ratio:
            best = rise
    return best


def _short_severity(context: Context, rise: Rise) -> tuple[Severity, Threshold] | None:
    th = context.thresholds
    if rise.ratio < th.value("loss_divergence.short_ratio"):
        return None
    if rise.rise < th.value("loss_divergence.short_nat"):
        return None
    huge = rise.rise >= th.value("loss_divergence.nat_critical") * 2
    return ("critical" if huge else "warning"), th["loss_divergence.short_ratio"]


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
            "creeps": "yes" if rise.creeps else "no",
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
