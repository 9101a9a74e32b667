"""Speed over time: level shifts, slow drifts, variance and periodic stalls of the step time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.detectors.speed_series import Pace, pace_point, paces
from loganalyze.detectors.speed_stalls import stalls
from loganalyze.model import Evidence, Finding, Severity, Threshold
from loganalyze.series_trend import (
    IntArray,
    Level,
    Slope,
    block_medians,
    levels,
    straightness,
    theil_sen,
    trailing_median,
)
from loganalyze.tracks import FloatArray

_NEEDS = (("step_time_s", "tokens_per_s", "samples_per_s", "tokens_per_s_per_gpu",
           "tflops_per_gpu", "loss"),)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Records [start, stop) that are slower than the reference time by at most `excess` (share).

    excess: of the level; peak: the slowest record. long: a level shift, not a short burst.
    """

    start: int
    stop: int
    excess: float
    reference: float
    peak: int
    long: bool


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
    slow = _episodes(context, flat)
    found = comb + ([] if slope is None else [_degradation(context, calm, slope)])
    found += [_drop(context, flat, item) for item in slow]
    return found + _variance(context, _levelled(flat, slow))


def _bursts_only(context: Context, pace: Pace) -> list[Finding]:
    """Too short to know a level: only many times the usual time, three records in a row."""
    if len(pace) < 2 * context.value("throughput_drop.burst_records"):
        return []
    ratio = context.value("throughput_drop.burst_ratio") ** 2
    return [_drop(context, pace, item) for item in _bursts(context, pace, ratio)]


# -- level shifts ---------------------------------------------------------------------------


def _episodes(context: Context, pace: Pace) -> list[Slow]:
    """Level shifts first, then bursts outside of them; in the order of the log."""
    shifts = _shifts(context, pace)
    bursts = _bursts(context, pace, context.value("throughput_drop.burst_ratio"))
    bursts += _seed_bursts(context, pace)
    kept = list(shifts)
    for item in bursts:
        if not any(item.start < other.stop and other.start < item.stop for other in kept):
            kept.append(item)
    return sorted(kept, key=lambda item: item.start)


def _shifts(context: Context, pace: Pace) -> list[Slow]:
    """Stretches of levels that lie above the usual level before them, neighbours joined."""
    least = int(context.value("throughput_drop.records"))
    step = float(np.log1p(context.value("throughput_drop.info_share")))
    values = np.log(pace.seconds)
    floor = max(context.value("throughput.noise_floor"), _quantum(pace.seconds))
    found = levels(
        values, least=least, z=context.value("throughput_drop.z"), floor=floor, step=step
    )
    if len(found) == 1 and len(values) < 2 * least:
        found = levels(
            values, least=least // 2, z=context.value("throughput_drop.z"), floor=floor, step=step
        )
    return _slow_stretches(pace, values, found, step)


def _slow_stretches(
    pace: Pace, values: FloatArray, found: tuple[Level, ...], step: float
) -> list[Slow]:
    slow: list[Slow] = []
    usual = [found[0]] if found else []
    for level in found[1:]:
        before = np.concatenate([values[part.start : part.stop] for part in usual])
        reference = float(np.median(before))
        excess = level.median - reference
        if excess < step:
            usual.append(level)
        elif slow and slow[-1].stop == level.start:
            last = slow[-1]
            slow[-1] = replace(
                last,
                stop=level.stop,
                excess=max(last.excess, float(np.expm1(excess))),
                peak=_slowest(pace, last.start, level.stop),
            )
        else:
            slow.append(
                Slow(
                    start=level.start,
                    stop=level.stop,
                    excess=float(np.expm1(excess)),
                    reference=float(np.exp(reference)),
                    peak=_slowest(pace, level.start, level.stop),
                    long=True,
                )
            )
    return slow


def _slowest(pace: Pace, start: int, stop: int) -> int:
    return start + int(np.argmax(pace.seconds[start:stop]))


def _quantum(seconds: FloatArray) -> float:
    """Half the relative step of the printed digits: noise below it cannot be seen."""
    distinct = np.unique(seconds)
    if len(distinct) < 2 or len(distinct) > len(seconds) // 4:
        return 0.0
    return float(np.min(np.diff(distinct)) / (2.0 * np.median(seconds)))


# -- bursts ---------------------------------------------------------------------------------


def _bursts(context: Context, pace: Pace, ratio: float) -> list[Slow]:
    """At least burst_records in a row above `ratio` times the usual time before them."""
    past = int(context.value("throughput_drop.past_records"))
    reference = trailing_median(pace.seconds, past)
    reference = np.maximum(reference, np.median(pace.seconds) / ratio)
    return _runs(context, pace, pace.seconds / reference, ratio, reference)


def _seed_bursts(context: Context, pace: Pace) -> list[Slow]:
    """The monitoring document's rule; on its own it needs noise that does not explain it."""
    share = context.value("seed.throughput_low_3_steps")
    reference = _mean_before(pace.seconds, int(context.value("throughput_drop.past_records")))
    return _runs(context, pace, pace.seconds / reference, 1.0 / (1.0 - share), reference)


