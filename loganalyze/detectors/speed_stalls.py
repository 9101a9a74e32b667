"""Periodic slow steps: period, phase, cost, and whether evaluations or saves explain them."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from loganalyze.detectors.base import Context, finding
from loganalyze.detectors.speed_series import BoolArray, Pace, pace_point
from loganalyze.detectors.speed_shifts import stretches
from loganalyze.model import Finding, Severity, Threshold
from loganalyze.running import median
from loganalyze.series_periods import Period, period_of
from loganalyze.series_trend import running_median
from loganalyze.tracks import FloatArray, IntArray

#: Records around one that tell its usual time; and how many combs are looked for.
_AROUND = 51
_COMBS = 2


def stalls(context: Context, pace: Pace) -> tuple[list[Finding], Pace]:
    """The throughput_stall findings, and the pace without the records that they explain."""
    usual = running_median(pace.seconds, _AROUND)
    combs: list[tuple[Period, IntArray]] = []
    left = np.ones(len(pace), dtype=np.bool_)
    for _ in range(_COMBS):
        slow = np.flatnonzero(left & _slow(context, pace, usual))
        comb = _comb(context, pace, slow)
        if comb is None:
            break
        combs.append(comb)
        left[comb[1]] = False
    made = [_stall(context, pace, usual, *comb, _beside(pace, usual, comb, combs))
            for comb in combs]  # fmt: skip
    return [item for item in made if item is not None], pace.only(left)


def _cost(pace: Pace, usual: FloatArray, members: IntArray) -> float:
    """Share of the run's time that stalls took."""
    return float((pace.seconds[members] - usual[members]).sum() / pace.seconds.sum())


def _beside(
    pace: Pace, usual: FloatArray, own: tuple[Period, IntArray],
    combs: list[tuple[Period, IntArray]],
) -> float:  # fmt: skip
    """Cost of other combs of the same period: an odd period in a log of every other step is two."""
    return sum(
        _cost(pace, usual, members) for period, members in combs
        if members is not own[1] and abs(period.period - own[0].period) < 0.02 * own[0].period
    )  # fmt: skip


def _slow(context: Context, pace: Pace, usual: FloatArray) -> BoolArray:
    slow = pace.seconds > context.value("throughput_stall.slow_ratio") * usual
    if pace.unit == "s":
        slow &= pace.seconds - usual >= context.value("throughput.min_excess_s")
    return np.asarray(slow & ~_bursts(slow, context), dtype=np.bool_)


def _bursts(slow: BoolArray, context: Context) -> BoolArray:
    """Slow records that stand in a row: a drop, not stalls."""
    least = int(context.value("throughput_drop.burst_records"))
    out = np.zeros(len(slow), dtype=np.bool_)
    for start, stop in stretches(slow):
        out[start:stop] = stop - start >= least
    return out


def _comb(context: Context, pace: Pace, slow: IntArray) -> tuple[Period, IntArray] | None:
    """The period of the slow records and those that lie on it, if it is regular enough."""
    least = int(context.value("throughput_stall.times"))
    if len(slow) < least:
        return None
    at = pace.steps[slow]
    period = period_of(at, int(at[0]), int(at[-1]), pace.interval)
    if period is None or period.hits < least or period.period < 2 * pace.interval:
        return None
    filled = period.hits / period.expected
    if filled < context.value("throughput_stall.filled"):
        return None
    pure = period.hits / (period.hits + period.strays)
    between = (int(at[-1]) - int(at[0])) / pace.interval - period.expected
    beside = period.strays / max(1.0, between)  # how often records off the period are slow
    many = period.hits >= context.value("throughput_stall.many")
    lone = beside <= context.value("throughput_stall.beside") * filled
    if not lone or (pure < context.value("throughput_stall.pure") and not many):
        return None
    return period, slow[period.on_comb(at, pace.interval)]


def _stall(
    context: Context, pace: Pace, usual: FloatArray, period: Period, members: IntArray,
    beside: float,
) -> Finding | None:  # fmt: skip
    excess = pace.seconds[members] - usual[members]
    cost = _cost(pace, usual, members)
    if cost < context.value("throughput_stall.info_cost"):
        return None
    evaluated = float(pace.marked[members].mean())
    saved = float(pace.saved[members].mean())
    known = max(evaluated, saved)
    severity, threshold = _severity(context, pace, cost + beside, evaluated, known, len(members))
    worst = int(members[np.argmax(pace.seconds[members])])
    spread = [members[0], worst, members[-1]]
    made = finding(
        "throughput_stall",
        severity,
        metric=pace.metric,
        first=int(pace.steps[members].min()),
        last=int(pace.steps[members].max()),
        peak=int(pace.steps[worst]),
        statistics={
            "period_steps": period.period,
            "phase": period.phase,
            "stalls": len(members),
            "expected": period.expected,
            "strays": period.strays,
            "stall_time": median(excess),
            "usual_time": median(usual[members]),
            "cost_share": cost,
            "at_evaluation_share": evaluated,
            "at_save_share": saved,
        },
        threshold=threshold,
        evidence=tuple(
            pace_point(context, pace, int(at), "speed_stall", expected=f"{usual[at]:.4g}")
            for at in dict.fromkeys(spread)
        ),
    )
    return replace(made, segment=int(pace.segments[members[0]]))


def _severity(
    context: Context, pace: Pace, cost: float, evaluated: float, known: float, count: int
) -> tuple[Severity, Threshold]:
    """Evaluations take time by design: a note. Anything else is an alarm once it is dear.

    Saves are expected to take some, so they have the higher limit. Few stalls need twice of it.

    The wall clock cannot tell what happened between two steps, so it never alarms.
    """
    pure = context.value("throughput_stall.pure")
    name = "warning_cost" if known >= pure else "unknown_cost"
    warn = context.thresholds[f"throughput_stall.{name}"]
    many = count >= context.value("throughput_stall.many") or (count >= 4 and cost >= 0.2)
    explained = evaluated >= context.value("throughput_stall.pure") or pace.clock
    if cost >= warn.value and not explained and many:
        return "warning", warn
    return "info", context.thresholds["throughput_stall.info_cost"]
