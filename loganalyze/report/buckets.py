"""Thins long series so that no extreme is lost: smallest and largest of each bucket, raw windows.

Every point that is kept is a logged one; nothing is averaged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from loganalyze.tracks import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]


def extremes(values: FloatArray, buckets: int) -> IntArray:
    """Sorted indices of the smallest and largest value of each bucket, and of both ends.

    In a bucket with NaN or Inf, its first and last such place is kept as well.
    """
    n = len(values)
    if n <= 2 * buckets or buckets < 1:
        return np.arange(n, dtype=np.int64)
    width = -(-n // buckets)
    rows = -(-n // width)
    whole = bool(np.isfinite(values).all())
    padded = np.full(rows * width, values[-1] if whole else np.nan)  # of equals the first counts
    padded[:n] = values
    table = padded.reshape(rows, width)
    base = np.arange(rows, dtype=np.int64) * width
    if whole:
        ends = np.array([0, n - 1])
        return np.unique(np.concatenate((base + table.argmin(1), base + table.argmax(1), ends)))
    finite = np.isfinite(table)
    some = finite.any(axis=1)
    low = base + np.where(finite, table, np.inf).argmin(axis=1)
    high = base + np.where(finite, table, -np.inf).argmax(axis=1)
    real = np.arange(rows * width).reshape(rows, width) < n
    broken = ~finite & real
    bad = broken.any(axis=1)
    first = base + broken.argmax(axis=1)
    last = base + width - 1 - broken[:, ::-1].argmax(axis=1)
    parts = (low[some], high[some], first[bad], last[bad], np.array([0, n - 1]))
    return np.unique(np.concatenate(parts)).astype(np.int64)


def windows(steps: IntArray, spans: Iterable[tuple[int, int]], points: int) -> BoolArray:
    """A mask of raw points around each span of steps: at most about `points` for each.

    A span that fits is kept whole with a margin; of a longer one both ends are kept.
    """
    keep = np.zeros(len(steps), dtype=bool)
    for first, last in spans:
        a, b = np.searchsorted(steps, [first, last + 1])
        room = points - (b - a)
        if room >= 0:
            side = max(4, room // 2)
            keep[max(0, a - side) : b + side] = True
            continue
        half = max(4, points // 4)
        keep[max(0, a - half) : a + half] = True
        keep[max(0, b - half) : b + half] = True
    return keep


def shares(
    lengths: Sequence[int], budget: int, least: int, weights: Sequence[float] | None = None
) -> list[int]:
    """Divides a budget of points by weight: what fits is kept whole and leaves more for the rest.

    Each series gets `least` at least (or all it has).
    """
    heavy = [1.0] * len(lengths) if weights is None else list(weights)
    given = [0] * len(lengths)
    left, weight = float(budget), sum(heavy)
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i] / heavy[i]):
        part = max(least, int(left * heavy[index] / weight + 1e-9))
        given[index] = min(lengths[index], part)
        left, weight = max(0.0, left - given[index]), weight - heavy[index]
    return given


def gaps(steps: IntArray, interval: int, most: int = 200) -> IntArray:
    """Indices i where the log is silent between i and i + 1 for over five intervals."""
    jumps = np.diff(steps)
    places = np.flatnonzero(jumps > 5 * max(1, interval))
    if len(places) > most:
        places = np.sort(places[np.argsort(jumps[places])[-most:]])
    return places.astype(np.int64)


def raw_ranges(steps: IntArray, kept: BoolArray, least: int = 8) -> list[tuple[int, int]]:
    """Ranges of steps in which every logged point is kept, `least` points or more."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False])).astype(np.int8)))
    pairs = edges.reshape(-1, 2)
    return [(int(steps[a]), int(steps[b - 1])) for a, b in pairs.tolist() if b - a >= least]


def smooth(steps: IntArray, values: FloatArray, window: int, at: IntArray) -> FloatArray:
    """Centred mean of the finite values within `window` steps around each step of `at`."""
    made = np.full(len(at), np.nan)
    firsts = np.searchsorted(steps, at - window // 2, side="left")
    ends = np.searchsorted(steps, at + window // 2, side="right")
    with np.errstate(over="ignore"):  # values near the largest double
        for place, (first, end) in enumerate(zip(firsts.tolist(), ends.tolist(), strict=True)):
            near = values[first:end]
            finite = near[np.isfinite(near)]
            if len(finite):
                made[place] = np.add.reduce(finite) / len(finite)
    return made
