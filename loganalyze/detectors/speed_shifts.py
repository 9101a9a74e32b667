"""Slow stretches of a run: level shifts of the step time, and short bursts of slow records."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.detectors.base import Context
from loganalyze.detectors.speed_series import BoolArray, Pace
from loganalyze.running import median
from loganalyze.series_trend import Level, levels, trailing_median
from loganalyze.tracks import FloatArray


class Slow(Struct, frozen=True, kw_only=True):
    """Records [start, stop) that are slower than the reference time by at most `excess` (share).

    excess: of the level; peak: the slowest record. long: a level shift, not a short burst.
    """

    start: int
    stop: int
    excess: float
    reference: float
    peak: int
    long: bool


# -- level shifts ---------------------------------------------------------------------------


def episodes(context: Context, pace: Pace) -> list[Slow]:
    """Level shifts first, then bursts outside of them; in the order of the log."""
    shifts = _shifts(context, pace)
    short = bursts(context, pace, context.value("throughput_drop.burst_ratio"))
    short += _seed_bursts(context, pace)
    kept = list(shifts)
    for item in short:
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
        reference = median(before)
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
    return float(np.min(np.diff(distinct)) / (2.0 * median(seconds)))


# -- bursts ---------------------------------------------------------------------------------


def bursts(context: Context, pace: Pace, ratio: float) -> list[Slow]:
    """At least burst_records in a row above `ratio` times the usual time before them."""
    past = int(context.value("throughput_drop.past_records"))
    reference = trailing_median(pace.seconds, past)
    reference = np.maximum(reference, median(pace.seconds) / ratio)
    return _runs(context, pace, pace.seconds / reference, ratio, reference)


def _seed_bursts(context: Context, pace: Pace) -> list[Slow]:
    """The monitoring document's rule; on its own it needs noise that does not explain it."""
    share = context.value("seed.throughput_low_3_steps")
    reference = mean_before(pace.seconds, int(context.value("throughput_drop.past_records")))
    return _runs(context, pace, pace.seconds / reference, 1.0 / (1.0 - share), reference)


def mean_before(seconds: FloatArray, past: int) -> FloatArray:
    """Time of a record at the mean speed of the `past` records before; inf while there are few."""
    total = np.concatenate(([0.0], np.cumsum(1.0 / seconds)))[: len(seconds)]
    count = np.minimum(np.arange(len(seconds)), past)
    before = total.copy()  # the sum of those that count
    before[past:] -= total[: max(len(total) - past, 0)]
    mean = before / np.maximum(count, 1)
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
    runs = [(a, b) for a, b in stretches(slow) if b - a >= least]
    alone = int(slow.sum()) - sum(b - a for a, b in runs)
    share = (alone + 1) / len(pace)
    found = []
    for a, b in runs:
        if len(pace) * share ** (b - a) <= context.value("throughput_drop.chance"):
            excess = float(median(ratios[a:b]) - 1.0)
            found.append(
                Slow(start=a, stop=b, excess=excess, reference=float(reference[a]),
                     peak=_slowest(pace, a, b), long=False)
            )  # fmt: skip
    return found


def stretches(flags: BoolArray) -> list[tuple[int, int]]:
    """[start, stop) of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
