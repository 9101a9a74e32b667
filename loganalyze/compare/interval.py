"""The median of a difference, its 95 % interval, and the judgement that follows from them.

The interval is the percentile interval of a circular block bootstrap (Politis and Romano 1992):
blocks of sqrt(n) neighbours are drawn, so that their correlation stays in. Seeded: the same
numbers give the same interval.
"""

from __future__ import annotations

import numpy as np

from loganalyze.compare.model import Judgement
from loganalyze.series import block_medians
from loganalyze.tracks import FloatArray, IntArray

SEED, DRAWS, MOST = 20260314, 399, 1000
LEVEL = 0.95


def median_interval(d: FloatArray) -> tuple[float, float, float]:
    """Median and both ends of its interval. Long series are drawn from medians of neighbours."""
    middle = float(np.median(d))
    thin = block_medians(d, -(-len(d) // MOST)) if len(d) > MOST else d
    drawn = np.median(thin[block_indices(len(thin))], axis=1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return middle, float(min(low, middle)), float(max(high, middle))


def block_indices(points: int) -> IntArray:
    """DRAWS rows of `points` indices each, in circular blocks of about sqrt(points)."""
    size = max(1, round(points**0.5))
    blocks = -(-points // size)
    starts = np.random.default_rng(SEED).integers(0, points, size=(DRAWS, blocks))
    rows = (starts[:, :, None] + np.arange(size)) % points
    return np.asarray(rows.reshape(DRAWS, -1)[:, :points], dtype=np.int64)


def judged(low: float, high: float, level: float, better: str, negligible: float) -> Judgement:
    """By the interval of (other - base) and the metric's direction.

    same: nothing beyond `negligible` of the level is possible. unclear: 0 and more are possible.
    """
    margin = negligible * abs(level)
    if -margin <= low and high <= margin:
        return "same"
    if low <= 0 <= high:
        return "unclear"
    if -margin <= (low + high) / 2 <= margin:
        return "same"
    if not better:
        return "different"
    return "better" if (low > 0) == (better == "higher") else "worse"
