"""Periods: positions that come back every so often, among others that do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

IntArray = npt.NDArray[np.int64]

#: Search for a period: neighbours that make distances, points used, distances tried.
_NEAR, _CANDIDATE_POINTS, _CANDIDATES = 6, 4000, 12


class Period(Struct, frozen=True, kw_only=True):
    """Positions that come back: position = phase + k * period; hits of the expected were seen."""

    period: int
    phase: int
    hits: int
    expected: int
    strays: int  # positions beside the comb
    gap: float  # the period before rounding
    centre: float  # the phase before rounding

    def on_comb(self, positions: IntArray, unit: int) -> npt.NDArray[np.bool_]:
        """Which positions lie on the comb: within half a unit, or a fiftieth of a long period."""
        turns = np.round((positions - self.centre) / self.gap)
        off = np.abs(positions - self.centre - turns * self.gap)
        return np.asarray(off <= max(0.5 * unit, min(0.02 * self.gap, 2.0 * unit)), dtype=np.bool_)


def period_of(positions: IntArray, first: int, last: int, unit: int) -> Period | None:
    """The comb in [first, last] that the positions fill best, or None with fewer than three.

    unit: distance of two neighbouring points (positions are known no finer). Candidates are the
    most frequent distances of near neighbours; each gets its most frequent phase and is sharpened
    by the line through its members. The best has the most hits, weighted by how full it is.
    """
    if len(positions) < 3:
        return None
    combs = [_comb(positions, gap, first, last, unit) for gap in _gaps(positions, unit)]
    return max(combs, key=lambda comb: (comb.hits**2 / comb.expected, comb.period))


def _gaps(positions: IntArray, unit: int) -> IntArray:
    """The most frequent distances between positions that stand near each other."""
    some = positions[:_CANDIDATE_POINTS]
    apart = np.concatenate([some[k:] - some[:-k] for k in range(1, min(_NEAR, len(some) - 1) + 1)])
    rounded = np.maximum(1, np.round(apart / unit)).astype(np.int64) * unit
    gaps, counts = np.unique(rounded, return_counts=True)
    order = np.lexsort((gaps, -counts))
    return np.asarray(gaps[order[:_CANDIDATES]], dtype=np.int64)


def _comb(positions: IntArray, gap: int, first: int, last: int, unit: int) -> Period:
    phases = np.round((positions % gap) / unit).astype(np.int64)
    seen, counts = np.unique(phases, return_counts=True)
    centre = float(seen[np.argmax(counts)] * unit)
    comb = _period(positions, float(gap), centre, first, last, unit)
    members = positions[comb.on_comb(positions, unit)]
    turns = np.round((members - comb.centre) / comb.gap)
    if len(members) < 3 or turns[-1] == turns[0]:
        return comb
    sharper = float((members[-1] - members[0]) / (turns[-1] - turns[0]))
    centre = float(np.median(members - turns * sharper))
    better = _period(positions, sharper, centre, first, last, unit)
    return better if better.hits >= comb.hits else comb


def _period(
    positions: IntArray, gap: float, centre: float, first: int, last: int, unit: int
) -> Period:
    comb = Period(
        period=max(1, round(gap)),
        phase=round(centre) % max(1, round(gap)),
        hits=0,
        expected=_teeth(first, last, centre, gap),
        strays=0,
        gap=gap,
        centre=centre,
    )
    members = positions[comb.on_comb(positions, unit)]
    hits = len(np.unique(np.round((members - centre) / gap)))
    return replace(comb, hits=hits, strays=len(positions) - len(members))


def _teeth(first: int, last: int, centre: float, gap: float) -> int:
    """How many positions of a comb lie in [first, last], a fiftieth of a gap forgiven."""
    upper = np.floor((last - centre) / gap + 0.02)
    lower = np.ceil((first - centre) / gap - 0.02)
    return max(1, int(upper - lower) + 1)
