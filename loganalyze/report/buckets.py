"""Thins long series so that no extreme is lost: smallest and largest of each bucket, raw windows.

Every point that is kept is a logged one; nothing is averaged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from loganalyze.tracks import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
_PIECE = 1 << 15  # points looked at together: what is made of them stays in the processor's cache


def extremes(values: FloatArray, buckets: int) -> IntArray:
    """Sorted indices of the smallest and largest value of each bucket, and of both ends.

    In a bucket with NaN or Inf, its first and last such place is kept as well.
    """
    n = len(values)
    if n <= 2 * buckets or buckets < 1:
        return np.arange(n, dtype=np.int64)
    width = -(-n // buckets)
    whole = n // width * width  # the last bucket may be shorter
    found = [np.array([0, n - 1]), *_of_rows(values[:whole].reshape(-1, width))]
    if whole < n:
        found += [whole + part for part in _of_rows(values[whole:].reshape(1, -1))]
    return np.unique(np.concatenate(found)).astype(np.int64)


def _of_rows(table: FloatArray) -> list[IntArray]:
    """Indices, in the table as one row, of each row's lowest and highest finite value and of its
    first and last broken one. Of equals the first counts."""
    base = np.arange(len(table), dtype=np.int64) * table.shape[1]
    low, high = base + table.argmin(axis=1), base + table.argmax(axis=1)
    ends = table.reshape(-1)[np.stack((low, high))]
    broken = ~np.isfinite(ends).all(axis=0)  # argmin and argmax stop at NaN, Inf is one of them
    if not broken.any():
        return [low, high]
    return [low[~broken], high[~broken], *_of_broken(table[broken], base[broken])]


def _of_broken(table: FloatArray, base: IntArray) -> list[IntArray]:
    """The same of rows that all hold NaN or Inf. base: where each row begins."""
    finite = np.isfinite(table)
    some = finite.any(axis=1)
    low = base + np.where(finite, table, np.inf).argmin(axis=1)
    high = base + np.where(finite, table, -np.inf).argmax(axis=1)
    first = base + finite.argmin(axis=1)
    last = base + table.shape[1] - 1 - finite[:, ::-1].argmin(axis=1)
    return [low[some], high[some], first, last]


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
    least = 5 * max(1, interval)
    firsts = range(0, len(steps), _PIECE)
    found = [f + np.flatnonzero(np.diff(steps[f : f + _PIECE + 1]) > least) for f in firsts]
    places = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    if len(places) > most:
        jumps = steps[places + 1] - steps[places]
        places = np.sort(places[np.argsort(jumps)[-most:]])
    return places.astype(np.int64)


def raw_ranges(steps: IntArray, kept: BoolArray, least: int = 8) -> list[tuple[int, int]]:
    """Ranges of steps in which every logged point is kept, `least` points or more."""
    index = np.flatnonzero(kept)
    edges = np.concatenate(([0], np.flatnonzero(np.diff(index) > 1) + 1, [len(index)]))
    enough = np.flatnonzero(np.diff(edges) >= least)
    firsts, lasts = index[edges[enough]], index[edges[enough + 1] - 1]
    return list(zip(steps[firsts].tolist(), steps[lasts].tolist(), strict=True))


def smooth(steps: IntArray, values: FloatArray, window: int, at: IntArray) -> FloatArray:
    """Centred mean of the finite values within `window` steps around each step of `at`."""
    if not len(at) or not len(values):
        return np.full(len(at), np.nan)
    firsts = np.searchsorted(steps, at - window // 2, side="left")
    counts = np.searchsorted(steps, at + window // 2, side="right") - firsts
    near, starts = _spaced(values, firsts, counts)
    finite = np.isfinite(near)
    if not finite.all():
        counts = np.add.reduceat(finite, starts, dtype=np.int64) - 1
        near, starts = near[finite], np.cumsum(counts + 1) - counts - 1
    with np.errstate(over="ignore"):  # values near the largest double
        return np.where(counts > 0, np.add.reduceat(near, starts) / np.maximum(counts, 1), np.nan)


def _spaced(values: FloatArray, firsts: IntArray, counts: IntArray) -> tuple[FloatArray, IntArray]:
    """Stretches of `counts` values from `firsts` on, one after the other, a zero before each.

    Also where each zero stands. np.add.reduce() adds to a zero, np.add.reduceat() to the first of
    a stretch: with the zero there it gives the same to the last digit.
    """
    starts = np.cumsum(counts + 1) - counts - 1
    index = np.repeat(firsts - starts - 1, counts + 1)
    index += np.arange(len(index))
    spaced = values[index]
    spaced[starts] = 0.0
    return spaced, starts
