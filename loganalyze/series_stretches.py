"""Excursions of any series: a very long one is searched in stretches, which bounds the memory.

Each stretch sees enough of what comes before it for every baseline and enough of what comes after
for every end, and tells the events that begin in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec.structs import replace

from loganalyze.running import median
from loganalyze.series import Floats
from loganalyze.series_events import Excursion, excursions, joined
from loganalyze.series_levels import Search

#: Points of a stretch; a series of up to LONGEST points is searched in one go.
STRETCH = 1 << 18
LONGEST = 3 * STRETCH // 2
#: Points before a stretch: the farthest look back of a baseline and of the search for its first
#: points, about 2200 and 4200. After it: the longest wait for a peak to come back, and more.
BEFORE, AFTER = 8192, 4096


def last_parts(points: int, share: float, least: int) -> Iterator[int]:
    """Where the last `share` of a series begins, the last share of that, ... of `least` points.

    >>> list(last_parts(10_000, 0.4, 600))
    [6000, 8400, 9360]
    """
    size = int(points * share)
    while size >= least:
        yield points - size
        size = int(size * share)


def level_before(y: Floats, first: int) -> float:
    """Where the series stood as its last part began: the higher of the medians of that part's
    beginning and of as many points before it as it has."""
    size = len(y) - first
    begin, before = y[first : first + max(size // 60, 1)], y[max(first - size, 0) : first]
    return max(median(begin), median(before))


def all_excursions(y: Floats, search: Search) -> list[Excursion]:
    """All upward excursions of a finite series of any length, in order; see excursions()."""
    if len(y) <= LONGEST:
        return excursions(y, search)
    found: list[Excursion] = []
    count = -(-len(y) // STRETCH)
    edges = [len(y) * part // count for part in range(count + 1)]
    for first, end in pairwise(edges):
        found.extend(_of_stretch(y, first, end, search))
    return joined(found)


def _of_stretch(y: Floats, first: int, end: int, search: Search) -> list[Excursion]:
    """The events that begin at points [first, end), in places of the whole series."""
    start = max(0, first - BEFORE)
    own = search if not start else replace(search, skip=1, pairs=False)
    return [
        replace(event, onset=event.onset + start, peak=event.peak + start, end=event.end + start)
        for event in excursions(y[start : end + AFTER], own)
        if first <= event.onset + start < end
    ]
