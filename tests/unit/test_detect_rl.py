"""RL detectors against curves whose story is known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import FloatArray, context, make_run, worst

from loganalyze.detectors.rl import (
    RL,
    detect_entropy,
    detect_kl,
    detect_length,
    detect_reward,
)

N = 300


def _noisy(curve: FloatArray, seed: int, spread: float = 0.1) -> FloatArray:
    return curve * (1.0 + spread * np.random.default_rng(seed).standard_normal(len(curve)))


def _rising(seed: int = 0) -> FloatArray:
    return (
        0.2
        + 0.4 * (1 - np.exp(-np.arange(N) / 80))
        + 0.03 * (np.random.default_rng(seed).standard_normal(N))
    )


def test_a_healthy_run_is_silent() -> None:
    """KL creeps up to 0.1, entropy halves, reward rises, answers grow by a half."""
    at = np.arange(N) / N
    run = make_run(
        {
            "kl": _noisy(0.001 + 0.1 * at, 1),
            "entropy": _noisy(0.5 - 0.25 * at, 2),
            "reward": _rising(),
            "response_length": _noisy(400 * (1 + 0.5 * at), 3),
            "loss": np.zeros(N),
        }
    )
    for look in (detect_kl, detect_entropy, detect_reward, detect_length):
        assert look(context(run, "rl")) == []


def test_kl_that_blows_up_while_reward_is_lost_is_critical() -> None:
    """KL at 0.1 for 200 steps, then 4; the reward falls back below its start."""
    kl, reward = np.full(N, 0.1), _rising()
    kl[200:] = 4.0
    reward[200:] = 0.1
    run = make_run({"kl": _noisy(kl, 4), "reward": reward})
    found = detect_kl(context(run, "rl"))
    assert worst(found, "kl_blowup") == "critical"
    assert found[0].step_first == pytest.approx(201, abs=4)


def test_negative_kl_for_long_is_a_warning() -> None:
    """Forty steps at -0.5: generation and scoring differ."""
    kl = np.full(N, 0.05)
    kl[100:140] = -0.5
    assert worst(detect_kl(context(make_run({"kl": kl}), "rl")), "kl_blowup") == "warning"


@pytest.mark.parametrize(("end", "severity"), [(0.01, "warning"), (0.1, "info"), (0.3, None)])
def test_entropy_bands(end: float, severity: str | None) -> None:
    """Entropy falls from 0.5: below a tenth a warning, below a quarter a note."""
    curve = np.linspace(0.5, end, N)
    curve[200:] = end
    found = detect_entropy(context(make_run({"entropy": _noisy(curve, 5)}), "rl"))
    assert worst(found, "entropy_collapse") == severity


def test_lost_reward_is_a_warning_and_a_dip_is_a_note() -> None:
    """All gain lost to the end: look; lost and found again: a note."""
    lost, dip = _rising(1), _rising(1)
    lost[180:] = 0.15 + 0.03 * np.random.default_rng(6).standard_normal(N - 180)
    dip[150:200] -= 0.3
    lost_found = detect_reward(context(make_run({"reward": lost}), "rl"))
    dip_found = detect_reward(context(make_run({"reward": dip}), "rl"))
    assert worst(lost_found, "reward_anomaly") == "warning"
    assert worst(dip_found, "reward_anomaly") == "info"


def test_a_reward_that_never_varies_is_a_note() -> None:
    """The same number on every line."""
    found = detect_reward(context(make_run({"reward": np.zeros(N)}), "rl"))
    assert worst(found, "reward_anomaly") == "info"


def test_longer_answers_are_a_note_and_a_warning_at_the_limit() -> None:
    """Four times the length, still varying: a note; all at the limit: a warning."""
    curve = 300.0 * (1 + 3 * np.arange(N) / N)
    found = detect_length(context(make_run({"response_length": _noisy(curve, 7)}), "rl"))
    assert worst(found, "length_explosion") == "info"
    capped = np.where(np.arange(N) < 150, _noisy(np.full(N, 300.0), 8), 2048.0)
    found = detect_length(context(make_run({"response_length": capped}), "rl"))
    assert worst(found, "length_explosion") == "warning"


def test_rl_detectors_are_skipped_in_pretraining() -> None:
    """A log without RL metrics skips all of them."""
    assert all(d.missing(context(make_run({"loss": np.ones(5)}))) for d in RL)
