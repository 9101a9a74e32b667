"""The loss detectors on runs with known truth: what they find, and where they are silent."""

from __future__ import annotations

import numpy as np
import pytest
from judged import found, kinds, only
from synth import Planted, make_run, noise, plant, power_law


def pretraining(seed, n=6000, share=0.012, spikes=()):
    """A pre-training loss with heavy-tailed noise and planted spikes."""
    rng = np.random.default_rng(seed)
    return plant(power_law(n) * (1 + noise(rng, n, share)), spikes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.012, 0.03])
def test_healthy_pre_training_is_clean(seed, share):
    """No warning on a healthy curve, at usual and at high noise."""
    assert kinds(make_run({"loss": pretraining(seed, 8000, share)}), least="warning") == set()


def test_a_recovered_spike_is_a_warning_with_exact_steps():
    """Onset, peak and end as steps; the base before; the seed's +20 % rule named beside."""
    spike = Planted(first=3999, last=4018, height=0.5)
    item = only(make_run({"loss": pretraining(1, spikes=[spike])}), "loss_spike")
    assert (item.step_first, item.severity) == (4000, "warning")
    assert abs(item.step_last - 4019) <= 2
    assert item.statistics["recovered"] == "yes"
    assert "seed.loss_step_increase" in {rule.name for rule in item.rules}
    assert item.evidence[0].ref.line == 3999
    assert item.evidence[1].step == item.step_peak


def test_a_spike_that_does_not_come_back_is_critical():
    """Half as much again for good: spike and divergence, both critical."""
    loss = pretraining(2)
    loss[4000:] *= 1.5
    run = make_run({"loss": loss})
    assert only(run, "loss_spike").severity == "critical"
    item = only(run, "loss_divergence")
    assert item.severity == "critical"
    assert abs(item.step_first - 4001) <= 100


def test_an_excerpt_of_three_lines_is_enough():
    """A leap on the last of three lines of the middle of a run is found."""
    run = make_run({"loss": [3.1, 3.05, 7.2]}, steps=[9000, 9001, 9002])
    assert only(run, "loss_spike").step_first == 9002


def test_two_lines_with_a_leap_in_an_excerpt_are_enough():
    """One point of history counts, where the log begins in the middle of a run."""
    run = make_run({"loss": [6.4, 11.5, 7.2]}, steps=[8000, 8010, 8200])
    assert only(run, "loss_spike").step_first == 8010


def test_bursts_in_the_first_ten_steps_are_usual():
    """A wild start is no finding of a run that begins at step one."""
    loss = [7.0, 16.0, 12.0, 9.0, 8.0, *np.linspace(7.0, 4.0, 60)]
    assert kinds(make_run({"loss": loss}), least="warning") == set()


def test_a_climb_in_a_short_excerpt_is_divergence():
    """Five points, each above the last, by a half in all."""
    run = make_run({"loss": [6.3, 6.6, 7.4, 9.0, 10.1]}, steps=range(5000, 5050, 10))
    assert "loss_divergence" in kinds(run, least="warning")


def test_a_slow_creep_is_seen():
    """0.1 nat over the second half of a run, far below the noise of single points."""
    rng = np.random.default_rng(3)
    loss = 3.6 + noise(rng, 4000, 0.1, memory=0.0)
    loss[1500:] += np.linspace(0, 0.12, 2500)
    assert "loss_divergence" in kinds(make_run({"loss": loss}), least="warning")


@pytest.mark.parametrize(("n", "part"), [(10_000, 1_000), (50_000, 2_500), (300_000, 9_000)])
def test_a_rise_over_the_last_part_of_a_long_run_is_divergence(n: int, part: int):
    """A nat in the last few per cent, too slow for a spike: critical once it lasts 2000 steps."""
    loss = pretraining(5, n)
    loss[-part:] += np.linspace(0, 1, part)
    item = only(make_run({"loss": loss}), "loss_divergence")
    assert item.severity == ("critical" if part > 2_500 else "warning")
    assert n - part < item.step_first < n - 0.6 * part
    assert item.statistics["share_of_run"] < 0.1


def test_a_return_from_easier_data_is_no_divergence():
    """The loss falls by a nat for a while and comes back to where it was, at the end of the run."""
    loss = pretraining(6, 50_000)
    loss[40_000:48_000] -= 1.0
    assert "loss_divergence" not in kinds(make_run({"loss": loss}))


def test_a_change_of_the_data_mix_is_no_warning():
    """Five per cent up at once, then falling on: a new level, noted at most."""
    loss = pretraining(4, 20000)
    loss[12000:] *= 1.05
    assert kinds(make_run({"loss": loss}), least="warning") == set()


def test_nan_stretches_are_one_finding_each():
    """Two stretches, the second to the end; neighbours within three records are joined."""
    loss = pretraining(5, 400)
    loss[100:103] = np.nan
    loss[104] = np.inf
    loss[300:] = np.nan
    items = [f for f in found(make_run({"loss": loss})) if f.kind == "loss_nonfinite"]
    assert [(f.step_first, f.step_last) for f in items] == [(101, 105), (301, 400)]
    assert items[-1].severity == "critical"


def test_a_loss_that_is_absent_because_the_step_was_skipped_is_no_nan():
    """Nulls beside a skipped step say nothing; nulls without one are noted."""
    loss = list(pretraining(6, 60))
    loss[30] = None
    skipped = [0.0] * 60
    base = {"lr": [1e-4] * 60, "grad_norm": list(np.linspace(1, 0.5, 60) + 1e-4)}
    skipped[30] = 1.0
    run = make_run({"loss": loss, "skipped_steps": skipped, **base})
    assert "loss_nonfinite" not in kinds(run)
    run = make_run({"loss": loss, "skipped_steps": [0.0] * 60, **base})
    assert only(run, "loss_nonfinite").severity == "info"


