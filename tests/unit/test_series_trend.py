"""Levels, slopes and periods against slow, obvious second implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loganalyze.series_periods import period_of
from loganalyze.series_trend import (
    bend,
    levels,
    long_noise,
    noise,
    running_median,
    straightness,
    theil_sen,
    trailing_median,
    winsorised,
)

_FLOATS = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=40)


@given(_FLOATS, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_trailing_median_equals_the_loop_over_points(values: list[float], past: int) -> None:
    """Each point gets the median of the (odd number of) points before it."""
    got = trailing_median(np.array(values), past)
    past -= past % 2 == 0
    want = [values[0]] + [
        float(np.median(values[max(0, i - past) : i])) for i in range(1, len(values))
    ]
    assert got == pytest.approx(want)


@given(_FLOATS)
@settings(max_examples=60, deadline=None)
def test_theil_sen_equals_the_median_over_all_pairs(values: list[float]) -> None:
    """Slope, trend and interval come from the sorted slopes of all pairs."""
    x = np.arange(len(values), dtype=np.float64)
    got = theil_sen(x, np.array(values))
    slopes = sorted(
        (values[j] - values[i]) / (j - i)
        for i in range(len(values))
        for j in range(i + 1, len(values))
    )
    assert got.slope == pytest.approx(float(np.median(slopes)), abs=1e-9)
    signs = sum((s > 0) - (s < 0) for s in slopes)
    assert got.trend == pytest.approx(signs / len(slopes))
    assert got.low <= got.slope <= got.high


def test_theil_sen_interval_agrees_with_scipy() -> None:
    """The 95 % interval is scipy's, give or take its choice of neighbouring slopes."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    x = np.arange(120, dtype=np.float64)
    y = 0.02 * x + rng.standard_normal(120)
    got = theil_sen(x, y)
    want = stats.theilslopes(y, x, alpha=0.95)
    assert got.slope == pytest.approx(want[0])
    assert got.low == pytest.approx(want[2], abs=2e-4)
    assert got.high == pytest.approx(want[3], abs=2e-4)


def test_theil_sen_interval_holds_the_truth_in_about_95_percent_of_runs() -> None:
    """Coverage of the interval over 200 seeded series of independent noise."""
    x = np.arange(80, dtype=np.float64)
    held = 0
    for seed in range(200):
        y = 0.01 * x + np.random.default_rng(seed).standard_normal(80)
        line = theil_sen(x, y)
        held += line.low <= 0.01 <= line.high
    assert 180 <= held <= 200


def _slow_best_split(values: np.ndarray) -> int:
    """The split with the smallest summed absolute residue, by trying all."""
    costs = [
        np.abs(values[:k] - np.median(values[:k])).sum()
        + np.abs(values[k:] - np.median(values[k:])).sum()
        for k in range(5, len(values) - 4)
    ]
    return 5 + int(np.argmin(costs))


@pytest.mark.parametrize("seed", range(6))
def test_levels_find_the_split_that_trying_all_splits_finds(seed: int) -> None:
    """One shift of 5 sigma: the same place as the exhaustive search, give or take two points."""
    rng = np.random.default_rng(seed)
    at = 60 + 20 * seed
    values = 0.02 * rng.standard_normal(250)
    values[at:] += 0.1
    found = levels(values, least=20, z=6.0, floor=0.005, step=0.03)
    assert len(found) == 2
    assert abs(found[1].start - _slow_best_split(values)) <= 2
    assert abs(found[1].start - at) <= 3


def test_levels_find_a_pulse_between_equal_levels() -> None:
    """Twenty slow points in the middle of ten thousand are a level of their own."""
    values = 0.01 * np.random.default_rng(1).standard_normal(10_000)
    values[6000:6020] += 0.1
    found = levels(values, least=20, z=6.0, floor=0.005, step=0.03)
    assert [(part.start, part.stop) for part in found][1] == pytest.approx((6000, 6020), abs=2)


@pytest.mark.parametrize("count", [40, 1000, 20_000])
def test_levels_see_nothing_in_noise_with_outliers(count: int) -> None:
    """Heavy-tailed noise and lone outliers make one level, for twenty seeds."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = 0.02 * rng.standard_t(3, count)
        values[:: max(7, count // 50)] += 1.0
        assert len(levels(values, least=20, z=6.0, floor=0.005, step=0.03)) == 1


def test_levels_in_blocks_agree_with_levels_of_every_point() -> None:
    """A series long enough to be searched in blocks keeps its change points' places."""
    values = 0.02 * np.random.default_rng(2).standard_normal(160_000)
    values[70_000:75_000] += 0.05
    found = levels(values, least=20, z=6.0, floor=0.005, step=0.03)
    assert [part.start for part in found] == pytest.approx([0, 70_000, 75_000], abs=8)


