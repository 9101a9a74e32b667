"""The scales on which excursions are looked for: baseline, spread and limit before each point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.running import centred_median, median, normal_quantile
from loganalyze.series import (
    MAD_TO_SIGMA,
    Bools,
    Floats,
    block_means,
    finite,
    lag_correlation,
    past_mean,
    past_median,
    stretches,
)
from loganalyze.series_outliers import memory_of, surprise

#: Points of the baseline, for single points and for the two coarser scales (in blocks).
WINDOW = 101
#: The first points of a run fall too fast for that window: (points, window) of one more scale.
EARLY = (300, 15)
EARLY_MARGIN = 1.2
LEAP = 0.17  # log of a leap that counts from search.z on: 20 %, less one deviation
Scales = Sequence[tuple[int, int, int]]
#: The coarser scales: block size, baseline in blocks, blocks in the tested mean.
COARSE: Scales = ((4, 129, 5), (32, 33, 4))
SHORT = 65  # blocks of the baseline of a short curve, which still falls; a long one has settled
COARSE_FLOOR = 0.4  # of the floor of single points: means of many are better known
CLIP = 2.5  # deviations at which single points are clipped before they are averaged
TAIL_SHARE = 0.004  # share of points in the lower tail from which the upper one is foretold
TRIMMED = 0.05  # share of that tail, at its end, which does not speak: an edge of the curve may
PRIOR_POWER, PRIOR_POINTS = 6.0, 20  # of a tail about which little is known
BEND = 5.0  # Student's t falls as a power of sqrt(z**2 + freedom * scale**2), not of z
POWERS = (3.5, 12.0)  # of a tail, from heavier than Student's t with 4 degrees to nearly normal
NORMAL_MARGIN = 1.05  # four blocks of clipped heavy-tailed points are not quite normal
ALONE = 0.2  # of the chance, for the deviation that does not look at neighbours
PAIR_MOST = 4000  # points, beyond which pairs tell nothing new
PAIR_MEMORY = 0.3  # correlation of neighbours from which on two high points are no two surprises
_LARGEST = np.finfo(np.float64).max
MOST = 400  # candidates of one pass; more would be another kind of series, not events


class Search(Struct, frozen=True, kw_only=True):
    """What counts as an excursion.

    z: least deviation (robust standard deviations), coarse_z: the same for the coarser scales.
    chance: share of healthy points that may be taken for an event. floor: smallest deviation
    that is believed, in the unit of the series; floor_of_exp: the same in the unit of exp(series),
    where the series is a logarithm. skip: points at the start that are not judged. pairs: whether
    two high points in a row, LEAP or more above the base, may make an event where one would not.
    """

    z: float
    coarse_z: float
    chance: float
    floor: float
    floor_of_exp: float = 0.0
    skip: int = 1
    pairs: bool = False


class Tail(Struct, frozen=True):
    """How far noise goes: `chance` of its points beyond `limit`, falling as a power from there."""

    z: Floats
    limit: float
    power: float
    chance: float

    def beyond(self, first: int, last: int) -> float:
        """Share of points that noise takes beyond the highest of places [first, last]."""
        high = self.z[first : last + 1].max()
        bent = np.hypot((self.limit, high), np.sqrt(BEND))  # squares of 1e200 are beyond a double
        return float(self.chance * np.power(bent[0] / bent[1], self.power)) if high > 0 else 1.0


class Level(Struct, frozen=True):
    """One scale: base and sigma (of the tested mean) before each point, deviations, limit."""

    centre: Floats
    base: Floats
    sigma: Floats
    floor: Floats
    z: Floats
    limit: float
    tails: tuple[Tail, ...]  # of every test that must agree before an event is rare
    size: int  # points in a block
    count: int  # blocks in the tested mean
    reach: int  # points that the baseline looks back


def tail_limit(
    null: Floats, chance: float, least: float, steeper: float = 1.0
) -> tuple[float, float]:
    """Deviation that the share `chance` of points exceeds, foretold from the lower tail; its power.

    null: standardised points, the lower tail of which holds noise only. Hill's estimator of the
    tail's power, drawn to PRIOR_POWER as by PRIOR_POINTS more points; never below `least`.
    steeper: factor on the powers that are expected, for a statistic that falls off faster.
    """
    low = -finite(null)
    count = max(5, int(TAIL_SHARE * len(low)))
    if len(low) < 2 * count:
        return least, PRIOR_POWER * steeper
    top = np.sort(np.partition(low, len(low) - count)[len(low) - count :])
    if top[0] <= 0:
        return least, PRIOR_POWER * steeper
    bent = np.sqrt(top**2 + BEND)
    rank = np.arange(count - 1, 0, -1)  # of the larger of two neighbours, 1 for the largest
    gaps = (rank * np.log(bent[1:] / bent[:-1]))[rank > TRIMMED * count]
    prior = PRIOR_POINTS / (PRIOR_POWER * steeper)
    power = (len(gaps) + PRIOR_POINTS) / (float(np.sum(gaps)) + prior)
    power = float(np.clip(power, POWERS[0] * steeper, POWERS[1] * steeper))
    limit = bent[0] * (count / len(low) / chance) ** (1.0 / power)
    return max(least, float(np.sqrt(max(limit**2 - BEND, 0.0)))), power


def fine_level(y: Floats, search: Search, window: int = WINDOW) -> Level:
    """Scale of single points: base and spread of the `window` points before."""
    centre = centred_median(y, window)
    base = past_median(y, window, centre)
    base[:1] = y[:1]
    rest = y - base
    lag = past_median(rest, window)
    lag[: window // 2] = 0.0
    sigma = MAD_TO_SIGMA * past_median(np.abs(rest - lag), 2 * window - 1)
    floor = np.broadcast_to(np.maximum(search.floor, _floor_of_exp(search, base)), y.shape)
    sigma = _doubted(np.fmax(np.minimum(sigma, _LARGEST), floor))
    trend = np.maximum(lag, -2.0 * sigma)  # a falling series leaves its past median above it
    signed = (rest - trend) / sigma
    z = np.where(rest > 0, signed, 0.0)
    null = (y - centre) / sigma
    null = null[window:] if len(y) > 2 * window else null
    limit, power = tail_limit(null, search.chance, search.z)
    tails: tuple[Tail, ...] = (Tail(z, limit, power, search.chance),)
    if memory := memory_of(null):
        odd = _beside_neighbours(signed, null, memory, power, search)
        alone, _ = tail_limit(null, ALONE * search.chance, search.z)
        z = np.maximum(odd.z, z * (odd.limit / alone))
        limit, tails = odd.limit, (*tails, odd)
    return Level(
        centre=centre,
        base=base + trend,
        sigma=sigma,
        floor=floor,
        z=z,
        limit=limit,
        tails=tails,
        size=1,
        count=1,
        reach=4 * window,
    )


def _floor_of_exp(search: Search, base: Floats) -> Floats | float:
    """The floor in the unit of exp(series); 0.0 where it is nowhere above the other one."""
    lowest = base.min() if len(base) else np.inf
    most = search.floor_of_exp * np.exp(-lowest) if search.floor_of_exp else 0.0
    return search.floor_of_exp * np.exp(-base) if most > search.floor else 0.0


def _beside_neighbours(
    signed: Floats, null: Floats, memory: float, power: float, search: Search
) -> Tail:
    """What is surprising beside its neighbours, where those are correlated.

    It gets most of the chance; the deviation alone, which also sees a rise over several points,
    gets the rest (ALONE).
    """
    mirrored = -surprise(-null, memory, power)
    chance = (1.0 - ALONE) * search.chance
    limit, fall = tail_limit(mirrored, chance, search.z)
    return Tail(surprise(signed, memory, power), limit, fall, chance)


def early_level(y: Floats, search: Search) -> Level:
    """The scale of the first points: a short window, and leaps against the trend.

    A leap is a difference to the point before that stands out from the differences before it and
    ends above the last three points. The short window knows less, so the limit is wider.
    """
    part = y[: EARLY[0]]
    level = fine_level(part, search, EARLY[1])
    last = np.concatenate((part[:1], part[:-1]))
    leap = part - last
    sigma = np.nan_to_num(MAD_TO_SIGMA * past_median(np.abs(leap), 2 * EARLY[1] - 1))
    sigma = _doubted(np.maximum(sigma, 1.5 * level.floor))
    three = np.array([_later(part, by) for by in (1, 2, 3)])
    middle = np.maximum(last, three[1:].min(axis=0) - sigma)  # one low point is no level
    z = np.where(part > three.max(axis=0), np.minimum(leap, part - middle) / sigma, 0.0)
    z[: EARLY[1]] = 0.0
    against = z > level.z
    limit = level.limit * EARLY_MARGIN
    great = against & (z > search.z) & (part - middle > LEAP)
    z = np.maximum(np.where(great, np.maximum(z, 1.001 * limit), z), level.z)
    return replace(
        level,
        z=z,
        base=np.where(against, middle, level.base),
        sigma=np.where(against, sigma, level.sigma),
        limit=limit,
        tails=(Tail(z, limit, level.tails[0].power, search.chance),),
    )


def pair_levels(y: Floats, fine: Level, search: Search) -> list[Level]:
    """The scales of two points in a row: beside the long window, and early beside the short one.

    A long series tells well enough how far single points go.
    """
    part = y[: EARLY[0]]
    made = [_pairs(y, fine, search, WINDOW)] if len(y) < PAIR_MOST else []
    if len(part) >= 2 * EARLY[1]:
        made.append(_pairs(part, fine_level(part, search, EARLY[1]), search, EARLY[1]))
    return [level for level in made if level is not None]


def _pairs(y: Floats, level: Level, search: Search, window: int) -> Level | None:
    """Of two points in a row the lower one tells. None where neighbours have much in common.

    Independent noise goes beyond a height twice running with the square of the chance, so the tail
    of pairs is foretold with twice the power, less what neighbours have in common.
    """
    null = (y - level.centre) / level.sigma
    null = null[window:] if len(y) > 2 * window else null
    link = max(lag_correlation(null), 0.0)
    if link > PAIR_MEMORY or len(null) < 2 * EARLY[1]:
        return None
    margin = EARLY_MARGIN if window == EARLY[1] else 1.0
    foretold, power = tail_limit(-_lower_of_two(-null), search.chance, 0.0, 2.0 / (1.0 + link))
    limit = max(search.z, margin * foretold)
    z = _lower_of_two(np.where(y - level.base > LEAP, level.z, 0.0))
    z = np.maximum(z, np.append(z[1:], 0.0))  # both points of a pair
    return replace(level, z=z, limit=limit, tails=(Tail(z, limit, power, search.chance),))


def _lower_of_two(z: Floats) -> Floats:
    """The lower of each point and the one before it."""
    return np.minimum(z, np.append(z[:1], z[:-1]))


def _doubted(sigma: Floats) -> Floats:
    """The same array: deviations estimated from 0, 1, 2, ... points are too small to rely on."""
    head = np.maximum(np.arange(min(len(sigma), 30), dtype=np.float64), 1.0)
    sigma[: len(head)] *= 1.0 + 3.0 / head
    return sigma


def coarse_levels(y: Floats, fine: Level, search: Search, scales: Scales = COARSE) -> list[Level]:
    """The scales of means of blocks, single points clipped; those the series is long enough for."""
    scales = [one for one in scales if len(y) >= one[0] * (one[1] // 2 + one[2])]
    if not scales:
        return []
    reach = CLIP * fine.sigma
    calm, typical = np.clip(y, fine.centre - reach, fine.centre + reach), median(fine.sigma)
    return [_coarse_level(calm, typical, fine, *scale, search) for scale in scales]


def _coarse_level(
    calm: Floats, typical: float, fine: Level, size: int, width: int, count: int, search: Search
) -> Level:
    """Scale of `count` blocks of `size` clipped points; typical: the median of their spread."""
    blocks = block_means(calm, size)
    width = min(width, max(SHORT, len(blocks) // 16 | 1))
    mean = past_mean(blocks, count)
    centre = centred_median(blocks, width)
    base = _later(past_median(blocks, width, centre), count - 1)
    rest = mean - base
    lag, recent = _lags(np.nan_to_num(rest), width, count)
    null = mean - _later(centre, count // 2)
    spread = MAD_TO_SIGMA * median(np.abs(null[~np.isnan(null)])) if len(blocks) else 0.0
    local = _settled(block_means(fine.sigma, size), width // 2) / typical
    sigma = np.maximum(spread * local, typical * local / np.sqrt(size * count))
    sigma = np.maximum(sigma, COARSE_FLOOR * block_means(fine.floor, size))
    lag = np.where(recent - lag > sigma, recent, lag)  # the level stepped down and holds still
    early = np.clip(2.0 * width / np.maximum(np.arange(len(lag)), 1), 1.0, 2.5)
    lag = np.where(lag > 0, lag * early, lag)  # a rise is known half at first
    trend = np.maximum(np.nan_to_num(lag), -3.0 * sigma)
    z = np.nan_to_num(np.where(rest > 0.5 * sigma, (rest - trend) / sigma, 0.0))
    z[: width // 2] = 0.0
    known = (null / sigma)[width:]
    tail, power = tail_limit(known, search.chance * size, search.coarse_z)
    limit = max(search.coarse_z, min(tail, _normal_limit(known, search.chance * size)))
    return Level(
        centre=centre,
        base=base + trend,
        sigma=sigma,
        floor=fine.floor,
        z=z,
        limit=limit,
        tails=(Tail(z, tail, power, search.chance),),
        size=size,
        count=count,
        reach=2 * size * width,
    )


def _lags(rest: Floats, width: int, count: int) -> tuple[Floats, Floats]:
    """How far a series runs ahead of its past median: over two windows, and over a quarter of one.

    0.0 where too little has been seen.
    """
    lags = [_later(past_median(rest, past), count) for past in (2 * width + 1, width // 4 | 1)]
    for lag in lags:
        lag[: width // 2] = 0.0
    return lags[0], lags[1]


def _settled(x: Floats, width: int) -> Floats:
    """Mean of the last `width` places; at the start of what there is."""
    mean = past_mean(x, width)
    head = np.cumsum(x[:width]) / np.arange(1, len(x[:width]) + 1)
    return np.concatenate((head, mean[width:]))


def _normal_limit(null: Floats, chance: float) -> float:
    """The same as tail_limit for means of many clipped points, whose tail is nearly normal."""
    low = -finite(null)
    if len(low) < 10 / TAIL_SHARE or chance >= TAIL_SHARE:
        return np.inf
    reached = float(np.quantile(low, 1.0 - TAIL_SHARE))
    return NORMAL_MARGIN * reached * normal_quantile(chance) / normal_quantile(TAIL_SHARE)


def _later(x: Floats, by: int) -> Floats:
    """The series moved `by` places to the right (left if negative), ends repeated."""
    if by == 0 or not len(x):
        return x
    if by > 0:
        return np.concatenate((np.full(min(by, len(x)), x[0]), x[:-by]))[: len(x)]
    return np.concatenate((x[-by:], np.full(min(-by, len(x)), x[-1])))[: len(x)]


def candidates(level: Level, skip: int) -> list[tuple[int, int]]:
    """Stretches of blocks whose deviation is beyond the limit of the level."""
    mask: Bools = level.z > level.limit
    mask[: -(-skip // level.size)] = False
    found = stretches(mask, gap=3)
    if len(found) > MOST:
        found = sorted(found, key=lambda pair: -float(level.z[pair[0] : pair[1] + 1].max()))[:MOST]
        found.sort()
    return found
