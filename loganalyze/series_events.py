"""Excursions: stretches where a noisy, drifting series leaves its own past upwards.

Three scales (single points, 20 and 128 points), each judged against a baseline of past points
only. How far noise alone may go is learnt from the other side: the lower tail around a centred
median is the null distribution of the upper one. Points that belong to an excursion are then
replaced by its baseline and the series is searched again, so that one event does not hide, or
start, the next.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.running import median
from loganalyze.series import MAD_TO_SIGMA, Floats, past_mean
from loganalyze.series_levels import (
    EARLY,
    WINDOW,
    Level,
    Search,
    candidates,
    coarse_levels,
    early_level,
    fine_level,
    pair_levels,
)
from loganalyze.series_outliers import step_gain

WALK = 50  # points that an onset is followed back
PASSES = 4
LONGEST = 512  # points after which a peak that did not come back is a new level


class Excursion(Struct, frozen=True, kw_only=True):
    """One event: points [onset, end], highest at peak. base and height in the series' unit.

    z: deviation of the peak (of the mean, on a coarser scale) in robust standard deviations;
    limit: the deviation that noise of this series may reach; chance: share of points at which
    noise would reach z; span: points it was seen on (1, 20,
    128). recovered: whether the series came back to its base; None where it ends too soon to say.
    """

    onset: int
    peak: int
    end: int
    base: float
    height: float
    z: float
    limit: float
    chance: float
    sigma: float
    span: int
    recovered: bool | None


def excursions(y: Floats, search: Search) -> list[Excursion]:
    """All upward excursions of a finite series, in order. Rises too slow to stand out are none."""
    found: list[Excursion] = []
    work, offset = y, np.zeros(len(y))
    for _ in range(PASSES):
        new = _pass(work, offset, search, found)
        if not new:
            break
        found = joined(sorted([*found, *new], key=lambda e: (e.onset, e.end)))
        work, offset = _without(y, found)
    return _sharpened(y, found)


def _pass(work: Floats, offset: Floats, search: Search, known: list[Excursion]) -> list[Excursion]:
    """Events of one search, in order. What stands in the shadow of one is left to the next pass."""
    fine = fine_level(work, search)
    levels = [fine]
    if search.pairs:
        levels.extend(pair_levels(work, fine, search))
    if len(work) >= 2 * EARLY[1]:
        levels.append(early_level(work, search))
    levels.extend(coarse_levels(work, fine, search))
    places = [
        (first * level.size, first, last, level)
        for level in levels
        for first, last in candidates(level, search.skip)
    ]
    new: list[Excursion] = []
    for start, first, last, level in sorted(places, key=lambda place: (place[0], place[3].size)):
        if _inside(start, known) or (new and _shadowed(start, new, level)):
            continue
        new.append(_grown(work, offset, fine, level, first, last, search))
    return new


def _shadowed(start: int, new: list[Excursion], level: Level) -> bool:
    """Whether a new event lies so shortly before a place that its baseline is not to be trusted."""
    return any(event.end < start <= event.end + level.reach for event in new[-20:])


def _inside(at: int, events: list[Excursion]) -> bool:
    return any(event.onset <= at <= event.end + 3 for event in events)


def _grown(
    y: Floats, offset: Floats, fine: Level, level: Level, first: int, last: int, search: Search
) -> Excursion:
    """The event behind flagged places [first, last] of a level: onset, peak, end on raw points."""
    skip = search.skip
    best = first + int(np.argmax(level.z[first : last + 1]))
    base, z = float(level.base[first]), float(level.z[best])
    if level.size == 1:
        sigma = float(level.sigma[first])
        onset = _walk_back(y, first, base + 3.0 * sigma, skip)
        stop, recovered = _end_of_peak(y, first, last, base, sigma)
    else:
        start = max(skip, (first - level.count + 1) * level.size)
        sigma = float(fine.sigma[start])
        stretch = y[max(0, best - level.count + 1) * level.size : (best + 1) * level.size]
        clipped = float(level.z[best] * level.sigma[best])
        height = max(clipped, median(stretch) - base)
        onset = _step_up(y, start - level.count * level.size, (best + 1) * level.size, base, height)
        onset = max(onset, skip)
        stop, recovered = _end_of_level(y, onset, base, height, level.size * level.count)
    peak = onset + int(np.argmax(y[onset : stop + 1]))
    row = _chance_of_row(y[onset : stop + 1] - base, sigma) if level.size == 1 else 1.0
    return Excursion(
        onset=onset,
        peak=peak,
        end=stop,
        base=base + float(offset[onset]),
        height=float(y[peak] - base) if level.size == 1 else height,
        z=z,
        limit=level.limit,
        chance=min(max(tail.beyond(first, last) for tail in level.tails), row),
        sigma=sigma,
        span=level.size * level.count,
        recovered=recovered,
    )


def _chance_of_row(rest: Floats, sigma: float) -> float:
    """Chance that noise stays above 2.5 deviations for most of that many points.

    One point in a hundred of heavy-tailed noise lies there; after one that does, at most every
    fourth does (correlation of neighbours up to one half).
    """
    high = int((rest > 2.5 * sigma).sum())
    if high < 4 or high < 0.6 * len(rest):
        return 1.0
    return float(0.012 * 0.25 ** min(high - 1, 40))


def _walk_back(y: Floats, first: int, above: float, skip: int) -> int:
    """The first point of the rise: back over points above a height, one hole allowed."""
    at = first
    for back in range(first - 1, max(first - WALK, skip) - 1, -1):
        if y[back] > above:
            at = back
        elif at - back >= 2:
            break
    return at


def _end_of_peak(
    y: Floats, first: int, last: int, base: float, sigma: float
) -> tuple[int, bool | None]:
    """Last point of a peak, and whether five points after it are back near the base."""
    height = float(y[first : last + 1].max() - base)
    near = base + max(2.0 * sigma, 0.15 * height)
    reach = LONGEST // 4
    while True:
        part = y[last + 1 : last + 1 + reach]
        back = _first_calm(part, near, 5)
        if back is not None or last + 1 + reach >= len(y) or reach >= LONGEST:
            break
        reach *= 4
    if back is not None:
        return _trimmed(y, last, last + back, near), True
    if len(part) < 3:
        return (last, None) if not len(part) or part[-1] <= near else (len(y) - 1, None)
    return min(len(y) - 1, last + WINDOW), False


def _first_calm(part: Floats, near: float, count: int) -> int | None:
    """First place from which most of `count` points lie below `near`."""
    if len(part) < 3:
        return None
    count = min(count, len(part))
    low = np.cumsum(np.concatenate(([0], part <= near)))
    calm = (low[count:] - low[:-count]) * 2 > count
    calm &= part[: len(calm)] <= near
    return int(np.argmax(calm)) if calm.any() else None


def _trimmed(y: Floats, last: int, stop: int, near: float) -> int:
    high = np.flatnonzero(y[last : stop + 1] > near)
    return last + int(high[-1]) if len(high) else last


def _step_up(y: Floats, start: int, stop: int, base: float, height: float) -> int:
    """Most likely first point of a step of known height (the lowest point of the summed rest)."""
    start = max(start, 0)
    total = np.cumsum(y[start:stop] - base - 0.5 * height)
    low = int(np.argmin(np.concatenate(([0.0], total))))
    return min(start + low, stop - 1)


def _end_of_level(
    y: Floats, onset: int, base: float, height: float, count: int
) -> tuple[int, bool | None]:
    """Last point of a raised stretch: where the mean of `count` points first falls half back."""
    reach = 8 * count
    while True:
        part = y[onset : onset + reach] - base - 0.5 * height
        mean = past_mean(part, count)[count - 1 :]
        low = np.flatnonzero(mean < 0)
        if len(low) or onset + reach >= len(y) or reach >= max(LONGEST, 8 * count):
            break
        reach *= 4
    if not len(low):
        short = len(part) < 2 * count
        return min(len(y) - 1, onset + 2 * count), None if short else False
    part = part[: low[0] + count]
    return onset + int(np.argmax(np.cumsum(part))), True


def joined(events: list[Excursion]) -> list[Excursion]:
    """Events that touch become one, with the onset of the first and the strongest figures."""
    out: list[Excursion] = []
    for event in events:
        if out and event.onset <= out[-1].end + 3 and not _rides(event, out[-1]):
            out[-1] = _united(out[-1], event)
        else:
            out.append(event)
    return out


def _sharpened(y: Floats, events: list[Excursion]) -> list[Excursion]:
    """The same events, the onsets of those seen on a coarser scale found again on single points.

    Where several scales saw parts of a rise, the first point is looked for before all of them.
    """
    out: list[Excursion] = []
    for event in events:
        clear = out[-1].end + 1 if out else 0  # points before it belong to another event
        out.append(event if event.span == 1 else _first_point(y, event, clear))
    return out


def _first_point(y: Floats, event: Excursion, clear: int) -> Excursion:
    """The event with its most likely onset, given the levels before it and inside it."""
    start = max(clear, event.onset - 2 * event.span)
    calm = y[max(clear, start - max(2 * WINDOW, event.span)) : start]
    if len(calm) < WINDOW // 4:
        return event
    base = median(calm)
    height = median(y[event.onset : event.end + 1]) - base
    if height <= 0:
        return event
    sigma = max(MAD_TO_SIGMA * median(np.abs(calm - base)), 1e-12)
    gain = step_gain((y[start : event.end + 1] - base) / sigma, height / sigma)
    onset = start + int(np.argmax(np.cumsum(gain[::-1])[::-1]))
    return replace(event, onset=min(onset, event.peak))


def _rides(event: Excursion, on: Excursion) -> bool:
    """Whether an event is a sharper one on top of a slow rise that did not come back."""
    later = event.onset > on.onset + on.span
    return on.recovered is False and event.span < on.span and later


def _united(one: Excursion, two: Excursion) -> Excursion:
    strong = one if one.height >= two.height else two
    late = _said_last(one, two)
    sharp = two if two.span < one.span and two.onset - one.onset <= one.span else one
    return Excursion(
        onset=sharp.onset,
        peak=strong.peak,
        end=late.end,
        base=one.base,
        height=max(one.height, strong.base + strong.height - one.base),
        z=max(one.z, two.z),
        limit=strong.limit,
        chance=min(one.chance, two.chance),
        sigma=one.sigma,
        span=max(one.span, two.span) if one.span != 1 and two.span != 1 else 1,
        recovered=late.recovered,
    )


def _said_last(one: Excursion, two: Excursion) -> Excursion:
    """Which of two events tells the end: the later one; a longer mean knows better it did not end.

    A mean of few points falls half back by chance where the level only rose a little.
    """
    wide, narrow = (one, two) if one.span > two.span else (two, one)
    together = wide.onset <= narrow.onset + wide.span
    if 1 < narrow.span < wide.span and wide.recovered is False and together:
        return wide
    return one if one.end > two.end else two


def _without(y: Floats, events: list[Excursion]) -> tuple[Floats, Floats]:
    """The series with events replaced by their base, and the offset taken off it.

    After an event that did not come back, the new level is taken for the old one.
    """
    offset = np.zeros(len(y))
    for event in events:
        if event.recovered is False and event.end + 1 < len(y):
            after = y[event.end - WINDOW // 4 : event.end + WINDOW // 4]
            offset[event.onset :] += median(after) - event.base - offset[event.onset]
    out = y - offset
    for event in events:
        _fill(out, event.onset, event.end + 1, event.base - offset[max(event.onset - 1, 0)])
    return out, offset


def _fill(out: Floats, start: int, stop: int, base: float) -> None:
    """Put base + the noise of the points before, mirrored, so that the spread stays as it was."""
    if start < 2:
        out[start:stop] = base
        return
    reach = min(start, WINDOW)
    before = out[start - reach : start]
    noise = (before - median(before))[::-1]
    out[start:stop] = base + np.resize(noise, stop - start)
