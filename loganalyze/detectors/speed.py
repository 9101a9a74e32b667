"""Speed over time: level shifts, slow drifts, variance and periodic stalls of the step time."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.speed_series import Pace, pace_point, paces
from loganalyze.detectors.speed_shifts import Slow, bursts, episodes, mean_before, stretches
from loganalyze.detectors.speed_stalls import stalls
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.running import median
from loganalyze.series_trend import (
    IntArray,
    Slope,
    running_median,
    spread_starts,
    straightness,
    theil_sen,
)
from loganalyze.tracks import FloatArray

_NEEDS = (("step_time_s", "tokens_per_s", "samples_per_s", "tokens_per_s_per_gpu",
           "tflops_per_gpu", "loss"),)  # fmt: skip

#: Records whose running median is the usual time around one.
_AROUND = 51


def detect_speed(context: Context) -> list[Finding]:
    """throughput_drop, throughput_degradation, throughput_variance and throughput_stall."""
    found: list[Finding] = []
    for pace in paces(context):
        if pace.total >= context.value("throughput.least_records"):
            found += _judge(context, pace)
        else:
            found += _bursts_only(context, pace)
    return found


def _judge(context: Context, pace: Pace) -> list[Finding]:
    comb, rest = stalls(context, pace)
    calm = rest.calm()
    if len(calm) < context.value("throughput_drop.records") // 2:
        return comb
    slope = _drift(context, calm)
    flat = calm if slope is None else _detrended(calm, slope)
    slow = episodes(context, flat)
    found = comb + ([] if slope is None else [_degradation(context, calm, slope)])
    found += [_drop(context, flat, item) for item in slow]
    return found + _variance(context, _levelled(flat, slow))


def _bursts_only(context: Context, pace: Pace) -> list[Finding]:
    """Too short to know a level: only many times the usual time, three records in a row."""
    if len(pace) < 2 * context.value("throughput_drop.burst_records"):
        return []
    ratio = context.value("throughput_drop.burst_ratio") ** 2
    return [_drop(context, pace, item) for item in bursts(context, pace, ratio)]


def _drop(context: Context, pace: Pace, slow: Slow) -> Finding:
    severity, threshold = _drop_severity(context, pace, slow)
    part = pace.seconds[slow.start : slow.stop]
    rules = _seed_rule(context, pace, slow)
    first, last = pace.span(slow.start, slow.stop)
    return replace(
        finding(
            "throughput_drop",
            severity,
            metric=pace.metric,
            first=first,
            last=last,
            peak=int(pace.steps[slow.peak]),
            statistics={
                "usual_time": slow.reference,
                "slow_time": median(part),
                "excess_share": slow.excess,
                "records": slow.stop - slow.start,
                "lost_time": float(np.sum(part - slow.reference)),
                "recovered": int(slow.stop < len(pace)),
            },
            threshold=threshold,
            rules=rules,
            evidence=_drop_evidence(context, pace, slow),
        ),
        segment=int(pace.segments[slow.start]),
    )


def _drop_severity(context: Context, pace: Pace, slow: Slow) -> tuple[Severity, Threshold]:
    th = context.thresholds
    lost = pace.seconds[slow.start : slow.stop] - slow.reference
    if not slow.long:
        strong = slow.excess >= th.value("throughput_drop.burst_ratio") - 1.0
        name = "throughput_drop.burst_ratio" if strong else "seed.throughput_low_3_steps"
        dear = lost.sum() >= th.value("throughput_drop.burst_cost") * pace.seconds.sum()
        return ("warning" if strong and dear else "info"), th[name]
    lasting = slow.stop >= len(pace)
    if slow.excess >= th.value("throughput_drop.critical_share") and lasting:
        return "critical", th["throughput_drop.critical_share"]
    tiny = pace.unit == "s" and lost.mean() < th.value("throughput.min_excess_s")
    if slow.excess >= th.value("throughput_drop.warning_share") and not tiny:
        return "warning", th["throughput_drop.warning_share"]
    return "info", th["throughput_drop.info_share"]


def _seed_rule(context: Context, pace: Pace, slow: Slow) -> tuple[Threshold, ...]:
    share = context.value("seed.throughput_low_3_steps")
    past = int(context.value("throughput_drop.past_records"))
    reference = mean_before(pace.seconds, past)[slow.start : slow.stop]
    low = pace.seconds[slow.start : slow.stop] * (1.0 - share) > reference
    fired = any(b - a >= 3 for a, b in stretches(low))
    return (context.thresholds["seed.throughput_low_3_steps"],) if fired else ()


def _drop_evidence(context: Context, pace: Pace, slow: Slow) -> tuple[Evidence, ...]:
    usual = f"{slow.reference:.4g}"
    ends = [(slow.start, "speed_first_slow"), (slow.peak, "speed_slowest")]
    if slow.start > 0:
        ends.insert(0, (slow.start - 1, "speed_last_usual"))
    if slow.stop < len(pace):
        ends.append((slow.stop, "speed_recovered"))
    return tuple(pace_point(context, pace, at, label, expected=usual) for at, label in ends)


# -- drift ----------------------------------------------------------------------------------


def _drift(context: Context, pace: Pace) -> Slope | None:
    """The slope of log time over records, where a line tells the story better than a step."""
    th = context.thresholds
    if len(pace) < th.value("throughput_degradation.records"):
        return None
    values = np.log(pace.seconds)
    slope = theil_sen(np.arange(len(values), dtype=np.float64), values)
    rise = slope.low * (len(values) - 1)
    if rise < np.log1p(th.value("throughput_degradation.info_share")):
        return None
    if slope.trend < th.value("throughput_degradation.trend"):
        return None
    straight = straightness(values)
    return slope if straight >= th.value("throughput_degradation.straightness") else None


def _detrended(pace: Pace, slope: Slope) -> Pace:
    at = np.arange(len(pace), dtype=np.float64)
    return replace(pace, seconds=pace.seconds * np.exp(-slope.slope * at))


def _degradation(context: Context, pace: Pace, slope: Slope) -> Finding:
    th = context.thresholds
    count = len(pace) - 1
    rise = float(np.expm1(slope.slope * count))
    low = float(np.expm1(slope.low * count))
    warn = th["throughput_degradation.warning_share"]
    lasting = rise >= warn.value and low >= th.value("throughput_degradation.info_share")
    begin = float(np.exp(slope.intercept))
    return replace(
        finding(
            "throughput_degradation",
            "warning" if lasting else "info",
            metric=pace.metric,
            first=pace.span(0, len(pace))[0],
            last=pace.span(0, len(pace))[1],
            peak=int(pace.steps[-1]),
            statistics={
                "usual_time": begin,
                "slow_time": begin * (1.0 + rise),
                "excess_share": rise,
                "excess_share_low": low,
                "excess_share_high": float(np.expm1(slope.high * count)),
                "trend": slope.trend,
            },
            threshold=warn if lasting else th["throughput_degradation.info_share"],
            evidence=(
                pace_point(context, pace, 0, "speed_begin", expected=f"{begin:.4g}"),
                pace_point(context, pace, count, "speed_end", expected=f"{begin:.4g}"),
            ),
        ),
        segment=int(pace.segments[0]),
    )


# -- variance -------------------------------------------------------------------------------


def _levelled(pace: Pace, slow: list[Slow]) -> Pace:
    """The pace without bursts and with level shifts taken out, so that they count only once."""
    keep = np.ones(len(pace), dtype=np.bool_)
    for item in slow:
        if not item.long:
            keep[item.start : item.stop] = False
    usual = running_median(pace.seconds, _AROUND)
    middle = median(pace.seconds)
    return replace(pace, seconds=pace.seconds / usual * middle).only(keep)


def _variance(context: Context, pace: Pace) -> list[Finding]:
    """p95/p50 over windows of 200 records (or all, in a shorter run)."""
    th = context.thresholds
    if len(pace) < th.value("throughput.least_records") - th.value("throughput_drop.burst_records"):
        return []
    info, warn = th["throughput_variance.info_ratio"], th["throughput_variance.warning_ratio"]
    size = int(th.value("throughput_variance.records"))
    starts, ratios = _window_ratios(pace.seconds, size, info.value)
    wide = np.flatnonzero(ratios > info.value)
    if not len(wide):
        return []
    worst = int(np.argmax(ratios))
    size = min(size, len(pace))
    window = np.arange(starts[worst], min(starts[worst] + size, len(pace)))
    p50, p95 = np.quantile(pace.seconds[window], (0.5, 0.95))
    tiny = pace.unit == "s" and p95 - p50 < th.value("throughput.min_excess_s")
    strong = ratios[worst] > warn.value and not tiny
    last = min(int(starts[wide[-1]]) + size, len(pace)) - 1
    slowest = int(window[np.argmax(pace.seconds[window])])
    return [
        replace(
            finding(
                "throughput_variance",
                "warning" if strong else "info",
                metric=pace.metric,
                first=pace.span(int(starts[wide[0]]), last + 1)[0],
                last=pace.span(int(starts[wide[0]]), last + 1)[1],
                peak=int(pace.steps[slowest]),
                statistics={
                    "p95_p50": float(ratios[worst]),
                    "usual_time": float(p50),
                    "slow_time": float(p95),
                    "windows": len(ratios),
                    "windows_above": len(wide),
                },
                threshold=warn if strong else info,
                evidence=(pace_point(context, pace, slowest, "speed_slowest"),),
            ),
            segment=int(pace.segments[starts[wide[0]]]),
        )
    ]


def _window_ratios(
    seconds: FloatArray, size: int, least: float = 0.0
) -> tuple[IntArray, FloatArray]:
    """Starts and p95/p50 of windows half as far apart as they are long.

    1.0 where highest over lowest shows that the ratio is not above `least`.
    """
    size = min(size, len(seconds))
    starts = spread_starts(len(seconds), size, size // 2)
    windows = np.lib.stride_tricks.sliding_window_view(seconds, size)[starts]
    wide = np.flatnonzero(windows.max(axis=1) > least * windows.min(axis=1))
    ratios = np.ones(len(starts))
    if len(wide):
        low, high = np.quantile(windows[wide], (0.5, 0.95), axis=1)
        ratios[wide] = high / low
    return starts, ratios


SPEED_OVER_TIME = Detector(
    name="speed",
    kinds=(
        "throughput_drop",
        "throughput_degradation",
        "throughput_variance",
        "throughput_stall",
    ),
    needs=_NEEDS,
    run=detect_speed,
    local=True,
    also_whole=("throughput_drop", "throughput_degradation"),
)
