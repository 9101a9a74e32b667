"""Lone outliers against noise with a memory, and tails, beside slow second implementations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from synth import noise

from loganalyze.config import load_thresholds
from loganalyze.detectors import Context
from loganalyze.detectors.memory_growth import _falls
from loganalyze.series_levels import (
    BEND,
    POWERS,
    PRIOR_POINTS,
    PRIOR_POWER,
    TAIL_SHARE,
    TRIMMED,
    Tail,
    tail_limit,
)
from loganalyze.series_outliers import memory_of, surprise


def slow_surprise(z: np.ndarray, memory: float, power: float) -> list[float]:
    """Point by point, with scipy's density of Student's t."""
    law = stats.t(power)
    scale = np.sqrt(1 - memory**2) / (1.4826 * law.ppf(0.75))
    shocks = [z[0] / scale] + [(b - memory * a) / scale for a, b in pairwise(z)]
    out = []
    for at, new in enumerate(shocks):
        last = at + 1 == len(shocks)
        after, echo = (0.0, 0.0) if last else (shocks[at + 1], memory)
        h = max(0.0, (new - echo * after) / (1 + echo**2))
        raised = law.logpdf(new - h) + law.logpdf(after + echo * h)
        ratio = max(0.0, raised - law.logpdf(new) - law.logpdf(after))
        # the deviation x of one point with log(f(0) / f(x)) equal to that ratio
        x = np.sqrt(power * (np.exp(2 * ratio / (power + 1)) - 1))
        out.append(scale * x if new > 0 else 0.0)
    return out


@pytest.mark.parametrize(("memory", "power"), [(0.0, 6.0), (0.2, 5.5), (0.6, 9.0)])
def test_surprise_is_the_likelihood_ratio(memory: float, power: float) -> None:
    """The vectors give what the densities give, point by point."""
    z = noise(np.random.default_rng(1), 300, 1.0, memory=memory)
    z[50] += 9
    np.testing.assert_allclose(
        surprise(z, memory, power), slow_surprise(z, memory, power), atol=1e-6
    )


def test_without_memory_surprise_is_the_deviation() -> None:
    """Independent points are as surprising as they are high."""
    z = np.random.default_rng(2).normal(0, 1, 500)
    np.testing.assert_allclose(surprise(z, 0.0, 6.0), np.maximum(z * (z > 0), 0.0), atol=1e-9)


def test_a_lone_point_is_more_surprising_than_a_shock_with_its_echo() -> None:
    """The same height; in one case the next point keeps the share that the memory foretells."""
    lone, shock = np.zeros(20), np.zeros(20)
    lone[10] = 8.0
    shock[10:] = 8.0 * 0.4 ** np.arange(10)
    assert surprise(lone, 0.4, 6.0)[10] > 1.5 * surprise(shock, 0.4, 6.0)[10]


@pytest.mark.parametrize("memory", [0.0, 0.3, 0.6])
def test_the_memory_put_in_is_found(memory: float) -> None:
    """Within a twentieth; 0 where there is none or too few points to tell."""
    z = noise(np.random.default_rng(3), 20_000, 1.0, memory=memory)
    assert memory_of(z) == pytest.approx(memory, abs=0.06)
    assert memory_of(z[:100]) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_tail_limit_is_hills_estimator_without_the_end_of_the_tail(seed: int) -> None:
    """Spacings of the order statistics one by one, as Hill and Renyi write them."""
    null = noise(np.random.default_rng(seed), 5000, 1.0, freedom=4.0)
    limit, power = tail_limit(null, 1e-5, 0.0)
    low = sorted((-null).tolist(), reverse=True)
    count = max(5, int(TAIL_SHARE * len(low)))
    bent = [np.sqrt(x * x + BEND) for x in low[:count]]
    gaps = [i * np.log(bent[i - 1] / bent[i]) for i in range(1, count) if i > TRIMMED * count]
    slow = (len(gaps) + PRIOR_POINTS) / (sum(gaps) + PRIOR_POINTS / PRIOR_POWER)
    slow = min(max(slow, POWERS[0]), POWERS[1])
    assert power == pytest.approx(slow)
    far = bent[-1] * (count / len(low) / 1e-5) ** (1 / slow)
    assert limit == pytest.approx(np.sqrt(far**2 - BEND))


def test_the_chance_beyond_the_limit_is_the_chance_asked_for() -> None:
    """At the limit exactly; further out it falls as the power of the tail."""
    tail = Tail(np.array([0.0, 10.0, 20.0]), 10.0, 6.0, 1e-5)
    assert tail.beyond(1, 1) == pytest.approx(1e-5)
    assert tail.beyond(1, 2) == pytest.approx(1e-5 * ((100 + BEND) / (400 + BEND)) ** 3)
    assert tail.beyond(0, 0) == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_falls_of_memory_are_those_of_the_loop(seed: int) -> None:
    """Medians of five points before and after each fall, one by one."""
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, 0.05, int(rng.integers(2, 80))).cumsum())
    context = Context(run=None, thresholds=load_thresholds(), profile="pretrain")  # type: ignore[arg-type]
    least = context.value("memory_leak.fall_share")
    slow = [
        i
        for i in range(len(values) - 1)
        if values[i + 1] - values[i] < -least * values[i]
        and np.median(values[i + 1 : i + 6])
        < (1 - least) * np.median(values[max(0, i - 4) : i + 1])
    ]
    assert _falls(context, values).tolist() == slow


def test_absurd_heights_have_a_chance_too() -> None:
    """Squares beyond a double raise nothing."""
    tail = Tail(np.array([0.0, 1e300, 3.0]), 1e200, 12.0, 1e-5)
    with np.errstate(all="ignore"):
        assert tail.beyond(1, 1) == 0.0
        assert tail.beyond(2, 2) == np.inf
