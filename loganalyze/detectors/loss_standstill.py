"""loss_frozen, loss_plateau, loss_too_low, no_learning: a loss that stands still or is gone."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves, is_excerpt
from loganalyze.model import Finding, Severity
from loganalyze.running import centred_median, median
from loganalyze.series import (
    Floats,
    Ints,
    mad_sigma,
    print_quantum,
    repeats,
    stretches,
)


def run(context: Context) -> list[Finding]:
    """At most one finding of each kind for each curve."""
    found: list[Finding] = []
    for curve in curves(context):
        if context.profile == "rl":  # a policy loss may be zero, and says nothing
            continue
        zero = _zero(context, curve)
        frozen = [] if zero else _frozen(context, curve)
        found += zero + frozen
        if not zero and not frozen:
            found += _plateau(context, curve)
            found += _memorised(context, curve)
    return found


def _zero(context: Context, curve: Curve) -> list[Finding]:
    """A loss of exactly zero: no label counted, or a NaN that the trainer printed as 0."""
    least = int(context.value("loss_too_low.zero_points"))
    zero = curve.values == 0.0
    parts = [(a, b) for a, b in stretches(zero, gap=1) if b - a + 1 >= least]
    if not parts and len(zero) >= 2 and zero[-1] and curve.values[0] > 1.0:
        parts = [(len(zero) - 1, len(zero) - 1)]
    if not parts:
        return []
    first, last = parts[0][0], parts[-1][1]
    worst: Severity = "critical" if last - first + 1 >= 10 or first == 0 else "warning"
    return [
        finding(
            kind,
            worst,
            track=curve.track,
            first=int(curve.steps[first]),
            last=int(curve.steps[last]),
            peak=int(curve.steps[first]),
            statistics={"zero_points": int(zero.sum()), "points": len(zero)},
            threshold=context.thresholds["loss_too_low.zero_points"],
            evidence=(point(context, curve.track, int(curve.at[first]), "loss_zero", unit="nat"),),
        )
        for kind in (("loss_too_low", "no_learning") if zero.all() else ("loss_too_low",))
    ]


def _frozen(context: Context, curve: Curve) -> list[Finding]:
    """The same number on every line: nothing is updated, or the printed value is dead."""
    if len(curve.values) < 3:
        return []
    quantum = print_quantum(curve.values)
    digits = np.log10(max(abs(float(curve.values[-1])), 1e-9) / quantum) if quantum else 9.0
    least = context.value("loss_frozen.points" if digits >= 3 else "loss_frozen.coarse_points")
    on_lines = repeats(curve.values)
    if on_lines.max() < least:
        return []
    run_of = _over_steps(curve, on_lines)
    longest = int(np.argmax(run_of))
    count = int(run_of[longest])
    if count < least:
        return []
    first = longest - count + 1
    others = np.delete(run_of, slice(first, longest + 1))
    if len(others) and count < 3 * int(others.max()) and count < 0.5 * len(run_of):
        return []  # a slow curve on the coarse grid of its print
    lasts = count >= context.value("loss_frozen.critical_points") and longest >= len(run_of) - 2
    return [
        finding(
            "loss_frozen",
            "critical" if lasts else "warning",
            track=curve.track,
            first=int(curve.steps[first]),
            last=int(curve.steps[longest]),
            peak=int(curve.steps[first]),
            statistics={"value": float(curve.values[first]), "repeats": count},
            threshold=context.thresholds["loss_frozen.points"],
            evidence=(
                point(context, curve.track, int(curve.at[first]), "loss_onset", unit="nat"),
                point(context, curve.track, int(curve.at[longest]), "loss_end", unit="nat"),
            ),
        )
    ]


def _over_steps(curve: Curve, count: Ints) -> Ints:
    """`count`, how often a value has occurred in a row of lines, with those of one step as one."""
    again = np.concatenate(([False], np.diff(curve.steps) == 0))
    start = np.arange(len(count)) - count + 1
    copies = np.cumsum(again)
    return np.asarray(count - (copies - copies[start]), dtype=np.int64)


def _plateau(context: Context, curve: Curve) -> list[Finding]:
    """From its start the loss has hardly fallen, and stands on a level that knows nothing.

    A flat loss late in a run, or a low one, may be its natural floor: silent.
    """
    n = len(curve.values)
    if n < context.value("loss_plateau.points") or is_excerpt(context, curve.track):
        return []
    if curve.track.segment > 0:
        return []
    part = max(2, n // 10)
    begin = max(curve.skip, min(n // 10, int(np.searchsorted(curve.steps, 100))))
    begin = min(begin, n - part)
    end = median(curve.values[-part:])
    if end < context.value("loss_plateau.level_nat"):
        return []
    start = min(median(curve.values[begin : begin + part]), _early_best(curve.values))
    noise = mad_sigma(np.diff(curve.values[begin:])) / np.sqrt(2.0)
    fall = start - end
    flat = abs(fall) < max(
        context.value("loss_plateau.fall_share") * start, 2.0 * noise / np.sqrt(part)
    )
    if not flat:
        return []
    return [
        finding(
            "loss_plateau",
            "warning",
            track=curve.track,
            first=int(curve.steps[begin]),
            last=int(curve.steps[-1]),
            peak=int(curve.steps[begin]),
            statistics={"start": start, "end": end, "fall_nat": fall, "noise_nat": noise},
            threshold=context.thresholds["loss_plateau.fall_share"],
            evidence=(
                point(context, curve.track, int(curve.at[begin]), "loss_onset", unit="nat"),
                point(context, curve.track, int(curve.at[-1]), "loss_end", unit="nat"),
            ),
        )
    ]


def _early_best(values: Floats) -> float:
    """The lowest median of five neighbours in the first fifth."""
    early = values[: max(5, len(values) // 5)]
    return float(centred_median(early, 5)[2:-2].min())


def _memorised(context: Context, curve: Curve) -> list[Finding]:
    """A loss that ends near zero: memorised or leaked data; usual for some fine-tuning."""
    n = len(curve.values)
    limit = context.value("loss_too_low.nat")
    if n < context.value("loss_too_low.points"):
        return []
    end = median(curve.values[-max(3, n // 20) :])
    if end >= limit and not _val_as_low(context, end):
        return []
    if median(curve.values[: max(3, n // 50)]) < 10 * limit:
        return []
    limit = max(limit, 1.5 * end)
    low = curve.values < limit
    first = _first_lasting(low)
    return [
        finding(
            "loss_too_low",
            "warning" if context.profile == "pretrain" else "info",
            track=curve.track,
            first=int(curve.steps[first]),
            last=int(curve.steps[-1]),
            peak=int(curve.steps[int(np.argmin(curve.values))]),
            statistics={"end": end, "lowest": float(curve.values.min())},
            threshold=context.thresholds["loss_too_low.nat"],
            evidence=(point(context, curve.track, int(curve.at[-1]), "loss_end", unit="nat"),),
        )
    ]


def _val_as_low(context: Context, end: float) -> bool:
    """Whether text that was not trained on is foretold as well as no language can be."""
    most = context.value("loss_too_low.nat_with_val")
    if end >= most or context.profile != "pretrain":
        return False
    known = [t.values[np.isfinite(t.values)] for t in context.tracks("val_loss")]
    return any(len(values) >= 2 and float(values[-1]) < most for values in known)


def _first_lasting(low: np.ndarray) -> int:
    """First point from which at least nine of ten later points are low."""
    share = np.cumsum(low[::-1])[::-1] / np.arange(len(low), 0, -1)
    good = np.flatnonzero(low & (share >= 0.9))
    return int(good[0]) if len(good) else len(low) - 1


DETECTOR = Detector(
    name="loss_standstill",
    kinds=("loss_frozen", "loss_plateau", "loss_too_low", "no_learning"),
    needs=(("loss",),),
    run=run,
)
