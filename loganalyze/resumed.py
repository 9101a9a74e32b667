"""Two attempts side by side: the steps that were run twice, and data that was served again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from loganalyze.series_trend import running_median
from loganalyze.tracks import FloatArray, IntArray, Track

#: Records left out at the start of a run: its curve falls too fast to be taken off by a median.
_START, _AROUND = 10, 11


class Twice(Struct, frozen=True, kw_only=True):
    """Steps that both attempts logged, and the second value minus the first."""

    steps: IntArray
    differences: FloatArray
    first: FloatArray


def sides(tracks: Sequence[Track], segment: int) -> tuple[Track, Track] | None:
    """The last track before a segment and the segment's own; None without both."""
    own = [t for t in tracks if t.segment == segment and len(t)]
    before = [t for t in tracks if t.segment < segment and len(t)]
    if not own or not before:
        return None
    later = max(own, key=len)
    same = [t for t in before if t.rank == later.rank] or before
    return max(same, key=lambda t: (t.segment, len(t))), later


def run_twice(before: Track, after: Track) -> Twice:
    """The steps run twice, in order."""
    common = np.intersect1d(before.steps, after.steps)
    first = before.values[np.searchsorted(before.steps, common)]
    second = after.values[np.searchsorted(after.steps, common)]
    good = np.isfinite(first) & np.isfinite(second)
    return Twice(steps=common[good], differences=(second - first)[good], first=first[good])


class Bump(Struct, frozen=True, kw_only=True):
    """Steps run twice, in thirds: how much higher the second time was (nat), first and at the end.

    link: correlation of both times' changes from record to record, behind the first third; near 1
    where the same weights saw the same data.
    """

    rise: float
    rest: float
    link: float


def bump_of(twice: Twice) -> Bump | None:
    """None for fewer than nine records, or where nothing swings."""
    third = len(twice.steps) // 3
    if third < 3:
        return None
    first = twice.first[third:]
    moves, again = np.diff(first), np.diff(first + twice.differences[third:])
    if np.std(moves) == 0 or np.std(again) == 0:
        return None
    return Bump(
        rise=float(np.mean(twice.differences[:third])),
        rest=float(np.mean(twice.differences[-third:])),
        link=float(np.corrcoef(moves, again)[0, 1]),
    )


def served_again(tracks: Sequence[Track], after: Track) -> tuple[float, float, int]:
    """Whether a resumed attempt went through the data of the run's very first steps again.

    How hard its batches are makes a loss swing from step to step; the same batches swing alike.
    Correlation of what is left of the losses when their running median is taken off: that of the
    resumed attempt from its beginning with that of the run from its beginning.
    Returns correlation, deviations (correlation times the root of the records), records.
    """
    origin = next((t for t in tracks if t.segment == 0 and len(t)), None)
    if origin is None or origin is after or int(origin.steps[0]) > 2 * origin.interval:
        return 0.0, 0.0, 0
    count = min(len(after), len(origin)) - _AROUND
    if count < 40:
        return 0.0, 0.0, 0
    pair = [_swings(track)[_START : _START + min(count, 200)] for track in (origin, after)]
    size = min(len(part) for part in pair)
    one, two = (part[:size] for part in pair)
    good = np.isfinite(one) & np.isfinite(two)
    if good.sum() < 30 or np.std(one[good]) == 0 or np.std(two[good]) == 0:
        return 0.0, 0.0, 0
    link = float(np.corrcoef(_ranks(one[good]), _ranks(two[good]))[0, 1])
    return link, link * float(np.sqrt(good.sum())), int(good.sum())


def _swings(track: Track) -> FloatArray:
    return np.asarray(track.values - running_median(track.values, _AROUND), dtype=np.float64)


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks of values, so that single spikes do not make the correlation."""
    return np.argsort(np.argsort(values)).astype(np.float64)