def test_frozen_zero_and_flat_losses_are_told_apart():
    """The same number, exactly zero, and a level that knows nothing: three kinds."""
    assert "loss_frozen" in kinds(make_run({"loss": [10.8259] * 23}), least="critical")
    assert "loss_too_low" in kinds(make_run({"loss": [0.0] * 12}), least="critical")
    flat = 7.6 + noise(np.random.default_rng(7), 200, 0.05)
    assert "loss_plateau" in kinds(make_run({"loss": flat}), least="warning")
    low = 2.1 + noise(np.random.default_rng(7), 200, 0.05)
    assert "loss_plateau" not in kinds(make_run({"loss": low}))


def test_policy_losses_are_not_judged_by_level():
    """A loss of zero is usual in RL with one inner step."""
    assert kinds(make_run({"loss": [0.0, 0.1, -0.1, 0.0] * 20}), "rl") == set()


def test_memorised_data_shows_in_a_loss_near_zero():
    """From ten to a hundredth: a warning in pre-training, a note in fine-tuning."""
    loss = np.exp(np.linspace(np.log(10), np.log(0.005), 300))
    run = make_run({"loss": loss})
    assert only(run, "loss_too_low").severity == "warning"
    assert only(run, "loss_too_low", "sft").severity == "info"


def resumed(first_loss, second_loss, *, back=100):
    """Two segments, the second a resume that goes `back` steps back."""
    n, m = len(first_loss), len(second_loss)
    steps = [*range(1, n + 1), *range(n + 1 - back, n + 1 - back + m)]
    return make_run(
        {"loss": [*first_loss, *second_loss]},
        steps=steps,
        segments=[0] * n + [1] * m,
        relations=("start", "resume"),
    )


def test_a_jump_after_a_resume_is_found_and_a_smooth_one_is_not():
    """Compared with the trend at the same step, never across the step back."""
    loss = pretraining(8, 3000)
    smooth = resumed(loss[:2000], loss[1900:])
    assert kinds(smooth, least="warning") == set()
    jump = resumed(loss[:2000], loss[1900:] * 1.15)
    item = only(jump, "loss_discontinuity")
    assert (item.step_first, item.severity) == (1901, "warning")


def test_a_first_loss_times_the_accumulation_steps_is_named():
    """ln(50257) = 10.82; eight times that with eight accumulation steps is no accident."""
    config = {"vocab_size": "50257", "gradient_accumulation_steps": "8"}
    loss = 8 * np.linspace(10.82, 6, 60)
    assert "loss_misscaled" in kinds(make_run({"loss": loss}, config=config))
    assert "loss_misscaled" not in kinds(make_run({"loss": loss / 8}, config=config))


def test_growing_noise_is_oscillation():
    """The last third ten times as noisy as before."""
    rng = np.random.default_rng(9)
    loss = 3.0 + noise(rng, 1200, 0.03)
    loss[800:] += noise(rng, 400, 1.0)
    assert "loss_oscillation" in kinds(make_run({"loss": np.maximum(loss, 0.2)}), least="warning")


def test_rising_validation_beside_falling_training():
    """Best evaluation in the middle, six per cent up at the end."""
    steps = np.arange(1, 4001)
    val = [None] * 4000
    for at in range(250, 4001, 250):
        val[at - 1] = 1.5 + 0.4 * abs(at - 2000) / 2000 * (1.0 if at < 2000 else 0.25)
    run = make_run({"loss": 2.5 - steps / 4000 + 0.01 * np.sin(steps), "val_loss": val})
    item = only(run, "val_loss_rising")
    assert (item.step_first, item.severity) == (2000, "warning")


@pytest.mark.parametrize(
    "values",
    [[2.0] * 3, list(np.linspace(5, 4, 4000)), list(np.round(np.linspace(3, 2.9, 4000), 2))],
    ids=["constant", "ramp", "rounded ramp"],
)
def test_plain_series_are_silent(values):
    """No noise to learn from must not mean that everything stands out."""
    assert kinds(make_run({"loss": values}), least="warning") == set()


def test_findings_come_in_order_with_stable_ids():
    """The same run gives the same ids, numbered in the order of steps."""
    spikes = [Planted(first=a, last=a + 4, height=0.5) for a in (2000, 3000, 5000)]
    run = make_run({"loss": pretraining(10, spikes=spikes)})
    ids = [(f.id, f.step_first) for f in found(run) if f.kind == "loss_spike"]
    assert ids == [("LA102-1", 2001), ("LA102-2", 3001), ("LA102-3", 5001)]
    assert [f.id for f in found(run)] == [f.id for f in found(run)]


def test_steps_down_at_epoch_edges_are_a_note():
    """Three epochs, a tenth lower at each edge: memorised; a smooth fall is not."""
    rng = np.random.default_rng(11)
    epoch = np.arange(900) / 300
    loss = (1.2 - 0.12 * np.floor(epoch)) * (1 + noise(rng, 900, 0.03, memory=0.0))
    item = only(make_run({"loss": loss, "epoch": epoch}), "loss_too_low", "sft")
    assert (item.severity, item.step_first) == ("info", 301)
    smooth = (1.2 - 0.12 * epoch) * (1 + noise(rng, 900, 0.03, memory=0.0))
    assert kinds(make_run({"loss": smooth, "epoch": epoch}), "sft") == set()
