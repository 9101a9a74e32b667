"""Findings told by attempts held side by side, by experts' loads, and by rates that leap."""

from __future__ import annotations

import numpy as np
from synth_system import by_kind, context, event, make_run

from loganalyze.detectors.experts import detect as detect_experts
from loganalyze.detectors.loss_shape import misscaled
from loganalyze.detectors.lr_schedule import run as detect_rate
from loganalyze.detectors.resume_data import detect_resumed

RNG = np.random.default_rng(3)
N = 400
NOISE = 0.05 * RNG.standard_normal(N)
FIRST = 3.0 - np.arange(N) / 400 + NOISE


def _resumed(second: np.ndarray) -> list[str]:
    """Shapes found in a run that stopped at step 227 and went on at 201."""
    steps = [*range(1, 228), *range(201, 201 + len(second))]
    run = make_run(
        {"loss": [*FIRST[:227], *second]}, steps=steps,
        events=[event("checkpoint_load", 226, step=200)],
    )  # fmt: skip
    return [str(f.statistics["shape"]) for f in detect_resumed(context(run))]


def test_a_sound_resume_is_silent() -> None:
    """The same steps with the same losses."""
    assert _resumed(FIRST[200:400]) == []


def test_lost_moments_are_told_by_the_second_step() -> None:
    """The first repeated step is alike, those after it stand higher for a while."""
    second = FIRST[200:400].copy()
    second[1:12] += np.linspace(0.6, 0.05, 11)
    assert _resumed(second) == ["second_step"]


def test_data_served_again_are_told_by_their_swings() -> None:
    """The resumed losses swing as those of the first steps did."""
    second = FIRST[200:400] - NOISE[200:400] + 0.8 * NOISE[:200]
    assert _resumed(second) == ["replay"]


def test_experts_out_of_balance_are_told_with_their_onset() -> None:
    """A balancing loss a fifth above its floor to the end; noise about the floor is silent."""
    level = 1.0 + 0.004 * RNG.standard_normal(N)
    assert detect_experts(context(make_run({"aux_loss/load_balancing_loss": level}))) == []
    late = np.where(np.arange(N) >= 250, level + 0.2, level)
    (found,) = detect_experts(context(make_run({"aux_loss/load_balancing_loss": late})))
    assert found.severity == "warning"
    assert found.step_first is not None
    assert abs(found.step_first - 251) <= 20


def test_a_rate_that_leaps_above_its_peak_is_a_warning() -> None:
    """A schedule that restarts at its own peak is a note."""
    falling = np.linspace(1e-3, 5e-4, N)
    leap = np.where(np.arange(N) >= 200, 1e-2, 1e-3)
    again = np.concatenate((falling[:200], np.linspace(1e-3, 5e-4, 200)))
    for rates, wanted in ((leap, ["warning"]), (again, []), (falling, [])):
        found = by_kind(detect_rate(context(make_run({"lr": rates, "loss": FIRST}))))
        told = [f for f in found.get("lr_schedule", []) if f.severity != "info"]
        assert [f.severity for f in told] == wanted


def test_micro_batches_are_counted_from_the_sizes_of_batches() -> None:
    """A first loss of four times chance, where four micro-batches make a step."""
    sizes = {"global_batch_size": "128", "micro_batch_size": "4", "world_size": "8"}
    config = event("config", -1, vocab_size="256", **sizes)
    losses = 4 * (np.log(256) - 0.01 * np.arange(60))
    (found,) = misscaled(context(make_run({"loss": losses}, events=[config])))
    assert found.statistics["factor"] == 4
