"""The scales on which excursions are looked for: baseline, spread and limit before each point."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loganalyze.series import (
    MAD_TO_SIGMA,
    Bools,
    Floats,
    block_means,
    centred_median,
    past_mean,
    past_median,
    stretches,
)

#: Points of the baseline, for single points and for the two coarser scales (in blocks).
WINDOW = 101
#: The first points of a run fall too fast for that window: (points, window) of one more scale.
EARLY = (300, 15)
EARLY_MARGIN = 1.2
LEAP = 0.17  # log of a leap that counts from search.z on: 20 %, less one deviation
#: (block size, baseline in blocks) of the coarser scales; the tested mean is over four blocks.
COARSE = ((4, 65), (32, 33))
BLOCKS = 4
COARSE_FLOOR = 0.4  # of the floor of single points: means of many are better known
CLIP = 4.0  # deviations at which single points are clipped before they are averaged
TAIL_SHARE = 0.004  # share of points in the lower tail from which the upper one is foretold
PRIOR_POWER, PRIOR_POINTS = 6.0, 20  # of a tail about which little is known
POWERS = (3.5, 12.0)  # of a tail, from heavier than Student's t with 4 degrees to nearly normal
MOST = 400  # candidates of one pass; more would be another kind of series, not events


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What counts as an excursion.

    z: least deviation (robust standard deviations), coarse_z: the same for the coarser scales.
    chance: share of healthy points that may be taken for an event. floor: smallest deviation
    that is believed, in the unit of the series; floor_of_exp: the same in the unit of exp(series),
    where the series is a logarithm. skip: points at the start that are not judged.
    """

    z: float
    coarse_z: float
    chance: float
    floor: float
    floor_of_exp: float = 0.0
    skip: int = 1


@dataclass(frozen=True, slots=True)
class Level:
    """One scale: base and sigma (of the tested mean) before each point, deviations, limit."""

    centre: Floats
    base: Floats
    sigma: Floats
    floor: Floats
    z: Floats
    limit: float
    size: int  # points in a block
    power: float  # of the lower tail
    count: int  # blocks in the tested mean
    reach: int  # points that the baseline looks back


def tail_limit(null: Floats, chance: float, least: float) -> tuple[float, float]:
    """Deviation that the share `chance` of points exceeds, foretold from the lower tail; its power.

    null: standardised points, the lower tail of which holds noise only. Hill's estimator of the
    tail's power, drawn to PRIOR_POWER as by PRIOR_POINTS more points; never below `least`.
    """
    low = -null[np.isfinite(null)]
    count = max(5, int(TAIL_SHARE * len(low)))
    if len(low) < 2 * count:
        return least, PRIOR_POWER
    top = np.sort(np.partition(low, len(low) - count)[len(low) - count :])
    if top[0] <= 0:
        return least, PRIOR_POWER
    logs = float(np.sum(np.log(top / top[0])))
    power = (count + PRIOR_POINTS) / (logs + PRIOR_POINTS / PRIOR_POWER)
    power = float(np.clip(power, *POWERS))
    limit = top[0] * (count / len(low) / chance) ** (1.0 / power)
    return max(least, float(limit)), power


def fine_level(y: Floats, search: Search, window: int = WINDOW) -> Level:
    """Scale of single points: base and spread of the `window` points before."""
    centre = centred_median(y, window)
    base = past_median(y, window, centre)
    base[:1] = y[:1]
    rest = y - base
    lag = past_median(rest, window)
    lag[: window // 2] = 0.0
    sigma = MAD_TO_SIGMA * past_median(np.abs(rest - lag), 2 * window - 1)
    own = search.floor_of_exp * np.exp(-base) if search.floor_of_exp else 0.0
    floor = np.broadcast_to(np.maximum(search.floor, own), y.shape)
    sigma = np.maximum(np.nan_to_num(sigma), floor) * _few(len(y))
    trend = np.maximum(lag, -2.0 * sigma)  # a falling series leaves its past median above it
    z = np.where(rest > 0, (rest - trend) / sigma, 0.0)
    null = (y - centre) / sigma
    null = null[window:] if len(y) > 2 * window else null
    limit, power = tail_limit(null, search.chance, search.z)
    return Level(
        centre=centre,
        base=base + trend,
        sigma=sigma,
        floor=floor,
        z=z,
        limit=limit,
        power=power,
        size=1,
        count=1,
        reach=4 * window,
    )


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
    sigma = np.maximum(sigma, 1.5 * level.floor) * _few(len(part))
    three = np.array([_later(part, by) for by in (1, 2, 3)])
    middle = np.maximum(last, three[1:].min(axis=0) - sigma)  # one low point is no level
    z = np.where(part > three.max(axis=0), np.minimum(leap, part - middle) / sigma, 0.0)
    z[: EARLY[1]] = 0.0
    against = z > level.z
    limit = level.limit * EARLY_MARGIN
    great = against & (z > search.z) & (part - middle > LEAP)
    z = np.where(great, np.maximum(z, 1.001 * limit), z)
    return replace(
        level,
        z=np.maximum(z, level.z),
        base=np.where(against, middle, level.base),
        sigma=np.where(against, sigma, level.sigma),
        limit=limit,
    )


def _few(n: int) -> Floats:
    """By how much a deviation estimated from 0, 1, 2, ... points is too small to be relied on."""
    seen = np.maximum(np.arange(n, dtype=np.float64), 1.0)
    return 1.0 + np.where(seen < 30, 3.0 / seen, 0.0)


def coarse_level(y: Floats, fine: Level, size: int, width: int, search: Search) -> Level:
    """Scale of BLOCKS blocks of `size` points, single points clipped."""
    reach = CLIP * fine.sigma
    blocks = block_means(np.clip(y, fine.centre - reach, fine.centre + reach), size)
    mean = past_mean(blocks, BLOCKS)
    base = _later(past_median(blocks, width), BLOCKS - 1)
    rest = mean - base
    lag = _later(past_median(np.nan_to_num(rest), width), BLOCKS)
    lag[: width // 2] = 0.0
    centre = centred_median(blocks, width)
    null = mean - _later(centre, BLOCKS // 2)
    spread = MAD_TO_SIGMA * float(np.nanmedian(np.abs(null))) if len(blocks) else 0.0
    typical = float(np.median(fine.sigma))
    local = block_means(fine.sigma, size) / typical
    sigma = np.maximum(spread * local, typical * local / np.sqrt(size * BLOCKS))
    sigma = np.maximum(sigma, COARSE_FLOOR * block_means(fine.floor, size))
    early = np.clip(2.0 * width / np.maximum(np.arange(len(lag)), 1), 1.0, 2.5)
    lag = np.where(lag > 0, lag * early, lag)  # a rise is known half at first
    trend = np.maximum(np.nan_to_num(lag), -3.0 * sigma)
    z = np.where(rest > 0.5 * sigma, (rest - trend) / sigma, 0.0)
    z[:width] = 0.0
    limit, power = tail_limit((null / sigma)[width:], search.chance * size, search.coarse_z)
    return Level(
        centre=centre,
        base=base + trend,
        sigma=sigma,
        floor=fine.floor,
        z=np.nan_to_num(z),
        limit=limit,
        power=power,
        size=size,
        count=BLOCKS,
        reach=2 * size * width,
    )


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
