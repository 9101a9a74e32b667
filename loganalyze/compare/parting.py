"""Where two curves part for good: the running median of their difference leaves its noise band.

Let d be other - base on the common steps, m(i) the median of the last w differences, sigma the
robust deviation of d around its own running median. A median of w independent points has the
standard error 1.2533 sigma / sqrt(w); neighbours' correlation widens it. The band is `sigmas` such
errors. The curves part if m ends outside the band; the place is the first point outside it after
the last one on the other side of zero, and it must lie 2 w points before the end. m looks back
only: what changed began after the window of that last point began, and not later than the place.
"""

from __future__ import annotations

import numpy as np

from loganalyze.compare.model import Parting
from loganalyze.running import centred_median
from loganalyze.series import inflation, lag_correlation, mad_sigma
from loganalyze.tracks import FloatArray, IntArray

#: Standard error of the median over that of the mean, for normal noise: sqrt(pi / 2).
MEDIAN_ERROR = 1.2533


def odd_window(points: int, share: float, least: int, most: int) -> int:
    """The window in points: a share of them, within limits, odd."""
    return int(np.clip(int(points * share), least, most)) | 1


def difference(base: FloatArray, other: FloatArray) -> FloatArray:
    """other - base; a number that is missing on one side only counts as infinitely high."""
    with np.errstate(invalid="ignore"):
        d = other - base
    lost, gone = ~np.isfinite(base), ~np.isfinite(other)
    d[gone & ~lost] = np.inf
    d[lost & ~gone] = -np.inf
    d[lost & gone] = 0.0
    return d


def parting(
    steps: IntArray, base: FloatArray, other: FloatArray, *, window: int, sigmas: float
) -> Parting:
    """Where the curves part; at least 2 * window points are needed to say that they do."""
    d = difference(base, other)
    unequal = np.flatnonzero(d != 0)
    first = int(unequal[0]) if len(unequal) else None
    band = _band(d if first is None else d[first:], window, sigmas)
    after, at, side = _left_for_good(running_median(d, window), band, window)
    return Parting(
        first_unequal=None if first is None else int(steps[first]),
        step=None if at is None else int(steps[at]),
        after=None if after is None else int(steps[after]),
        higher=side,
        band=band,
        sigmas=sigmas,
        window=window,
        points=len(steps),
    )


def running_median(d: FloatArray, window: int) -> FloatArray:
    """Median of the last `window` (odd) points, itself included; NaN before there are as many."""
    out = np.full(len(d), np.nan)
    if len(d) >= window:
        half = window // 2
        out[window - 1 :] = centred_median(d, window)[half : len(d) - half]
    return out


def _band(d: FloatArray, window: int, sigmas: float) -> float:
    with np.errstate(invalid="ignore"):
        rest = d - centred_median(d, window)
    rest = rest[np.isfinite(rest)]
    wide = inflation(lag_correlation(rest))
    # the median follows its own points, which narrows what is left around it
    narrowed = float(np.sqrt(window / max(1, window - 1)))
    return sigmas * MEDIAN_ERROR * mad_sigma(rest) * narrowed * wide / float(np.sqrt(window))


def _left_for_good(
    m: FloatArray, band: float, window: int
) -> tuple[int | None, int | None, bool | None]:
    """Index after which it began (None: at the start), index where it is seen, and the side."""
    if not len(m) or not abs(m[-1]) > band:
        return None, None, None
    side = bool(m[-1] > 0)
    up = m if side else -m
    crossed = np.flatnonzero(~(up > 0))  # NaN, at the start, counts as not yet on that side
    last = int(crossed[-1]) if len(crossed) else -1
    at = last + 1 + int(np.argmax(up[last + 1 :] > band))
    if len(m) - at < 2 * window:
        return None, None, None
    return (last - window + 1 if last >= window - 1 else None), at, side
