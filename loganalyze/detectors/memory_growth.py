"""Steady growth of a memory track: onset, slope with its interval, and when it will be full."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from loganalyze.detectors.base import Context
from loganalyze.series_trend import Slope, bend, long_noise, straightness, theil_sen
from loganalyze.tracks import FloatArray, IntArray, Track

#: Windows that must rise one after the other, and the tails of a tooth that are tried.
_WINDOWS = 10
_TAILS = (1.0, 0.75, 0.5, 0.35, 0.25)
_SHORTER = 0.7  # of the one before, beyond these


class Growth(Struct, frozen=True, kw_only=True):
    """Points [start, stop) of a track that grow steadily. Slopes in units per step.

    share: growth over the stretch against its beginning; begin, end: fitted values.
    """

    start: int
    stop: int
    slope: Slope
    begin: float
    end: float

    @property
    def share(self) -> float:
        """Growth over the stretch, as a share of its first value."""
        return self.end / self.begin - 1.0 if self.begin > 0 else float("inf")


def growths(context: Context, track: Track) -> list[Growth]:
    """Stretches of steady growth, one a tooth: a fall starts a new tooth."""
    values = track.values
    good = np.isfinite(values) & (values > 0)
    if good.sum() < context.value("memory_leak.few_records"):
        return []
    at = np.flatnonzero(good).astype(np.int64)
    edges = [0, *(_falls(context, values[at]) + 1), len(at)]
    found = []
    for begin, end in pairwise(edges):
        growth = _tooth(context, track, at[begin:end])
        if growth is not None:
            found.append(growth)
    return found


def _falls(context: Context, values: FloatArray) -> IntArray:
    """Points after which the memory falls at once and stays down for a while."""
    least = context.value("memory_leak.fall_share")
    stay = 5
    falls = np.flatnonzero(np.diff(values) < -least * values[:-1])
    # rows of `stay` points, short at the ends: NaN there counts for nothing
    padded = np.concatenate((np.full(stay - 1, np.nan), values, np.full(stay - 1, np.nan)))
    rows = np.lib.stride_tricks.sliding_window_view(padded, stay)
    before, after = (np.nanmedian(rows[falls + shift], axis=1) for shift in (0, stay))
    return np.asarray(falls[after < (1.0 - least) * before], dtype=np.int64)


def _tooth(context: Context, track: Track, at: IntArray) -> Growth | None:
    """The longest tail of a tooth that grows steadily; without its first points (start-up)."""
    if len(at) < context.value("memory_leak.records"):
        return _short(context, track, at)
    skip = min(len(at) // 5, int(context.value("memory_leak.start_records")))
    body = at[skip:]
    for tail in _TAILS:
        part = body[len(body) - int(tail * len(body)) :]
        if len(part) < context.value("memory_leak.records") * 2 // 3:
            break
        growth = _fit(track, part)
        if _steady(context, track.values[part], growth):
            return _from_bend(context, track, body, growth)
    return _late(context, track, body)


def _late(context: Context, track: Track, body: IntArray) -> Growth | None:
    """A tail too short to be tried above: it must have grown by more, and beyond the noise."""
    size = int(_TAILS[-1] * _SHORTER * len(body))
    while size >= context.value("memory_leak.late_records"):
        part = body[len(body) - size :]
        growth = _fit(track, part)
        enough = growth.share >= context.value("memory_leak.few_share")
        if enough and _steady(context, track.values[part], growth):
            beyond = growth.end - growth.begin >= _noise_beside(context, track, part)
            return growth if beyond else None
        size = int(size * _SHORTER)
    return None


def _from_bend(context: Context, track: Track, body: IntArray, growth: Growth) -> Growth:
    """The growth from where it began, if that is later and its slope is certain as well."""
    begin = bend(track.values[body])
    if len(body) - begin < context.value("memory_leak.records") // 2:
        return growth
    later = _fit(track, body[begin:])
    return later if begin and later.slope.low > 0 and later.share > 0 else growth


def _fit(track: Track, part: IntArray) -> Growth:
    x = track.steps[part].astype(np.float64)
    slope = theil_sen(x, track.values[part])
    return Growth(
        start=int(part[0]),
        stop=int(part[-1]) + 1,
        slope=slope,
        begin=slope.intercept + slope.slope * x[0],
        end=slope.intercept + slope.slope * x[-1],
    )


def _steady(context: Context, values: FloatArray, growth: Growth) -> bool:
    """Grows all along: certain slope, every window above the one before, no saturation."""
    th = context.thresholds
    if growth.slope.low <= 0 or growth.share < th.value("memory_leak.info_share"):
        return False
    if growth.slope.trend < th.value("memory_leak.trend"):
        return False
    if straightness(values) < th.value("memory_leak.straightness"):
        return False
    middles = np.array([np.median(part) for part in np.array_split(values, _WINDOWS)])
    rising = np.diff(middles) > 0
    half = _WINDOWS // 2
    first, second = middles[half] - middles[0], middles[-1] - middles[half - 1]
    goes_on = second >= th.value("memory_leak.goes_on") * first
    return bool(rising.mean() >= th.value("memory_leak.rising") and rising[-1] and goes_on)


def _short(context: Context, track: Track, at: IntArray) -> Growth | None:
    """Few records: only a straight line that rises at every record to the last, and by a lot."""
    flat = np.flatnonzero(np.diff(track.values[at]) <= 0)
    at = at[int(flat[-1]) + 1 :] if len(flat) else at
    rises = np.diff(track.values[at])
    if len(rises):  # noise may rise as well; the growth begins where its pace does
        at = at[int(np.argmax(rises >= 0.3 * np.median(rises))) :]
    if len(at) < context.value("memory_leak.few_records"):
        return None
    values, x = track.values[at], track.steps[at].astype(np.float64)
    if len(np.unique(x)) < len(x):
        return None
    straight = float(np.corrcoef(x, values)[0, 1] ** 2)
    growth = _fit(track, at)
    enough = growth.share >= context.value("memory_leak.few_share")
    enough &= growth.end - growth.begin >= _noise_beside(context, track, at)
    return growth if enough and straight >= context.value("memory_leak.few_r2") else None


def _noise_beside(context: Context, track: Track, at: IntArray) -> float:
    """How far a few records of a long log rise by chance: its noise beside them tells."""
    beside = np.delete(track.values, at)
    beside = beside[np.isfinite(beside)]
    if len(beside) < context.value("memory_leak.records"):
        return 0.0
    few = int(context.value("memory_leak.few_records"))
    return context.value("memory_leak.few_sigma") * long_noise(beside, few)
