"""Excursions of series beyond the longest that is searched in one go."""

from __future__ import annotations

import numpy as np
import pytest
from synth import Planted, noise, plant, power_law

from loganalyze import series_stretches
from loganalyze.series_events import excursions
from loganalyze.series_levels import Search
from loganalyze.series_stretches import all_excursions

SEARCH = Search(z=6, coarse_z=5, chance=1e-6, floor=0.002, skip=20)
STRETCH = 1 << 14


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches short enough for a quick test; the margins are the real ones."""
    monkeypatch.setattr(series_stretches, "STRETCH", STRETCH)
    monkeypatch.setattr(series_stretches, "LONGEST", 3 * STRETCH // 2)


def curve(seed: int, n: int, spikes: list[Planted]) -> np.ndarray:
    """The logarithm of a loss with spikes in 1 % noise."""
    rng = np.random.default_rng(seed)
    return np.log(plant(power_law(n) * np.exp(noise(rng, n, 0.01)), spikes))


@pytest.mark.parametrize("distance", [-300, -20, -1, 0, 1, 50])
def test_a_spike_at_a_seam_is_told_once_and_whole(distance: int) -> None:
    """Before, on and behind the place where two stretches meet: one event with its edges."""
    n = 4 * STRETCH
    first = 2 * STRETCH + distance
    spike = Planted(first=first, last=first + 19, height=0.5)
    found = all_excursions(curve(5, n, [spike]), SEARCH)
    (event,) = (event for event in found if event.height > 0.3)  # a point of noise may be told
    assert event.onset == spike.first
    assert abs(event.end - spike.last) <= 2
    assert spike.first <= event.peak <= event.end
    assert event.recovered is True


def test_the_same_events_as_in_one_go() -> None:
    """Fifty clear spikes in 100,000 points: same onsets, peaks and ends, and no more."""
    rng = np.random.default_rng(6)
    spikes = [
        Planted(first=at, last=at + int(rng.integers(1, 60)), height=float(rng.uniform(0.5, 4)))
        for at in range(1500, 100_000, 2000)
    ]
    y = curve(7, 102_000, spikes)
    whole, parts = excursions(y, SEARCH), all_excursions(y, SEARCH)
    assert [(e.onset, e.peak, e.end) for e in parts] == [(e.onset, e.peak, e.end) for e in whole]
    assert [e.onset for e in parts] == [s.first for s in spikes]


def test_a_new_level_across_a_seam_is_one_event() -> None:
    """A rise that stays is told where it begins, and not again in the next stretch."""
    y = curve(8, 3 * STRETCH, [])
    first = STRETCH - 100
    y[first:] += 0.4
    (event,) = all_excursions(y, SEARCH)
    assert event.onset == first
    assert event.recovered is False


def test_silence_on_a_healthy_curve() -> None:
    """Two hundred thousand healthy points give no event beyond what chance allows."""
    assert len(all_excursions(curve(9, 200_000, []), SEARCH)) <= 1
