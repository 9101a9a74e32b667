"""A run beside what healthy runs taught: what is normal there, and what only they show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from loganalyze.detectors.base import Context, finding, point
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.detectors.normal import (
    LEAST,
    METRICS,
    Normal,
    Phase,
    Speed,
    longest_pace,
    slope_of,
    speed_of,
)
from loganalyze.detectors.speed_series import pace_point
from loganalyze.model import Finding, Threshold
from loganalyze.series_trend import noise

_OSCILLATION = {"loss": "loss_oscillation", "grad_norm": "grad_oscillation"}
_RISES = {"loss_spike": "loss", "grad_explosion": "grad_norm"}


def against(context: Context, normals: Sequence[Normal], found: Sequence[Finding]) -> list[Finding]:
    """The findings, judged against healthy runs, and those that only the comparison shows."""
    judged = [_judged(context, normals, item) for item in found]
    for metric in METRICS:
        known = [curve for curve in curves(context, metric) if curve.log]
        if known:
            curve = max(known, key=lambda one: len(one.at))
            judged += _noisier(context, normals, curve) + _slower_fall(context, normals, curve)
    return judged + _slower(context, normals)


def learnt(normals: Sequence[Normal]) -> tuple[Threshold, ...]:
    """What was learnt as effective values, with the run that it came from."""
    made = []
    for normal in normals:
        for metric, phases in normal.phases.items():
            for phase in phases:
                told = f"{normal.name}, steps {phase.first}-{phase.last}"
                for value, unit in (("noise", "log"), ("reach", "log"), ("slope", "log/e-fold")):
                    name = f"baseline.{metric}_{phase.name}_{value}"
                    made.append(_threshold(name, getattr(phase, value), unit, told))
        if normal.speed is not None:
            speed, unit = normal.speed, normal.speed.unit if normal.speed.unit == "s" else "1"
            made.append(
                _threshold(f"baseline.{speed.metric}_median", speed.median, unit, normal.name)
            )
            made.append(_threshold("baseline.p95_p50", speed.p95_p50, "1", normal.name))
    return tuple(made)


def _threshold(name: str, value: float, unit: str, told: str) -> Threshold:
    return Threshold(name=name, value=value, unit=unit, source=f"learnt from the baseline {told}")


def _limit(name: str, value: float, unit: str, normals: Sequence[Normal]) -> Threshold:
    return _threshold(name, value, unit, ", ".join(normal.name for normal in normals))


# -- findings that the run has by itself -----------------------------------------------------


def _judged(context: Context, normals: Sequence[Normal], item: Finding) -> Finding:
    if item.kind in _RISES:
        return _rise(context, normals, item)
    speeds = [normal.speed for normal in normals if normal.speed is not None]
    if item.kind == "throughput_variance" and speeds and item.severity != "info":
        usual = max(speed.p95_p50 for speed in speeds)
        if float(item.statistics["p95_p50"] or 0.0) <= usual:
            limit = _limit("baseline.p95_p50", usual, "1", normals)
            return replace(item, severity="info", threshold=limit)
    return item


def _rise(context: Context, normals: Sequence[Normal], item: Finding) -> Finding:
    """A spike beside the noise of healthy runs in the same phase: usual there, or rare."""
    metric = _RISES[item.kind]
    phases = [p for n in normals if (p := n.phase(metric, item.step_first or 0)) is not None]
    ratio = float(item.statistics.get("ratio") or 0.0)
    if not phases or ratio <= 1.0:
        return item
    rise = float(np.log(ratio))
    reach, sigma = max(p.reach for p in phases), max(p.noise for p in phases)
    told = {**item.statistics, "baseline_reach": reach, "baseline_z": rise / max(sigma, 1e-9)}
    limit = _limit(f"baseline.{metric}_{phases[0].name}_reach", reach, "log", normals)
    if item.severity != "info" and rise <= reach:
        return replace(item, severity="info", statistics=told, threshold=limit)
    rare = rise > context.value("baseline.reach_factor") * reach
    far = rise > context.value("loss_spike.z_warning") * sigma
    high = float(item.statistics.get("rise_nat") or 0.0) >= context.value("loss_spike.nat_warning")
    if item.kind == "loss_spike" and item.severity == "info" and rare and far and high:
        return replace(item, severity="warning", statistics=told, threshold=limit)
    return replace(item, statistics=told)


# -- what only the comparison shows ----------------------------------------------------------


def _pairs(normals: Sequence[Normal], curve: Curve) -> list[tuple[Phase, np.ndarray]]:
    """Phases of healthy runs that this curve covers for the most part, and its points in them."""
    pairs = []
    for normal in normals:
        for phase in normal.phases.get(curve.track.metric, ()):
            at = np.flatnonzero((curve.steps >= phase.first) & (curve.steps <= phase.last))
            if len(at) < LEAST:
                continue
            covered = curve.steps[at[-1]] - curve.steps[at[0]]
            if covered >= 0.7 * (phase.last - phase.first):
                pairs.append((phase, at))
    return pairs


def _by_phase(normals: Sequence[Normal], curve: Curve) -> dict[str, list[tuple[Phase, np.ndarray]]]:
    by_name: dict[str, list[tuple[Phase, np.ndarray]]] = {}
    for phase, at in _pairs(normals, curve):
        by_name.setdefault(phase.name, []).append((phase, at))
    return by_name


def _noisier(context: Context, normals: Sequence[Normal], curve: Curve) -> list[Finding]:
    """Noise from point to point of a phase beside the noisiest healthy run."""
    for name, pairs in _by_phase(normals, curve).items():
        usual, at = max(phase.noise for phase, _ in pairs), pairs[0][1]
        own, factor = noise(curve.y[at]), context.value("baseline.noise_factor")
        if usual > 0 and own > factor * usual and own > context.value("baseline.noise_least"):
            limit = _limit(f"baseline.{curve.track.metric}_{name}_noise", usual, "log", normals)
            stats: dict[str, float | int | str | None] = {
                "noise_share": own,
                "baseline_noise": usual,
            }
            return [_over(context, _OSCILLATION[curve.track.metric], curve, at, stats, limit)]
    return []


def _slower_fall(context: Context, normals: Sequence[Normal], curve: Curve) -> list[Finding]:
    """A loss that falls far more slowly in a phase than every healthy run did."""
    if curve.track.metric != "loss":
        return []
    for name, pairs in _by_phase(normals, curve).items():
        phase, at = max(pairs, key=lambda pair: pair[0].slope)
        span = float(np.log(max(phase.last, 2) / max(phase.first, 1)))
        own = slope_of(curve.steps[at], curve.y[at])
        lacking = (own.low - phase.slope_high) * span
        slow = own.low > context.value("baseline.slope_share") * phase.slope
        if phase.slope < 0 and slow and lacking > context.value("baseline.fall_nat"):
            limit = _limit(f"baseline.loss_{name}_slope", phase.slope, "log/e-fold", normals)
            stats: dict[str, float | int | str | None] = {
                "slope": own.slope, "slope_low": own.low, "slope_high": own.high,
                "baseline_slope": phase.slope,
            }  # fmt: skip
            return [_over(context, "loss_plateau", curve, at, stats, limit)]
    return []


def _over(
    context: Context, kind: str, curve: Curve, at: np.ndarray,
    stats: dict[str, float | int | str | None], limit: Threshold,
) -> Finding:  # fmt: skip
    first, last = int(at[0]), int(at[-1])
    return finding(
        kind, "warning", track=curve.track,
        first=int(curve.steps[first]), last=int(curve.steps[last]), peak=int(curve.steps[last]),
        statistics=stats, threshold=limit,
        evidence=(
            point(context, curve.track, int(curve.at[first]), "value_begin"),
            point(context, curve.track, int(curve.at[last]), "value_end"),
        ),
    )  # fmt: skip


def _slower(context: Context, normals: Sequence[Normal]) -> list[Finding]:
    """Steps that take longer than in every healthy run, from the first to the last."""
    pace = longest_pace(context)
    own = None if pace is None else speed_of(context, pace)
    if pace is None or own is None:
        return []
    known = [s for n in normals if (s := n.speed) is not None and s.metric == own.metric]
    if not known:
        return []
    usual = max(known, key=lambda speed: speed.median)
    excess = own.median / usual.median - 1.0
    severity = _slow_severity(context, excess, own, usual, len(pace))
    if severity is None:
        return []
    first, last = pace.span(0, len(pace))
    return [
        finding(
            "throughput_drop", "warning" if severity else "info", metric=pace.metric,
            first=first, last=last, peak=int(pace.steps[int(np.argmax(pace.seconds))]),
            statistics={
                "usual_time": usual.median, "slow_time": own.median, "excess_share": excess,
                "records": len(pace),
            },
            threshold=_limit(f"baseline.{usual.metric}_median", usual.median, usual.unit, normals),
            evidence=(pace_point(context, pace, len(pace) - 1, "speed_end"),),
        )
    ]  # fmt: skip


def _slow_severity(
    context: Context, excess: float, own: Speed, usual: Speed, count: int
) -> bool | None:
    """True: a warning; False: a note; None: within the noise, or too little to say."""
    error = 1.2533 * float(np.hypot(own.noise, usual.noise)) / np.sqrt(count)  # of two medians
    if np.log1p(excess) < context.value("throughput_drop.z") * error:
        return None
    if excess >= context.value("throughput_drop.warning_share"):
        return True
    return False if excess >= context.value("throughput_drop.info_share") else None
