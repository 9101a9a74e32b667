"""What normal looks like, learnt from a healthy run: noise, spread and slope by phase, speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from loganalyze.detectors.base import Context
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.detectors.speed_series import Pace, paces
from loganalyze.model import Finding
from loganalyze.plain_data import as_dict
from loganalyze.running import centred_median, median, row_medians
from loganalyze.series import Bools, Floats
from loganalyze.series_trend import Slope, noise, theil_sen

WINDOW = 101  # points of the running median that spread is measured around
LEAST = 40  # points of a phase that is learnt or judged
FALLEN = 0.8  # share of the fall of the loss at which the fast fall ends
BLOCKS = 60
WARM_UP = 0.01  # share of the steps held for the warm-up where no learning rate was logged


class Phase(Struct, frozen=True, kw_only=True):
    """Steps [first, last] of a metric: warm_up, fast_fall or plateau.

    noise: robust deviation from point to point, log; reach: largest rise over the running median,
    log; slope, slope_low, slope_high: change of the log for each e-fold of steps, with its 95 %
    interval.
    """

    name: str
    first: int
    last: int
    points: int
    noise: float
    reach: float
    slope: float
    slope_low: float
    slope_high: float


class Speed(Struct, frozen=True, kw_only=True):
    """Time of a step: median, noise from step to step (log), and p95 over p50."""

    metric: str
    unit: str
    median: float
    noise: float
    p95_p50: float


class Normal(Struct, frozen=True, kw_only=True):
    """One healthy run. name: as the user named it; left_out: findings that did not count."""

    name: str
    phases: dict[str, tuple[Phase, ...]]  # of loss and grad_norm
    speed: Speed | None
    left_out: int = 0

    def phase(self, metric: str, step: int) -> Phase | None:
        """The phase of a metric in which a step stands; the last one for all later steps."""
        known = [phase for phase in self.phases.get(metric, ()) if phase.first <= step]
        return known[-1] if known else None


METRICS = ("loss", "grad_norm")


def learn(context: Context, name: str, findings: Sequence[Finding]) -> Normal:
    """What is normal in a run; stretches with a finding of warning or worse are left out."""
    bad = [item for item in findings if item.severity != "info"]
    phases = {}
    for metric in METRICS:
        known = [curve for curve in curves(context, metric) if curve.log]
        if known:
            curve = max(known, key=lambda one: len(one.at))
            phases[metric] = _phases(context, curve, _good(curve, bad))
    pace = longest_pace(context)
    speed = None if pace is None else speed_of(context, pace)
    return Normal(name=name, phases=phases, speed=speed, left_out=len(bad))


def _good(curve: Curve, bad: Sequence[Finding]) -> Bools:
    """Points of a curve that no finding about its metric covers."""
    good = np.ones(len(curve.at), dtype=bool)
    good[: curve.skip] = False
    for item in bad:
        if item.metric in (curve.track.metric, None) and item.step_first is not None:
            last = item.step_first if item.step_last is None else item.step_last
            good[(curve.steps >= item.step_first) & (curve.steps <= last)] = False
    return good


def _phases(context: Context, curve: Curve, good: Bools) -> tuple[Phase, ...]:
    edges = _edges(context, curve)
    rise = curve.y - centred_median(curve.y, min(WINDOW, len(curve.y)) | 1)
    made = []
    for name, first, last in edges:
        inside = good & (curve.steps >= first) & (curve.steps <= last)
        if inside.sum() < LEAST:
            continue
        line = slope_of(curve.steps[inside], curve.y[inside])
        made.append(
            Phase(
                name=name, first=first, last=last, points=int(inside.sum()),
                noise=noise(curve.y[inside]), reach=float(rise[inside].max()),
                slope=line.slope, slope_low=line.low, slope_high=line.high,
            )
        )  # fmt: skip
    return tuple(made)


def slope_of(steps: np.ndarray, y: Floats) -> Slope:
    """Change of y for each e-fold of steps: a power law is a line there."""
    return theil_sen(np.log(np.maximum(steps, 1).astype(np.float64)), y)


def _edges(context: Context, curve: Curve) -> list[tuple[str, int, int]]:
    """Names and steps of the phases: by the learning rate's peak, then by how far the loss fell."""
    steps = curve.steps
    first, last = int(steps[0]), int(steps[-1])
    warm = _warm_up_end(context, curve)
    size = max(1, len(curve.y) // BLOCKS)
    count = len(curve.y) // size
    shape = row_medians(curve.y[: count * size].reshape(count, size))
    at = steps[: count * size : size]
    after = np.flatnonzero(at >= warm)
    start = int(after[0]) if len(after) else 0
    left = shape[start:] - shape[start:].min()
    fallen = np.flatnonzero(left <= (1.0 - FALLEN) * max(float(left[0]), 1e-12))
    fast = int(at[start + int(fallen[0])]) if len(fallen) else last
    fast = min(max(fast, warm + 1), last)
    return [("warm_up", first, warm), ("fast_fall", warm + 1, fast), ("plateau", fast + 1, last)]


def _warm_up_end(context: Context, curve: Curve) -> int:
    """The step of the highest learning rate; without one, after a hundredth of the steps."""
    for track in context.tracks("lr"):
        good = np.isfinite(track.values)
        if track.segment == curve.track.segment and good.sum() >= 2:
            top = int(np.argmax(np.where(good, track.values, -np.inf)))
            return int(track.steps[top])
    return int(curve.steps[0] + WARM_UP * (curve.steps[-1] - curve.steps[0]))


def longest_pace(context: Context) -> Pace | None:
    """The longest pace of a run, without evaluations; None where it is too short to judge."""
    known = [pace.calm() for pace in paces(context)]
    known = [pace for pace in known if len(pace) >= LEAST]
    return max(known, key=len, default=None)


def speed_of(context: Context, pace: Pace) -> Speed | None:
    """What a pace says of the speed; rates (tokens/s) count as the time for one of them."""
    p50, p95 = np.quantile(pace.seconds, (0.5, 0.95))
    usual = float(p50)
    if pace.unit != "s":
        rate = context.run.readings[pace.metric].to_numpy()[pace.rows]
        usual = float(1.0 / np.float64(median(rate)))
    if not (p50 > 0 and np.isfinite(usual)):
        return None
    return Speed(
        metric=pace.metric, unit=pace.unit, median=usual,
        noise=noise(np.log(np.maximum(pace.seconds, 1e-12))), p95_p50=float(p95 / p50),
    )  # fmt: skip


def dump(normal: Normal) -> dict[str, Any]:
    """As plain values, for JSON."""
    return as_dict(normal)


def load(entry: dict[str, Any]) -> Normal:
    """The same back; raises KeyError or TypeError where the entry is no such thing."""
    phases = {
        metric: tuple(Phase(**phase) for phase in known)
        for metric, known in entry["phases"].items()
    }
    speed = Speed(**entry["speed"]) if entry["speed"] else None
    return Normal(**{**entry, "phases": phases, "speed": speed})
