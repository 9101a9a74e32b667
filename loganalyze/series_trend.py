"""Levels, slopes and bends of a series: robust against single outliers, linear in its length.

Used where a question is "did the level change" or "does it drift"; spikes
are the business of series.py. Arrays are one-dimensional float64 without NaN.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze.running import centred_median, median, row_medians

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Median absolute deviation to standard deviation of a normal distribution.
MAD_TO_SD = 1.4826
#: Lower quartile of the absolute value of a standard normal variable.
QUARTILE = 0.318639
#: Fewest blocks that tell how far means wander.
_BLOCKS = 8
#: Two-sided 95 % quantile of the normal distribution.
Z95 = 1.959964
#: Series longer than this are cut into blocks of medians before the level search.
SEARCH_POINTS = 50_000


class Level(Struct, frozen=True, kw_only=True):
    """A stretch [start, stop) of points whose level holds still; median in the series' unit."""

    start: int
    stop: int
    median: float

    def __len__(self) -> int:
        """Number of points."""
        return self.stop - self.start


class Slope(Struct, frozen=True, kw_only=True):
    """A line through the points: median of pairwise slopes, with its 95 % interval.

    trend: Kendall's tau of the points (-1 falling all the way, 1 rising all the way).
    """

    slope: float
    low: float
    high: float
    intercept: float
    trend: float


def noise(values: FloatArray) -> float:
    """Standard deviation of the point-to-point noise, blind to level shifts and outliers.

    1.4826 times the median absolute first difference, over the square root of two.
    """
    if len(values) < 2:
        return 0.0
    return float(MAD_TO_SD * median(np.abs(np.diff(values))) / np.sqrt(2.0))


