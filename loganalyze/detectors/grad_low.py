"""grad_vanishing, grad_oscillation: a norm that is gone, or wild without a burst."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.grad_common import Norms, norms
from loganalyze.detectors.loss_common import curves
from loganalyze.model import Finding
from loganalyze.running import median
from loganalyze.series import past_median, stretches


def vanishing(context: Context) -> list[Finding]:
    """A norm of exactly zero on several lines, or below 0.001 for a hundred steps."""
    found = []
    for norm in norms(context):
        zero = _zeros(context, norm)
        found += zero or _small(context, norm)
    return found


def _zeros(context: Context, norm: Norms) -> list[Finding]:
    track = norm.track
    zero = track.values == 0.0
    wired = np.any(track.values != 0.0)  # NaN counts: somebody measures it
    if not zero.any() or not wired:
        return []
    least = int(context.value("grad_vanishing.zero_points"))
    parts = [(a, b) for a, b in stretches(zero) if b - a + 1 >= least and a > 0]
    if not parts:
        return []
    first, last = parts[0][0], parts[-1][1]
    lasts = last >= len(zero) - 2 and last - first + 1 >= 2 * least
    return [
        finding(
            "grad_vanishing",
            "critical" if lasts else "warning",
            track=track,
            first=int(track.steps[first]),
            last=int(track.steps[last]),
            peak=int(track.steps[first]),
            statistics={"zero_points": int(zero.sum()), "points": len(zero)},
            threshold=context.thresholds["grad_vanishing.zero_points"],
            evidence=(
                point(context, track, first - 1, "norm_before"),
                point(context, track, first, "norm_low"),
            ),
        )
    ]


def _small(context: Context, norm: Norms) -> list[Finding]:
    rule = context.thresholds["seed.grad_norm_low"]
    low = norm.values < rule.value
    for first, last in stretches(low, gap=2):
        span = int(norm.steps[last] - norm.steps[first]) + norm.track.interval
        if span < context.value("grad_vanishing.steps") or last - first < 4:
            continue
        if _learnt(context, norm, first, last):
            continue
        return [
            finding(
                "grad_vanishing",
                "warning",
                track=norm.track,
                first=int(norm.steps[first]),
                last=int(norm.steps[last]),
                peak=int(norm.steps[first + int(np.argmin(norm.values[first : last + 1]))]),
                statistics={
                    "lowest": float(norm.values[first : last + 1].min()), "span_steps": span,
                },
                threshold=rule,
                rules=(rule, context.thresholds["seed.grad_norm_healthy_low"]),
                evidence=(
                    point(context, norm.track, int(norm.at[first]), "norm_low"),
                    point(context, norm.track, int(norm.at[last]), "norm_low"),
                ),
            )
        ]  # fmt: skip
    return []


def _learnt(context: Context, norm: Norms, first: int, last: int) -> bool:
    """Whether the loss of that stretch is so low that nothing is left to learn."""
    limit = context.value("grad_vanishing.learnt_nat")
    for curve in curves(context):
        if curve.track.segment == norm.track.segment:
            a, b = np.searchsorted(curve.steps, (norm.steps[first], norm.steps[last] + 1))
            part = curve.values[a:b]
            if len(part):
                return bool(median(part) < limit)
    return False


def oscillation(context: Context) -> list[Finding]:
    """Many points far above the running median, without one burst that explains them: a note."""
    found = []
    for norm in norms(context):
        least = int(context.value("grad_oscillation.points"))
        values = norm.values[norm.skip :]
        if len(values) < least:
            continue
        ratio = values / past_median(values, 51)
        high = ratio > context.value("grad_explosion.ratio_info")
        share = float(high[least // 2 :].mean())
        if share < context.value("grad_oscillation.share"):
            continue
        where = np.flatnonzero(high) + norm.skip
        first, last, peak = int(where[0]), int(where[-1]), int(where[np.argmax(ratio[high])])
        found.append(
            finding(
                "grad_oscillation",
                "info",
                track=norm.track,
                first=int(norm.steps[first]),
                last=int(norm.steps[last]),
                peak=int(norm.steps[peak]),
                statistics={"share_above": share, "points_above": int(high.sum())},
                threshold=context.thresholds["grad_oscillation.share"],
                evidence=(point(context, norm.track, int(norm.at[peak]), "norm_peak"),),
            )
        )
    return found


VANISHING = Detector(
    name="grad_vanishing", kinds=("grad_vanishing",), needs=(("grad_norm",),), run=vanishing
)
OSCILLATION = Detector(
    name="grad_oscillation", kinds=("grad_oscillation",), needs=(("grad_norm",),), run=oscillation
)
