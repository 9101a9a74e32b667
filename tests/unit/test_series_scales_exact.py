"""The scales on which excursions are looked for, against loops that follow their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from loganalyze.series import Floats
from loganalyze.series_events import _chance_of_row
from loganalyze.series_levels import (
    CLIP,
    COARSE_FLOOR,
    EARLY,
    EARLY_MARGIN,
    LEAP,
    MAD_TO_SIGMA,
    SHORT,
    Level,
    Search,
    _settled,
    coarse_levels,
    early_level,
    fine_level,
    pair_levels,
)

SEARCH = Search(z=4.0, coarse_z=5.0, chance=1e-6, floor=0.002)


def median_of(values: list[float]) -> float:
    """The middle of the sorted values."""
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else 0.5 * (values[half - 1] + values[half])


def before(x: list[float], at: int, width: int) -> list[float]:
    """Up to `width` values before a place."""
    return x[max(0, at - width) : at]


def around(x: list[float], at: int, width: int) -> list[float]:
    """`width` values around a place, the ends repeated."""
    half, end = width // 2, len(x) - 1
    return [x[min(max(k, 0), end)] for k in range(at - half, at + half + 1)]


def series(seed: int, points: int) -> Floats:
    """A falling curve with noise, a spike and a level."""
    draw = np.random.default_rng(seed)
    y = 2.0 + 3.0 / np.sqrt(np.arange(1, points + 1)) + draw.standard_t(5, points) * 0.02
    y[points // 2 : points // 2 + 3] += 0.5
    y[3 * points // 4 :] += 0.1
    return y


def slow_fine(y: list[float], window: int) -> tuple[list[float], ...]:
    """Centre, base, sigma and deviation of every point, one after the other."""
    centre = [median_of(around(y, at, window)) for at in range(len(y))]
    middle = [median_of(before(y, at, window)) if at else y[0] for at in range(len(y))]
    rest = [a - b for a, b in zip(y, middle, strict=True)]
    lag = [
        median_of(before(rest, at, window)) if at >= window // 2 else 0.0 for at in range(len(y))
    ]
    gaps = [abs(a - b) for a, b in zip(rest, lag, strict=True)]
    base, sigma, z = [], [], []
    for at in range(len(y)):
        spread = MAD_TO_SIGMA * median_of(before(gaps, at, 2 * window - 1)) if at else 0.0
        seen = max(at, 1)
        known = max(spread, SEARCH.floor) * (1.0 + (3.0 / seen if seen < 30 else 0.0))
        trend = max(lag[at], -2.0 * known)
        base.append(middle[at] + trend)
        sigma.append(known)
        z.append((rest[at] - trend) / known if rest[at] > 0 else 0.0)
    return centre, base, sigma, z


@pytest.mark.parametrize("window", [15, 31])
@pytest.mark.parametrize("seed", range(4))
def test_single_points(seed: int, window: int) -> None:
    """Centre, base, spread and deviation are medians of windows, point by point."""
    y = series(seed, 400)
    level = fine_level(y, SEARCH, window)
    centre, base, sigma, z = slow_fine(y.tolist(), window)
    np.testing.assert_allclose(level.centre, centre, rtol=1e-12)
    np.testing.assert_allclose(level.base, base, rtol=1e-12)
    np.testing.assert_allclose(level.sigma, sigma, rtol=1e-12)
    np.testing.assert_allclose(level.tails[0].z, z, rtol=1e-9, atol=1e-12)


def slow_blocks(
    y: Floats, centre: Floats, sigma: Floats, floor: Floats, size: int, width: int, count: int
) -> tuple[list[float], list[float]]:
    """Spread and deviation of every mean of `count` blocks."""
    clipped = [
        min(max(v, c - CLIP * s), c + CLIP * s) for v, c, s in zip(y, centre, sigma, strict=True)
    ]
    number = len(y) // size
    blocks = [sum(clipped[k * size : (k + 1) * size]) / size for k in range(number)]
    width = min(width, max(SHORT, number // 16 | 1))
    mean = [sum(blocks[k - count + 1 : k + 1]) / count if k >= count - 1 else math.nan
            for k in range(number)]  # fmt: skip
    rest = [
        mean[k] - median_of(before(blocks, k - count + 1, width)) if k >= count else math.nan
        for k in range(number)
    ]
    told = [0.0 if math.isnan(value) else value for value in rest]
    null = [mean[k] - median_of(around(blocks, max(k - count // 2, 0), width))
            for k in range(number)]  # fmt: skip
    spread = MAD_TO_SIGMA * median_of([abs(value) for value in null if not math.isnan(value)])
    typical = median_of(sigma.tolist())
    own = np.array([float(np.mean(sigma[k * size : (k + 1) * size])) for k in range(number)])
    local = (_settled(own, width // 2) / typical).tolist()
    sigmas, z = [], []
    for k in range(number):
        least = COARSE_FLOOR * float(np.mean(floor[k * size : (k + 1) * size]))
        known = max(spread * local[k], typical * local[k] / math.sqrt(size * count), least)
        sigmas.append(known)
        late = k >= width // 2 and k > count
        lag = median_of(before(told, k - count, 2 * width + 1)) if late else 0.0
        recent = median_of(before(told, k - count, width // 4 | 1)) if late else 0.0
        lag = recent if recent - lag > known else lag
        lag *= min(max(2.0 * width / max(k, 1), 1.0), 2.5) if lag > 0 else 1.0
        far = rest[k] > 0.5 * known and k >= width // 2
        z.append((rest[k] - max(lag, -3.0 * known)) / known if far else 0.0)
    return sigmas, z


@pytest.mark.parametrize(("size", "width", "count"), [(4, 65, 5), (8, 33, 4), (2, 9, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_means_of_blocks(seed: int, size: int, width: int, count: int) -> None:
    """Spread and deviation of the coarser scales follow their definition, block by block."""
    y = series(seed, 1201)
    fine = fine_level(y, SEARCH)
    (level,) = coarse_levels(y, fine, SEARCH, [(size, width, count)])
    sigma, z = slow_blocks(y, fine.centre, fine.sigma, fine.floor, size, width, count)
    np.testing.assert_allclose(level.sigma, sigma, rtol=1e-9)
    np.testing.assert_allclose(level.z, z, rtol=1e-6, atol=1e-9)


def slow_early(y: list[float], fine: Level) -> tuple[list[float], list[float], list[float]]:
    """Deviation, base and sigma of the first points, leaps against the trend included."""
    leaps = [y[k] - y[max(k - 1, 0)] for k in range(len(y))]
    sizes = [abs(leap) for leap in leaps]
    limit = fine.limit * EARLY_MARGIN
    z, base, sigma = [], [], []
    for k, leap in enumerate(leaps):
        spread = MAD_TO_SIGMA * median_of(before(sizes, k, 2 * EARLY[1] - 1)) if k else 0.0
        known = max(spread, 1.5 * float(fine.floor[k]))
        known *= 1.0 + (3.0 / max(k, 1) if k < 30 else 0.0)
        one, two, three = (y[max(k - by, 0)] for by in (1, 2, 3))
        middle = max(one, min(two, three) - known)
        high = min(leap, y[k] - middle) / known if y[k] > max(one, two, three) else 0.0
        high = high if k >= EARLY[1] else 0.0
        own = float(fine.z[k])
        if high > own and high > SEARCH.z and y[k] - middle > LEAP:
            z.append(max(high, 1.001 * limit, own))
        else:
            z.append(max(high, own))
        base.append(middle if high > own else float(fine.base[k]))
        sigma.append(known if high > own else float(fine.sigma[k]))
    return z, base, sigma


@pytest.mark.parametrize("seed", range(6))
def test_first_points(seed: int) -> None:
    """The scale of the first points follows its definition, point by point."""
    y = series(seed, 350)
    y[40 + seed :] += 0.4
    fine = fine_level(y[: EARLY[0]], SEARCH, EARLY[1])
    level = early_level(y, SEARCH)
    z, base, sigma = slow_early(y[: EARLY[0]].tolist(), fine)
    np.testing.assert_allclose(level.z, z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(level.base, base, rtol=1e-12)
    np.testing.assert_allclose(level.sigma, sigma, rtol=1e-12)
    assert level.limit == pytest.approx(fine.limit * EARLY_MARGIN)


@pytest.mark.parametrize("seed", range(6))
def test_two_points_in_a_row(seed: int) -> None:
    """Of two neighbours a leap above the base the lower one tells, and both are flagged."""
    y = series(seed, 500)
    y[200:202] += 0.3
    fine = fine_level(y, SEARCH)
    levels = pair_levels(y, fine, replace(SEARCH, pairs=True))
    assert levels
    early = fine_level(y[: EARLY[0]], SEARCH, EARLY[1])
    for level in levels:  # the long one is missing where neighbours have much in common
        own = fine if len(level.z) == len(y) else early
        n = len(own.z)
        high = [float(own.z[k]) if y[k] - own.base[k] > LEAP else 0.0 for k in range(n)]
        low = [min(high[k], high[max(k - 1, 0)]) for k in range(n)]
        want = [max(low[k], low[k + 1] if k + 1 < n else 0.0) for k in range(n)]
        np.testing.assert_allclose(level.z, want, rtol=1e-12)
        assert level.z[200] == level.z[201] > 0


@pytest.mark.parametrize("seed", range(20))
def test_chance_of_a_row(seed: int) -> None:
    """Each high point after the first is four times less likely; few, or holes, say nothing."""
    draw = np.random.default_rng(seed)
    rest = draw.normal(2.0, 1.0, int(draw.integers(1, 60)))
    high = [value for value in rest.tolist() if value > 2.5 * 0.5]
    want = 1.0
    if len(high) >= 4 and len(high) / len(rest) >= 0.6:
        want = 0.012
        for _ in range(min(len(high) - 1, 40)):
            want /= 4.0
    assert _chance_of_row(rest, 0.5) == pytest.approx(want, rel=1e-12)