def long_noise(values: FloatArray, block: int) -> float:
    """Standard deviation per point that explains how far means of `block` points wander.

    For independent points it equals noise(); for slowly wandering ones it is larger. From the
    lower quartile of the differences of neighbouring means, which shifts do not reach.
    """
    block = min(block, len(values) // _BLOCKS)
    if block < 3:
        return noise(values)
    means = values[: len(values) // block * block].reshape(-1, block).mean(axis=1)
    calm = float(np.quantile(np.abs(np.diff(means)), 0.25))
    return max(noise(values), float(calm / (QUARTILE * np.sqrt(2.0)) * np.sqrt(block)))


def running_median(values: FloatArray, width: int) -> FloatArray:
    """Centred running median over an odd number of points; mirrored at the ends."""
    width = min(width, len(values)) | 1
    return centred_median(values, width, "symmetric")


def winsorised(values: FloatArray, width: int, sigmas: float, floor: float) -> FloatArray:
    """Points pulled in to the running median (of `width` points) plus or minus sigmas * noise."""
    centre = running_median(values, width)
    reach = sigmas * max(noise(values), floor)
    return np.clip(values, centre - reach, centre + reach)


def levels(
    values: FloatArray, *, least: int, z: float, floor: float, step: float
) -> tuple[Level, ...]:
    """Cuts a series where its level shifts; neighbouring levels differ by at least `step`.

    least: points a level needs; z: standard errors a shift must stand out by; floor: smallest
    noise believed (the print quantum, say). Seeded binary segmentation with narrowest-over-
    threshold selection (Kovács et al. 2023; Baranowski et al. 2019) on winsorised values.
    """
    n = len(values)
    if n < 2 * least:
        return (Level(start=0, stop=n, median=median(values)),) if n else ()
    block = max(1, n // SEARCH_POINTS)
    coarse = block_medians(values, block) if block > 1 else values
    small = max(3, least // block)
    clipped = winsorised(coarse, _odd(small // 2), 3.0, floor)
    sigma = max(long_noise(clipped, small), floor)
    found = _change_points(clipped / sigma, small, z)
    edges = [0, *(_refined(values, point * block, least) for point in found), n]
    return _merged_levels(values, edges, least, step)


def _odd(width: int) -> int:
    return max(3, width) | 1


def block_medians(values: FloatArray, block: int) -> FloatArray:
    """Medians of consecutive blocks; a shorter rest at the end joins the last block."""
    count = max(1, len(values) // block)
    body = row_medians(values[: (count - 1) * block].reshape(count - 1, block))
    return np.append(body, median(values[(count - 1) * block :]))


def _change_points(scaled: FloatArray, least: int, z: float) -> list[int]:
    """Points where the mean of unit-noise values shifts, narrowest evidence first."""
    total = np.concatenate(([0.0], np.cumsum(scaled - scaled.mean())))
    found: list[int] = []
    length = float(2 * least)
    while True:
        width = min(int(length), len(scaled))
        for point, start in _layer(total, width, least, z):
            at = bisect_left(found, start)
            if at == len(found) or found[at] >= start + width:
                found.insert(bisect_left(found, point), point)
        if width == len(scaled):
            return found
        length *= 2**0.5


def spread_starts(count: int, width: int, apart: int) -> IntArray:
    """Where intervals of `width` of `count` points begin, `apart` points each, to the last one.

    >>> spread_starts(10, 4, 3).tolist()
    [0, 3, 6]
    >>> spread_starts(11, 4, 3).tolist()
    [0, 3, 6, 7]
    """
    last = count - width
    starts = np.arange(0, last + 1, max(1, apart))
    return starts if starts[-1] == last else np.append(starts, last)


def _layer(total: FloatArray, width: int, least: int, z: float) -> list[tuple[int, int]]:
    """(change point, start of interval) of all intervals of one width that pass, best first."""
    starts = spread_starts(len(total) - 1, width, width // 4)
    offsets = np.arange(least, width - least + 1)
    weight = np.sqrt(width / (offsets * (width - offsets)))
    passing: list[tuple[float, int, int]] = []
    windows = np.lib.stride_tricks.sliding_window_view(total, len(offsets))[least:]
    for part in np.array_split(starts, max(1, len(starts) * len(offsets) // 4_000_000)):
        head = total[part][:, None]
        whole = total[part + width][:, None] - head
        gain = np.abs(windows[part] - head - whole * (offsets / width)) * weight
        best = gain.argmax(axis=1)
        height = gain[np.arange(len(part)), best]
        for i in np.flatnonzero(height > z):
            passing.append((-float(height[i]), int(part[i] + offsets[best[i]]), int(part[i])))
    return [(point, start) for _, point, start in sorted(passing)]


def _refined(values: FloatArray, guess: int, reach: int) -> int:
    """The split within `reach` points of a guess that leaves the smallest absolute residue."""
    low, high = max(0, guess - 2 * reach), min(len(values), guess + 2 * reach)
    part = values[low:high]
    split = guess - low
    before, after = median(part[:split]), median(part[split:])
    cost = np.cumsum(np.abs(part - before) - np.abs(part - after))
    first = max(1, split - reach)
    last = min(len(part) - 1, split + reach)
    return int(low + first + np.argmin(cost[first - 1 : last]))


def _merged_levels(
    values: FloatArray, edges: Sequence[int], least: int, step: float
) -> tuple[Level, ...]:
    """Levels between edges; the two nearest neighbours join while they differ too little."""
    cuts = sorted(set(edges))
    parts = [_level(values, a, b) for a, b in pairwise(cuts)]
    while len(parts) > 1:
        steps = [abs(b.median - a.median) for a, b in pairwise(parts)]
        short = [i for i, part in enumerate(parts) if len(part) < least]
        if short:
            i = short[0]
            near = [j for j in (i - 1, i) if 0 <= j < len(steps)]
            at = min(near, key=steps.__getitem__)
        else:
            at = int(np.argmin(steps))
            if steps[at] >= step:
                break
        parts[at : at + 2] = [_level(values, parts[at].start, parts[at + 1].stop)]
    return tuple(parts)


def _level(values: FloatArray, start: int, stop: int) -> Level:
    return Level(start=start, stop=stop, median=median(values[start:stop]))


def theil_sen(x: FloatArray, y: FloatArray, points: int = 300) -> Slope:
    """Median of pairwise slopes with Sen's 95 % interval; both cut to `points` block medians.

    All 0 where no two points differ in x. Sen 1968; the interval uses the variance of Kendall's S.
    """
    block = -(-len(x) // points)
    if block > 1:
        x, y = block_medians(x, block), block_medians(y, block)
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    keep = run != 0
    rise = (y[second] - y[first])[keep]
    slopes = np.sort(rise / run[keep])
    if not len(slopes):
        level = median(y) if len(y) else 0.0
        return Slope(slope=0.0, low=0.0, high=0.0, intercept=level, trend=0.0)
    n = len(x)
    spread = Z95 * np.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)
    low = max(0, int(np.floor((len(slopes) - spread) / 2)))
    high = min(len(slopes) - 1, int(np.ceil((len(slopes) + spread) / 2)))
    slope = median(slopes)
    return Slope(
        slope=slope,
        low=float(slopes[low]),
        high=float(slopes[high]),
        intercept=float(median(y) - slope * median(x)),
        trend=float(np.sign(slopes).sum() / max(1, len(slopes))),
    )


def straightness(values: FloatArray, points: int = 200) -> float:
    """How much better a line explains a series than one step: above 1 a drift, below 1 a step.

    Ratio of the summed absolute residue of the best single step to that of Theil and Sen's line,
    on block medians.
    """
    block = -(-len(values) // points)
    y = block_medians(values, block) if block > 1 else values
    x = np.arange(len(y), dtype=np.float64)
    line = theil_sen(x, y, points=len(y))
    straight = np.abs(y - line.intercept - line.slope * x).sum()
    steps = [
        np.abs(y[:i] - median(y[:i])).sum() + np.abs(y[i:] - median(y[i:])).sum()
        for i in range(1, len(y))
    ]
    return float(min(steps) / max(straight, 1e-12)) if steps else 0.0


def trailing_median(values: FloatArray, past: int) -> FloatArray:
    """Median of up to `past` points before each one; the first point gets its own value.

    An even `past` counts as one less, as a running median needs an odd number.
    """
    past -= 1 - past % 2
    out = np.array(values, dtype=np.float64)
    for i in range(1, min(past, len(values))):
        out[i] = median(values[:i])
    if len(values) > past:
        windows = centred_median(values, past, "symmetric")
        out[past:] = windows[past // 2 : len(values) - past // 2 - 1]
    return out


def bend(values: FloatArray, points: int = 100) -> int:
    """Where a series that is flat and then rises or falls on a line begins to: index of a point.

    The place that leaves the smallest absolute residue, on `points` block medians; 0 where the
    whole series is the line.
    """
    block = -(-len(values) // points)
    y = block_medians(values, block) if block > 1 else values
    n, x = len(y), np.arange(len(y), dtype=np.float64)
    costs = []
    for at in range(n - 2):
        base = median(y[: at + 1]) if at else y[0]
        ahead = x[at + 1 :] - at
        slope = median((y[at + 1 :] - base) / ahead)
        line = base + slope * np.maximum(0.0, x - at)
        costs.append(float(np.abs(y - line).sum()))
    return int(np.argmin(costs)) * block if costs else 0