def test_noise_is_blind_to_steps() -> None:
    """A level shift does not change the noise estimate by more than a tenth."""
    values = np.random.default_rng(0).standard_normal(2000)
    shifted = values + np.where(np.arange(2000) > 900, 50.0, 0.0)
    assert noise(values) == pytest.approx(1.0, rel=0.1)
    assert noise(shifted) == pytest.approx(noise(values), rel=0.1)


def test_long_noise_sees_wandering_and_not_steps() -> None:
    """White noise keeps its size, slow noise grows, a step in few points counts for nothing."""
    rng = np.random.default_rng(1)
    white = rng.standard_normal(4000)
    assert long_noise(white, 20) == pytest.approx(1.0, rel=0.25)
    slow = np.convolve(white, np.ones(10) / 10**0.5, mode="valid")
    assert long_noise(slow, 20) > 2.0 * noise(slow)
    few = 0.01 * rng.standard_normal(98) + np.where(np.arange(98) < 48, 0.0, 1.0)
    assert long_noise(few, 20) < 0.05


def test_running_median_and_winsorising_keep_steps_and_cut_outliers() -> None:
    """The centred median equals the loop inside; a lone outlier is pulled in, a step stays."""
    values = np.r_[np.zeros(50), np.ones(50)] + 0.01 * np.random.default_rng(0).standard_normal(100)
    values[20] = 9.0
    middle = running_median(values, 11)
    assert middle[30] == np.median(values[25:36])
    tame = winsorised(values, 11, 3.0, 0.01)
    assert tame[20] < 0.1
    assert np.median(tame[60:]) == pytest.approx(1.0, abs=0.02)


def test_straightness_tells_a_ramp_from_a_step() -> None:
    """Above 1 for a ramp, below 1 for a step, with the same noise and rise."""
    rng = np.random.default_rng(5)
    wobble = 0.02 * rng.standard_normal(600)
    ramp = np.linspace(0.0, 0.3, 600) + wobble
    step = np.where(np.arange(600) < 300, 0.0, 0.3) + wobble
    assert straightness(ramp) > 1.5
    assert straightness(step) < 0.7


@pytest.mark.parametrize(("period", "phase", "unit"), [(100, 1, 1), (250, 0, 1), (500, 130, 10)])
def test_period_of_a_comb_with_gaps_and_strays(period: int, phase: int, unit: int) -> None:
    """Period and phase are exact although a tenth of the teeth is missing and two are strays."""
    teeth = np.arange(phase or period, 20_000, period)
    seen = np.delete(teeth, [3])
    seen = np.sort(np.append(seen, [teeth[5] + 40 * unit // unit, teeth[6] + 37]))
    found = period_of(seen, int(seen[0]), int(seen[-1]), unit)
    assert found is not None
    assert (found.period, found.phase) == (period, phase % period)
    assert found.strays == 2
    assert found.expected - found.hits == 1


def test_a_comb_is_seen_among_as_many_strays() -> None:
    """Forty teeth of 128 and forty lone positions at random: the comb wins."""
    teeth = np.arange(40, 40 + 128 * 40, 128)
    lone = np.random.default_rng(4).integers(0, 5200, 40)
    seen = np.unique(np.append(teeth, lone))
    found = period_of(seen, int(seen[0]), int(seen[-1]), 1)
    assert found is not None
    assert (found.period, found.phase) == (128, 40)
    assert found.hits >= 40


def test_bend_equals_trying_all_places() -> None:
    """Flat, then a ramp: the place with the smallest residue, and near the truth."""
    rng = np.random.default_rng(9)
    values = 0.01 * rng.standard_normal(90) + np.maximum(0, np.arange(90) - 55) * 0.02
    costs = {}
    for at in range(88):
        base = float(np.median(values[: at + 1])) if at else float(values[0])
        slope = float(np.median([(values[i] - base) / (i - at) for i in range(at + 1, 90)]))
        costs[at] = sum(abs(v - base - slope * max(0, i - at)) for i, v in enumerate(values))
    assert bend(values) == min(costs, key=lambda at: costs[at])
    assert bend(values) == pytest.approx(55, abs=4)
    assert bend(np.linspace(0.0, 1.0, 500)) == 0


def test_period_needs_three_positions() -> None:
    """Two slow steps make no period."""
    assert period_of(np.array([3, 9]), 0, 20, 1) is None
