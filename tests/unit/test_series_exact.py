"""Every statistic of one series beside a slow second implementation: plain loops, or scipy's."""

from __future__ import annotations

import statistics
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from synth import noise

from loganalyze import series, series_levels, series_trend
from loganalyze.detectors.grad_common import _stale
from loganalyze.detectors.speed_shifts import mean_before
from loganalyze.series_events import Excursion, _first_point
from loganalyze.series_outliers import STEP_POWER, step_gain
from loganalyze.series_periods import period_of

SEEDS = range(3)


def wandering(seed: int, n: int = 200) -> np.ndarray:
    """A series with memory, heavy tails and one step."""
    x = noise(np.random.default_rng(seed), n, 1.0, memory=0.4)
    x[n // 2 :] += 2.0
    return x


def slow_mad(x: np.ndarray) -> float:
    """1.4826 times the median distance from the median, of plain numbers."""
    middle = statistics.median(x.tolist())
    return 1.4826 * statistics.median([abs(v - middle) for v in x.tolist()])


@pytest.mark.parametrize("seed", SEEDS)
def test_robust_spread_equals_the_definition(seed: int) -> None:
    """MAD with NaN left out, and the noise from first differences."""
    x = wandering(seed)
    assert series.mad_sigma(np.append(x, [np.nan, np.inf])) == pytest.approx(slow_mad(x))
    moves = [abs(b - a) for a, b in pairwise(x.tolist())]
    assert series_trend.noise(x) == pytest.approx(1.4826 * statistics.median(moves) / 2**0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_long_noise_equals_the_loop_over_blocks(seed: int) -> None:
    """The lower quartile of the distances of neighbouring means, as one point's deviation."""
    x = wandering(seed)
    means = [statistics.fmean(x[i : i + 8].tolist()) for i in range(0, 200, 8)]
    apart = sorted(abs(b - a) for a, b in pairwise(means))
    place = 0.25 * (len(apart) - 1)
    low = int(place)
    quartile = apart[low] + (place - low) * (apart[low + 1] - apart[low])
    far = quartile / (stats.norm.ppf(0.625) * 2**0.5) * 8**0.5
    assert series_trend.long_noise(x, 8) == pytest.approx(
        max(series_trend.noise(x), far), rel=1e-3
    )


@pytest.mark.parametrize("width", [1, 5, 51])
def test_running_medians_equal_the_loop_over_points(width: int) -> None:
    """One repeats the ends, the other mirrors them."""
    x, half = wandering(1, 120), width // 2
    repeated = np.concatenate((np.repeat(x[0], half), x, np.repeat(x[-1], half)))
    mirrored = np.concatenate((x[:half][::-1], x, x[len(x) - half :][::-1]))
    for made, around in (
        (series.centred_median(x, width), repeated),
        (series_trend.running_median(x, width), mirrored),
    ):
        slow = [statistics.median(around[i : i + width].tolist()) for i in range(len(x))]
        np.testing.assert_allclose(made, slow)
    centre, reach = series_trend.running_median(x, width), 3.0 * series_trend.noise(x)
    pulled = [min(max(v, c - reach), c + reach) for v, c in zip(x, centre, strict=True)]
    np.testing.assert_allclose(series_trend.winsorised(x, width, 3.0, 0.0), pulled)


def test_blocks_equal_the_loop_over_blocks() -> None:
    """Medians and means of whole blocks; a rest is left out, or joins the last block."""
    x = wandering(2, 47)
    parts = [x[i : i + 5].tolist() for i in range(0, 45, 5)]
    np.testing.assert_allclose(series.block_medians(x, 5), [statistics.median(p) for p in parts])
    np.testing.assert_allclose(series.block_means(x, 5), [statistics.fmean(p) for p in parts])
    parts[-1] += x[45:].tolist()
    made = series_trend.block_medians(x, 5)
    np.testing.assert_allclose(made, [statistics.median(p) for p in parts])


@pytest.mark.parametrize("seed", SEEDS)
def test_lag_correlation_equals_the_sums(seed: int) -> None:
    """Of points clipped at three robust deviations, their own mean taken off."""
    x = noise(np.random.default_rng(seed), 300, 1.0, memory=0.5)
    middle, sigma = statistics.median(x.tolist()), slow_mad(x)
    y = [min(max((v - middle) / sigma, -3.0), 3.0) for v in x.tolist()]
    mean = statistics.fmean(y)
    above = sum((a - mean) * (b - mean) for a, b in pairwise(y))
    made = series.lag_correlation(x)
    assert made == pytest.approx(above / sum((v - mean) ** 2 for v in y))
    assert series.inflation(made) == pytest.approx(((1 + made) / (1 - made)) ** 0.5)


def test_inflation_is_how_much_wider_means_scatter() -> None:
    """Means of 400 points of noise with a memory of one half, over those of independent ones."""
    rng = np.random.default_rng(5)
    means = [noise(rng, 400, 1.0, memory=0.5).mean() for _ in range(1500)]
    assert np.std(means) * 400**0.5 == pytest.approx(series.inflation(0.5), rel=0.08)


@pytest.mark.parametrize("seed", SEEDS)
def test_slopes_equal_those_of_scipy(seed: int) -> None:
    """Least squares with its error, and the median over all pairs."""
    y = wandering(seed, 80)
    x = np.cumsum(np.random.default_rng(seed).uniform(0.5, 2.0, 80))
    theirs, made = stats.linregress(x, y), series.slope(x, y)
    rest = y - theirs.intercept - theirs.slope * x
    wide = series.inflation(series.lag_correlation(rest))
    assert (made.slope, made.intercept) == pytest.approx((theirs.slope, theirs.intercept))
    assert made.error == pytest.approx(theirs.stderr * wide)
    assert series.theil_sen(x, y) == pytest.approx(stats.theilslopes(y, x).slope)


@pytest.mark.parametrize("seed", SEEDS)
def test_block_test_is_welchs_with_memory(seed: int) -> None:
    """Difference of means over its error: Welch's t, each side widened by its own memory."""
    x = wandering(seed, 120)
    sides = []
    for part in (x[:60], x[60:]):
        middle, sigma = statistics.median(part.tolist()), slow_mad(part)
        sides.append([min(max(v, middle - 4 * sigma), middle + 4 * sigma) for v in part.tolist()])
    wide = [series.inflation(series.lag_correlation(np.array(s))) for s in sides]
    error = sum(statistics.variance(s) / 60 * w**2 for s, w in zip(sides, wide, strict=True)) ** 0.5
    made = series.block_test(x[:60], x[60:])
    assert made.difference == pytest.approx(statistics.fmean(sides[1]) - statistics.fmean(sides[0]))
    assert made.error == pytest.approx(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_points_equal_the_loop(seed: int) -> None:
    """Stretches, repeats, the longest rise, holes filled."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, 60).astype(float)
    mask, row, rows, found = x > 0, 0, [], []
    for at, value in enumerate(x.tolist()):
        row = row + 1 if at and value == x[at - 1] else 1
        rows.append(row)
        if mask[at]:
            joined = found and at - found[-1][1] <= 2
            found[-1:] = [(found[-1][0], at)] if joined else [*found[-1:], (at, at)]
    assert series.stretches(mask, gap=1) == found
    assert series.repeats(x).tolist() == rows
    y = rng.normal(size=60)
    first, last = series.longest_rise(y)
    best = max(b - a for a in range(60) for b in range(a, 60) if (np.diff(y[a : b + 1]) > 0).all())
    assert last - first == best
    assert (np.diff(y[first : last + 1]) > 0).all()
    y[[0, 7, 8]] = np.nan
    assert series.filled(y)[[0, 7, 8]].tolist() == [y[1], y[6], y[6]]


@pytest.mark.parametrize("seed", SEEDS)
def test_straightness_equals_trying_all_steps(seed: int) -> None:
    """The best of all single steps over Theil and Sen's line, in absolute residues."""
    y, x = wandering(seed, 60), np.arange(60.0)
    line = stats.theilslopes(y, x)
    straight = sum(abs(y - line.intercept - line.slope * x))
    steps = [
        sum(abs(v - statistics.median(part)) for part in (y[:i], y[i:]) for v in part)
        for i in range(1, 60)
    ]
    assert series_trend.straightness(y) == pytest.approx(min(steps) / straight)


@pytest.mark.parametrize("seed", SEEDS)
def test_period_equals_trying_every_comb(seed: int) -> None:
    """Of all periods and phases, the one with the most hits for its size."""
    rng = np.random.default_rng(seed)
    period, phase = int(rng.integers(7, 40)), int(rng.integers(0, 7))
    teeth = np.arange(phase, 1000, period)
    at = np.unique(np.concatenate((teeth[rng.random(len(teeth)) < 0.9], rng.integers(0, 1000, 4))))
    there = set(at.tolist())
    best = max(
        (len(there & set(range(f, 1000, p))) ** 2 / len(range(f, 1000, p)), p, f)
        for p in range(3, 120) for f in range(p)
    )  # fmt: skip
    made = period_of(at.astype(np.int64), 0, 999, 1)
    assert made is not None
    assert (made.period, made.phase) == best[1:] == (period, phase)


def test_mean_speed_before_equals_the_loop() -> None:
    """The time of a record at the mean speed of up to 50 records before, if there are 20."""
    seconds = np.random.default_rng(1).uniform(0.5, 2.0, 120)
    rates = [1.0 / v for v in seconds.tolist()]
    slow = [1.0 / statistics.fmean(rates[max(0, i - 50) : i]) for i in range(20, 120)]
    np.testing.assert_allclose(mean_before(seconds, 50), [np.inf] * 20 + slow)


def test_stale_norms_equal_the_loop() -> None:
    """A number of many digits that repeats, or any that repeats where the scale changed."""
    values = np.array([1.2345678, 1.2345678, 1.25, 1.25, 1.25, 250.0, 250.0, 0.5])
    scale = np.array([8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0])
    slow = [
        i > 0 and values[i] == values[i - 1]
        and (round(values[i], 3) != values[i] or values[i] >= 100 or scale[i] != scale[i - 1])
        for i in range(len(values))
    ]  # fmt: skip
    assert _stale(values, scale).tolist() == slow
    assert sum(slow) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_lags_of_a_coarse_scale_equal_the_loop(seed: int) -> None:
    """Means of the last places, of what there is at the start; a series moved either way."""
    x = wandering(seed, 40)
    slow = [statistics.fmean(x[max(0, i - 8) : i + 1].tolist()) for i in range(40)]
    np.testing.assert_allclose(series_levels._settled(x, 9), slow)
    for by in (-3, 0, 3, 50):
        moved = [x[min(max(i - by, 0), 39)] for i in range(40)]
        np.testing.assert_allclose(series_levels._later(x, by), moved)


def test_normal_limit_is_the_normal_tail_through_the_quantile() -> None:
    """For normal noise of deviation two: its own quantile of the chance, with the margin."""
    x = np.random.default_rng(1).normal(0, 2.0, 400_000)
    wanted = series_levels.NORMAL_MARGIN * 2.0 * stats.norm.isf(1e-5)
    assert series_levels._normal_limit(x, 1e-5) == pytest.approx(wanted, rel=0.02)


def slow_onset(y: np.ndarray, start: int, end: int, base: float, height: float) -> int:
    """The first raised point under which the series is likeliest, every place tried."""
    law = stats.t(STEP_POWER)
    scale = slow_mad(y[:start]) / (1.4826 * law.ppf(0.75))
    best = (-np.inf, start)
    for onset in range(start, end + 1):
        level = np.where(np.arange(start, end + 1) < onset, base, base + height)
        likely = float(law.logpdf((y[start : end + 1] - level) / scale).sum())
        best = max(best, (likely, onset))
    return best[1]


@pytest.mark.parametrize("seed", range(6))
def test_the_onset_of_a_low_rise_is_the_likeliest_place(seed: int) -> None:
    """Student's t density of every place, tried one by one, puts it at the same point."""
    y = noise(np.random.default_rng(seed), 400, 1.0)
    y[300:380] += 1.8
    event = Excursion(
        onset=308, peak=310 + int(np.argmax(y[310:380])), end=379, base=0.0, height=1.8, z=6.0,
        limit=5.0, chance=1e-6, sigma=1.0, span=20, recovered=True,
    )  # fmt: skip
    start = 308 - 2 * 20
    calm = y[start - 202 : start]
    base = statistics.median(calm.tolist())
    height = statistics.median(y[308:380].tolist()) - base
    law_part = np.concatenate((calm, y[start:]))
    wanted = slow_onset(law_part, len(calm), len(calm) + 379 - start, base, height)
    assert _first_point(y, event, 0).onset == start - len(calm) + wanted
    assert abs(_first_point(y, event, 0).onset - 300) <= 8


def test_step_gain_is_a_difference_of_log_densities() -> None:
    """scipy's density of Student's t, scaled to the same robust deviation."""
    z, law = np.linspace(-5, 9, 50), stats.t(STEP_POWER)
    scale = 1 / (1.4826 * law.ppf(0.75))
    wanted = law.logpdf((z - 2.0) / scale) - law.logpdf(z / scale)
    np.testing.assert_allclose(step_gain(z, 2.0), wanted)
