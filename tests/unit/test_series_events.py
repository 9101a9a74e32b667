"""Excursions: found where planted, exact at the edges, silent where nothing happens."""

from __future__ import annotations

import numpy as np
import pytest
from synth import Planted, noise, plant, power_law

from loganalyze.series_events import excursions
from loganalyze.series_levels import Search, tail_limit

SEARCH = Search(z=6, coarse_z=5, chance=1e-5, floor=0.002)


def curve(seed, n, share, spikes=()):
    rng = np.random.default_rng(seed)
    return np.log(plant(power_law(n) * np.exp(noise(rng, n, share)), spikes))


@pytest.mark.parametrize("length", [1, 20, 200])
@pytest.mark.parametrize("height", [0.5, 4.0])
def test_a_planted_spike_is_one_event_with_exact_edges(length, height):
    """Onset is the planted one, the end within two points, and the series is known to be back."""
    spike = Planted(first=3000, last=3000 + length - 1, height=height)
    (event,) = excursions(curve(1, 6000, 0.01, [spike]), SEARCH)
    assert event.onset == spike.first
    assert abs(event.end - spike.last) <= 2
    assert event.recovered is True
    assert np.exp(event.height) == pytest.approx(1 + height, rel=0.15)


def test_a_low_long_spike_is_seen_on_the_coarse_scale():
    """Five per cent for 200 steps under noise of 3 % is found, within a few steps."""
    spike = Planted(first=9000, last=9199, height=0.05)
    found = excursions(curve(2, 14000, 0.02, [spike]), SEARCH)
    assert any(abs(e.onset - 9000) <= 16 and abs(e.end - 9199) <= 16 for e in found)


def test_a_small_spike_in_the_shadow_of_a_large_one_is_found():
    """A large event neither hides the next one nor starts a false one after its end."""
    spikes = [
        Planted(first=3000, last=3199, height=4.0),
        Planted(first=3260, last=3260, height=0.6),
    ]
    found = excursions(curve(3, 6000, 0.01, spikes), SEARCH)
    assert [(e.onset, e.end) for e in found] == [(3000, 3199), (3260, 3260)]


def test_a_new_level_did_not_recover():
    """A step of 30 % for good is one event that did not come back; what follows is quiet."""
    y = curve(4, 6000, 0.01)
    y[3000:] += 0.3
    (event,) = excursions(y, SEARCH)
    assert event.onset == 3000
    assert event.recovered is False


def test_a_spike_at_the_very_end_is_found_and_left_open():
    """Whether it comes back is not known at the last point."""
    y = curve(5, 2000, 0.01)
    y[-1] += 1.0
    (event,) = excursions(y, SEARCH)
    assert (event.onset, event.end, event.recovered) == (1999, 1999, None)


@pytest.mark.parametrize(
    "y",
    [
        np.zeros(5000),
        np.linspace(5.0, 1.0, 5000),
        np.linspace(1.0, 1.5, 5000),
        np.round(np.linspace(5.0, 4.9, 5000), 2),
        np.round(np.linspace(4.9, 5.0, 5000), 2),
        np.zeros(0),
        np.ones(1),
        np.ones(2),
    ],
    ids=["zero", "falling", "rising", "rounded fall", "rounded rise", "none", "one", "two"],
)
def test_nothing_is_found_where_nothing_happens(y):
    """Constant, straight and coarsely printed series, however short, are silent."""
    assert excursions(y, Search(z=6, coarse_z=5, chance=1e-5, floor=0.01)) == []


def test_three_points_are_enough_for_a_large_spike():
    """With two points before it, only a leap far beyond the floor counts."""
    search = Search(z=6, coarse_z=5, chance=1e-5, floor=0.01)
    (event,) = excursions(np.log([3.06, 3.11, 7.7]), search)
    assert event.onset == 2
    assert excursions(np.log([3.06, 3.11, 3.2]), search) == []


def test_tail_limit_foretells_the_upper_tail_of_heavy_noise():
    """The limit at 1e-4 lies near the true quantile of Student's t with five degrees (9.7)."""
    null = np.random.default_rng(7).standard_t(5, 200_000)
    limit, power = tail_limit(null, 1e-4, 1.0)
    assert 7.5 < limit < 13.0
    assert 3.5 <= power <= 6.5
    assert tail_limit(null[:5], 1e-4, 6.0)[0] == 6.0
