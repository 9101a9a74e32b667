"""Robust statistics against slow, obvious second implementations."""

from __future__ import annotations

import numpy as np
import pytest
from synth import noise

from loganalyze import series


def slow_past_median(x, width):
    """Median of up to `width` points before each point, one by one."""
    return [np.nan if i == 0 else np.median(x[max(0, i - width) : i]) for i in range(len(x))]


@pytest.mark.parametrize("n", [1, 2, 7, 101, 102, 350])
@pytest.mark.parametrize("width", [5, 101])
def test_past_median_is_the_median_of_the_points_before(n, width):
    """Every point sees only points before it, the first ones fewer."""
    x = np.random.default_rng(n).normal(size=n)
    np.testing.assert_allclose(series.past_median(x, width), slow_past_median(x, width))


def test_past_median_never_sees_the_present():
    """A changed point leaves its own and all earlier medians as they were."""
    x = np.random.default_rng(0).normal(size=300)
    y = x.copy()
    y[200:] += 100
    np.testing.assert_array_equal(series.past_median(x, 51)[:201], series.past_median(y, 51)[:201])


def test_past_mean_matches_a_loop():
    """The mean covers the point itself and those before, NaN while there are too few."""
    x = np.random.default_rng(1).normal(size=40)
    slow = [np.nan if i < 6 else x[i - 6 : i + 1].mean() for i in range(40)]
    np.testing.assert_allclose(series.past_mean(x, 7), slow)


@pytest.mark.parametrize(
    ("values", "quantum"),
    [
        ([1.25, 1.5, 1.75, 3.0], 0.01),
        ([1.0, 2.0, 7.0], 1.0),
        ([2.7714, 2.3142, 9.0001], 1e-4),
        ([1 + 3 / 128, 1 + 5 / 128, 1 + 77 / 128], 2.0**-7),
        (list(np.random.default_rng(0).normal(size=50)), 0.0),
    ],
)
def test_print_quantum_finds_the_grid_of_the_printed_numbers(values, quantum):
    """Decimal places and bf16 grids are told apart from full precision."""
    assert series.print_quantum(np.array(values)) == pytest.approx(quantum)


def test_mad_sigma_is_the_standard_deviation_of_normal_noise_with_outliers():
    """A tenth of wild points does not move it much."""
    x = np.random.default_rng(3).normal(0, 2.0, 20000)
    x[::10] = 1e6
    assert 1.9 < series.mad_sigma(x) < 2.6


def test_slope_and_its_error_cover_the_truth():
    """For correlated noise the true slope lies within 3.5 errors in nearly every run."""
    x = np.arange(400.0)
    misses = 0
    for seed in range(60):
        rest = noise(np.random.default_rng(seed), 400, 1.0, freedom=50, memory=0.6)
        fit = series.slope(x, 0.01 * x + rest)
        misses += abs(fit.slope - 0.01) > 3.5 * fit.error
    assert misses <= 2


def test_slope_of_a_line_is_exact():
    """Without noise slope and intercept are the line's."""
    x = np.arange(10.0)
    fit = series.slope(x, 3 - 2 * x)
    assert (fit.slope, fit.intercept) == (pytest.approx(-2.0), pytest.approx(3.0))


def test_theil_sen_ignores_a_third_of_wild_points():
    """The median of slopes is that of the line, over few points and over block medians."""
    rng = np.random.default_rng(4)
    for n in (100, 5000):
        x = np.arange(float(n))
        y = 0.5 * x
        y[rng.choice(n, n // 5, replace=False)] += 1e4
        assert series.theil_sen(x, y) == pytest.approx(0.5, rel=0.2)


def test_block_test_knows_the_difference_and_is_calm_on_none():
    """A shift of one deviation over 200 points stands out, no shift does not."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=200), rng.normal(size=200)
    assert abs(series.block_test(a, b).z) < 4
    assert series.block_test(a, b + 1).z > 5
    assert series.block_test(a[:2], b).z == 0.0


def slow_cusum(x, drift, alarm):
    total = 0.0
    for at, value in enumerate(x):
        total = max(0.0, total + value - drift)
        if total > alarm:
            return at
    return None


@pytest.mark.parametrize("seed", range(5))
def test_cusum_alarms_where_the_recursion_does(seed):
    """Prefix minima and Page's recursion agree to the point."""
    x = np.random.default_rng(seed).normal(size=500)
    x[300:] += 1.0
    assert series.cusum(x, 0.5, 6.0) == slow_cusum(x, 0.5, 6.0)
    assert series.cusum(np.zeros(50), 0.5, 6.0) is None


def test_stretches_join_over_short_gaps():
    """Hits at most `gap` misses apart are one stretch."""
    mask = np.array([0, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    assert series.stretches(mask) == [(1, 2), (5, 5), (7, 7)]
    assert series.stretches(mask, gap=1) == [(1, 2), (5, 7)]
    assert series.stretches(mask, gap=2) == [(1, 7)]
    assert series.stretches(np.zeros(3, dtype=bool)) == []


def test_longest_rise_repeats_and_filled():
    """Small helpers: strictly rising stretch, repeated values in a row, NaN carried forward."""
    assert series.longest_rise(np.array([3.0, 1.0, 2.0, 4.0, 4.0, 5.0])) == (1, 3)
    assert series.repeats(np.array([1.0, 1.0, 2.0, 2.0, 2.0])).tolist() == [1, 2, 1, 2, 3]
    assert series.filled(np.array([np.nan, 1.0, np.inf, 2.0])).tolist() == [1.0, 1.0, 1.0, 2.0]


def test_lag_correlation_sees_memory():
    """Independent noise has none, AR(1) noise has its own coefficient."""
    rng = np.random.default_rng(6)
    assert abs(series.lag_correlation(rng.normal(size=5000))) < 0.06
    assert series.lag_correlation(noise(rng, 5000, 1.0, memory=0.6)) == pytest.approx(0.6, abs=0.08)
    assert series.lag_correlation(np.ones(50)) == 0.0
