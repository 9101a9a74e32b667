"""Robust statistics of one series.

All functions take plain arrays, never change them, and are O(n) or O(n log n). "Past" means
strictly before the point itself. NaN is left out where a docstring says so, else not expected.
"""

from __future__ import annotations

from bisect import insort

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze.compiled import past_medians
from loganalyze.running import centred_median, median, row_medians

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SIGMA = 1.4826


def finite(x: Floats) -> Floats:
    """The numbers without NaN and Inf; the same array where there are none."""
    good = np.isfinite(x)
    return x if good.all() else x[good]


def mad_sigma(x: Floats) -> float:
    """Robust standard deviation, 1.4826 * MAD; NaN left out; 0.0 for fewer than two points."""
    x = finite(x)
    if len(x) < 2:
        return 0.0
    rest = x - median(x)
    return float(MAD_TO_SIGMA * median(np.abs(rest, out=rest)))


def print_quantum(x: Floats, most: int = 4096) -> float:
    """The step of the grid that the values were printed on (1, 0.1, ... 1e-9, or 2**-6 ... 2**-9).

    0.0 where they lie on no such grid; judged on at most `most` points spread over the series.
    """
    x = finite(x)
    if len(x) < 3:
        return 0.0
    sample = x[:: max(1, len(x) // most)]
    for grid in (*(10.0**-k for k in range(3)), *(2.0**-k for k in range(6, 10))):
        if _on_grid(sample, grid):
            return grid
    for k in range(3, 10):
        if _on_grid(sample, 10.0**-k):
            return float(10.0**-k)
    return 0.0


def _on_grid(x: Floats, grid: float) -> bool:
    parts = x / grid
    return bool(np.all(np.abs(parts - np.round(parts)) < 1e-3))


def past_median(x: Floats, width: int, centred: Floats | None = None) -> Floats:
    """Median of the up to `width` (odd) points before each point; NaN at the first point.

    centred: centred_median(x, width), if it is at hand: the same numbers, moved.
    """
    n, half = len(x), width // 2
    made = past_medians(x, width) if centred is None or n <= width else None
    if made is not None:
        return made
    middle = centred_median(x, width) if centred is None else centred
    return np.concatenate((_expanding_median(x[:width]), middle[half : n - width + half]))


def _expanding_median(x: Floats) -> Floats:
    """Median of all points before each point; NaN at the first point."""
    made = past_medians(x, len(x)) if len(x) else None
    if made is not None:
        return made
    out = np.full(len(x), np.nan)
    seen: list[float] = []
    for at, value in enumerate(x.tolist()):
        half = len(seen) // 2
        if seen:
            out[at] = seen[half] if len(seen) % 2 else 0.5 * (seen[half - 1] + seen[half])
        insort(seen, value)
    return out


def past_mean(x: Floats, width: int) -> Floats:
    """Mean of the last `width` points, the point itself included; NaN before there are as many."""
    out = np.full(len(x), np.nan)
    if len(x) >= width:
        total = np.concatenate(([0.0], np.cumsum(x)))
        out[width - 1 :] = (total[width:] - total[:-width]) / width
    return out


def block_medians(x: Floats, size: int) -> Floats:
    """Medians of whole blocks of `size` points (a rest at the end is left out)."""
    count = len(x) // size
    return np.asarray(row_medians(x[: count * size].reshape(count, size)))


def block_means(x: Floats, size: int) -> Floats:
    """Means of whole blocks of `size` points (a rest at the end is left out)."""
    count = len(x) // size
    rows = x[: count * size].reshape(count, size)
    return np.asarray(np.einsum("ij->i", rows) / size)  # a third of the time of mean(axis=1)


def lag_correlation(x: Floats) -> float:
    """Correlation of neighbours after clipping at three robust deviations, in [-0.99, 0.99]."""
    if len(x) < 8:
        return 0.0
    centre = median(x)
    sigma = float(MAD_TO_SIGMA * median(np.abs(x - centre))) or float(np.std(x))
    if sigma == 0.0:
        return 0.0
    y = np.clip((x - centre) / sigma, -3.0, 3.0)
    y = y - y.mean()
    total = float(np.dot(y, y))
    return float(np.clip(np.dot(y[1:], y[:-1]) / total, -0.99, 0.99)) if total else 0.0


def inflation(correlation: float) -> float:
    """How much wider the error of a mean is than for independent points, sqrt((1+r)/(1-r))."""
    r = max(0.0, correlation)
    return float(np.sqrt((1.0 + r) / (1.0 - r)))


class Slope(Struct, frozen=True, kw_only=True):
    """A straight line through points. error: standard error, neighbours' correlation counted."""

    slope: float
    error: float
    intercept: float
    points: int

    @property
    def z(self) -> float:
        """Slope over its error; 0.0 where the error is unknown."""
        return self.slope / self.error if self.error > 0 else 0.0


def slope(x: Floats, y: Floats) -> Slope:
    """Least squares of y over x, the error widened by the residuals' autocorrelation."""
    n = len(x)
    spread = x - x.mean() if n else x
    total = float(np.dot(spread, spread))
    if n < 3 or total == 0.0:
        return Slope(slope=0.0, error=0.0, intercept=float(np.mean(y)) if n else 0.0, points=n)
    rate = float(np.dot(spread, y) / total)
    start = float(y.mean() - rate * x.mean())
    rest = y - start - rate * x
    error = float(np.sqrt(np.dot(rest, rest) / (n - 2) / total))
    return Slope(
        slope=rate, error=error * inflation(lag_correlation(rest)), intercept=start, points=n
    )


def theil_sen(x: Floats, y: Floats, most: int = 300) -> float:
    """Median of the slopes between all pairs, over at most `most` block medians."""
    if len(x) < 2:
        return 0.0
    if len(x) > most:
        size = len(x) // most
        x, y = block_medians(x, size), block_medians(y, size)
    one, two = np.triu_indices(len(x), 1)
    run = x[two] - x[one]
    keep = run != 0
    return median((y[two] - y[one])[keep] / run[keep]) if keep.any() else 0.0


class BlockTest(Struct, frozen=True, kw_only=True):
    """Two blocks compared: difference of their means (after - before) and its standard error."""

    difference: float
    error: float

    @property
    def z(self) -> float:
        """Difference over its error; 0.0 where the error is unknown."""
        return self.difference / self.error if self.error > 0 else 0.0


def block_test(before: Floats, after: Floats) -> BlockTest:
    """Means of two blocks, clipped at four robust deviations, neighbours' correlation counted."""
    a, b = _clipped(before), _clipped(after)
    if len(a) < 3 or len(b) < 3:
        return BlockTest(difference=0.0, error=0.0)
    wide = inflation(lag_correlation(a)), inflation(lag_correlation(b))
    error = np.hypot(
        np.std(a, ddof=1) * wide[0] / np.sqrt(len(a)), np.std(b, ddof=1) * wide[1] / np.sqrt(len(b))
    )
    return BlockTest(difference=float(b.mean() - a.mean()), error=float(error))


def _clipped(x: Floats) -> Floats:
    x = finite(x)
    sigma = mad_sigma(x)
    if sigma == 0.0:
        return x
    centre = median(x)
    return np.clip(x, centre - 4 * sigma, centre + 4 * sigma)


def cusum(x: Floats, drift: float, alarm: float) -> int | None:
    """First index where the one-sided sum of (x - drift) passes `alarm`; None if it never does.

    x: standardised, mean 0 when all is well. Lorden's rule, computed from prefix minima.
    """
    total = np.cumsum(x - drift)
    floor = np.minimum.accumulate(np.concatenate(([0.0], total[:-1])))
    above = np.flatnonzero(total - floor > alarm)
    return int(above[0]) if len(above) else None


def stretches(mask: Bools, gap: int = 0) -> list[tuple[int, int]]:
    """Stretches [first, last] of true points; those at most `gap` false points apart are one."""
    hits = np.flatnonzero(mask)
    if not len(hits):
        return []
    breaks = np.flatnonzero(np.diff(hits) > gap + 1)
    firsts = hits[np.concatenate(([0], breaks + 1))]
    lasts = hits[np.concatenate((breaks, [len(hits) - 1]))]
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]


def longest_rise(x: Floats) -> tuple[int, int]:
    """First and last index of the longest strictly rising stretch."""
    if len(x) < 2:
        return 0, 0
    found = stretches(np.diff(x) > 0)
    first, last = max(found, key=lambda pair: pair[1] - pair[0], default=(0, -1))
    return first, last + 1


def repeats(x: Floats) -> Ints:
    """How often the value of each point has occurred in a row up to it, itself included."""
    n = len(x)
    if not n:
        return np.zeros(0, dtype=np.int64)
    new = np.concatenate(([True], x[1:] != x[:-1]))
    start = np.maximum.accumulate(np.where(new, np.arange(n), 0))
    return np.asarray(np.arange(n) - start + 1, dtype=np.int64)


def filled(x: Floats) -> Floats:
    """NaN and Inf replaced by the last finite value (at the start by the first one)."""
    good = np.isfinite(x)
    if good.all() or not good.any():
        return x.copy()
    at = np.maximum.accumulate(np.where(good, np.arange(len(x)), -1))
    at[at < 0] = int(np.argmax(good))
    return np.asarray(x[at], dtype=np.float64)