def _mean_before(seconds: FloatArray, past: int) -> FloatArray:
    """Time of a record at the mean speed of the `past` records before; inf while there are few."""
    total = np.concatenate(([0.0], np.cumsum(1.0 / seconds)))
    end = np.arange(len(seconds))
    begin = np.maximum(0, end - past)
    count = end - begin
    mean = (total[end] - total[begin]) / np.maximum(count, 1)
    return np.where(count >= min(past, 20), 1.0 / np.maximum(mean, 1e-300), np.inf)


def _runs(
    context: Context, pace: Pace, ratios: FloatArray, limit: float, reference: FloatArray
) -> list[Slow]:
    """Runs of slow records that chance does not explain, given how often single ones are slow."""
    least = int(context.value("throughput_drop.burst_records"))
    enough = pace.seconds - reference >= context.value("throughput.min_excess_s")
    slow = ratios >= limit
    if pace.unit == "s":
        slow &= enough
    runs = [(a, b) for a, b in _stretches(slow) if b - a >= least]
    alone = int(slow.sum()) - sum(b - a for a, b in runs)
    share = (alone + 1) / len(pace)
    found = []
    for a, b in runs:
        if len(pace) * share ** (b - a) <= context.value("throughput_drop.chance"):
            excess = float(np.median(ratios[a:b]) - 1.0)
            found.append(
                Slow(start=a, stop=b, excess=excess, reference=float(reference[a]),
                     peak=_slowest(pace, a, b), long=False)
            )  # fmt: skip
    return found


def _stretches(flags: np.ndarray) -> list[tuple[int, int]]:
    """[start, stop) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _drop(context: Context, pace: Pace, slow: Slow) -> Finding:
    severity, threshold = _drop_severity(context, pace, slow)
    part = pace.seconds[slow.start : slow.stop]
    rules = _seed_rule(context, pace, slow)
    return replace(
        finding(
            "throughput_drop",
            severity,
            metric=pace.metric,
            first=int(pace.steps[slow.start]),
            last=int(pace.steps[slow.stop - 1]),
            peak=int(pace.steps[slow.peak]),
            statistics={
                "usual_time": slow.reference,
                "slow_time": float(np.median(part)),
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
    if not slow.long:
        strong = slow.excess >= th.value("throughput_drop.burst_ratio") - 1.0
        name = "throughput_drop.burst_ratio" if strong else "seed.throughput_low_3_steps"
        return "warning", th[name]
    lasting = slow.stop >= len(pace)
    if slow.excess >= th.value("throughput_drop.critical_share") and lasting:
        return "critical", th["throughput_drop.critical_share"]
    lost = (pace.seconds[slow.start : slow.stop] - slow.reference).mean()
    tiny = pace.unit == "s" and lost < th.value("throughput.min_excess_s")
    if slow.excess >= th.value("throughput_drop.warning_share") and not tiny:
        return "warning", th["throughput_drop.warning_share"]
    return "info", th["throughput_drop.info_share"]


def _seed_rule(context: Context, pace: Pace, slow: Slow) -> tuple[Threshold, ...]:
    share = context.value("seed.throughput_low_3_steps")
    past = int(context.value("throughput_drop.past_records"))
    reference = _mean_before(pace.seconds, past)[slow.start : slow.stop]
    low = pace.seconds[slow.start : slow.stop] * (1.0 - share) > reference
    fired = any(b - a >= 3 for a, b in _stretches(low))
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
            first=int(pace.steps[0]),
            last=int(pace.steps[-1]),
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
    seconds = pace.seconds.copy()
    for item in slow:
        if item.long:
            part = seconds[item.start : item.stop]
            seconds[item.start : item.stop] = part * (item.reference / np.median(part))
        else:
            keep[item.start : item.stop] = False
    return replace(pace, seconds=seconds).only(keep)


def _variance(context: Context, pace: Pace) -> list[Finding]:
    """p95/p50 over windows of 200 records (or all, in a shorter run)."""
    th = context.thresholds
    if len(pace) < th.value("throughput.least_records") - th.value("throughput_drop.burst_records"):
        return []
    starts, ratios = _window_ratios(pace.seconds, int(th.value("throughput_variance.records")))
    info, warn = th["throughput_variance.info_ratio"], th["throughput_variance.warning_ratio"]
    wide = np.flatnonzero(ratios > info.value)
    if not len(wide):
        return []
    worst = int(np.argmax(ratios))
    size = int(min(th.value("throughput_variance.records"), len(pace)))
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
                first=int(pace.steps[starts[wide[0]]]),
                last=int(pace.steps[last]),
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


def _window_ratios(seconds: FloatArray, size: int) -> tuple[IntArray, FloatArray]:
    """Starts and p95/p50 of windows half as far apart as they are long."""
    size = min(size, len(seconds))
    starts = np.unique(
        np.append(np.arange(0, len(seconds) - size + 1, max(1, size // 2)), len(seconds) - size)
    )
    windows = np.lib.stride_tricks.sliding_window_view(seconds, size)[starts]
    low, high = np.quantile(windows, (0.5, 0.95), axis=1)
    return starts, high / low


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
)
__all__ = ("SPEED_OVER_TIME", "block_medians", "detect_speed")
