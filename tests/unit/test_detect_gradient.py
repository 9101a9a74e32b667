"""The gradient detectors on runs with known truth, and the traps that must stay silent."""

from __future__ import annotations

import numpy as np
import pytest
from judged import found, kinds, only
from synth import make_run, noise, power_law


def norms(seed, n=3000, share=0.15):
    """A healthy gradient norm: high at first, then steady, log-normal with heavy tails."""
    rng = np.random.default_rng(seed)
    level = 0.25 + 3.0 * np.exp(-np.arange(n) / 60)
    return level * np.exp(noise(rng, n, share, memory=0.4))


def losses(seed, n=3000):
    """A healthy loss to stand beside."""
    return power_law(n) * (1 + noise(np.random.default_rng(100 + seed), n, 0.01))


@pytest.mark.parametrize("seed", range(5))
def test_healthy_norms_are_clean(seed):
    """Neither the fall at the start nor the noise is a finding."""
    run = make_run({"loss": losses(seed), "grad_norm": norms(seed)})
    assert kinds(run, least="warning") == set()


@pytest.mark.parametrize(("factor", "severity"), [(10, "info"), (50, "warning")])
def test_a_burst_without_effect_on_the_loss(factor, severity):
    """Ten times, in noise with such tails, is a note; fifty times is a warning."""
    norm = norms(1)
    norm[1500] *= factor
    item = only(make_run({"loss": losses(1), "grad_norm": norm}), "grad_explosion")
    assert (item.step_first, item.severity) == (1501, severity)


def test_a_small_rise_beside_a_loss_spike_matters():
    """The same five times are a warning where the loss leaves its past within ten steps."""
    norm, loss = norms(2), losses(2)
    norm[1498:1502] *= 5
    loss[1500:1510] *= 1.4
    item = only(make_run({"loss": loss, "grad_norm": norm}), "grad_explosion")
    assert (item.step_first, item.severity) == (1499, "warning")


def test_an_excerpt_of_three_lines_shows_the_norm_leading():
    """Twenty times on the line before the loss leaps."""
    run = make_run(
        {"loss": [3.06, 3.11, 7.7], "grad_norm": [0.2, 4.0, 3.9]}, steps=[9000, 9001, 9002]
    )
    assert only(run, "grad_explosion").step_first == 9001


def test_norms_printed_times_the_loss_scale_are_taken_down():
    """A halving of the scale halves the printed norm and is no event."""
    norm = norms(3)
    scale = np.where(np.arange(3000) < 1500, 65536.0, 32768.0)
    run = make_run({"loss": losses(3), "grad_norm": norm * scale, "loss_scale": scale})
    assert "grad_explosion" not in kinds(run)
    norm[2000] *= 50
    run = make_run({"loss": losses(3), "grad_norm": norm * scale, "loss_scale": scale})
    item = only(run, "grad_explosion")
    assert item.statistics["loss_scale_removed"] == "yes"
    assert item.statistics["peak"] < 50


def test_stale_norms_of_skipped_steps_are_left_out():
    """The number of the last real step, divided by halving scales, would seem to explode."""
    norm = norms(4, 200)
    scale = np.full(200, 1048576.0)
    for k in range(6):
        scale[150 + k :] /= 2
    raw = norm * scale
    raw[150:156] = raw[149]
    run = make_run({"loss": losses(4, 200), "grad_norm": raw, "loss_scale": scale})
    assert "grad_explosion" not in kinds(run, least="warning")


def test_a_norm_that_drifts_up_for_good_is_found():
    """Thirty times within the second half, too slowly for any burst."""
    norm = norms(5, 2000, 0.05)
    norm[600:] *= np.exp(np.linspace(0, np.log(30), 1400))
    run = make_run({"grad_norm": norm})
    assert "grad_explosion" in kinds(run, least="warning")


@pytest.mark.parametrize(("n", "part"), [(10_000, 1_000), (100_000, 2_500), (300_000, 15_000)])
def test_a_norm_that_drifts_up_at_the_end_of_a_long_run_is_found(n, part):
    """Twenty times over the last few per cent, too slowly for a burst, and to the end."""
    norm = norms(8, n, 0.1)
    norm[-part:] *= np.exp(np.linspace(0, np.log(20), part))
    items = [f for f in found(make_run({"grad_norm": norm})) if f.severity != "info"]
    assert [f.kind for f in items] == ["grad_explosion"]
    assert n - part < items[0].step_first < n
    assert items[0].step_last == n


def test_a_norm_that_vanished_for_a_while_did_not_explode():
    """Nothing for 300 steps and then as before; the last part of the run begins in the middle."""
    norm = norms(11, 1_772)
    norm[805:1_105] *= 1e-7
    assert kinds(make_run({"grad_norm": norm}), least="warning") == {"grad_vanishing"}


def test_a_norm_that_comes_back_at_the_end_is_no_new_level():
    """Down to a twentieth within thousands of steps, and as slowly back to where it was before."""
    norm = norms(9, 100_000, 0.1)
    norm[70_000:80_000] /= np.exp(np.linspace(0, np.log(20), 10_000))
    norm[80_000:92_000] /= 20
    norm[92_000:97_000] /= np.exp(np.linspace(np.log(20), 0, 5_000))
    assert "grad_explosion" not in kinds(make_run({"grad_norm": norm}), least="warning")


def test_single_infinite_norms_with_a_sound_loss_are_a_note():
    """A dynamic loss scaler skips a step now and then."""
    norm = norms(6)
    norm[[500, 900, 2000]] = np.inf
    items = found(make_run({"loss": losses(6), "grad_norm": norm}))
    assert {(f.kind, f.severity) for f in items} == {("grad_nonfinite", "info")}
    assert [f.step_first for f in items] == [501, 901, 2001]


def test_nan_to_the_end_is_critical_in_norm_and_loss():
    """Ten times a step, Inf, then NaN in both: explosion and both kinds of NaN."""
    norm, loss = norms(7, 300), losses(7, 300)
    norm[210:219] *= 10.0 ** np.arange(1, 10)
    norm[219:] = np.nan
    norm[218] = np.inf
    loss[219:] = np.nan
    run = make_run({"loss": loss, "grad_norm": norm})
    assert {"loss_nonfinite", "grad_nonfinite"} <= kinds(run, least="critical")
    assert "grad_explosion" in kinds(run, least="warning")
    assert only(run, "grad_nonfinite").step_first == 219


def test_vanishing_norms():
    """Zero after having been alive is critical; below 0.001 for a hundred steps a warning."""
    norm = norms(8, 400)
    norm[300:] = 0.0
    assert only(make_run({"grad_norm": norm}), "grad_vanishing").severity == "critical"
    norm = norms(8, 400)
    norm[200:] = 5e-4 * (1 + 0.01 * np.arange(200))
    assert only(make_run({"grad_norm": norm}), "grad_vanishing").severity == "warning"
    assert "grad_vanishing" not in kinds(
        make_run({"grad_norm": norm, "loss": np.r_[np.full(100, 2.0), np.full(300, 0.01)]})
    )


def overflow(step, old, new):
    """An overflow message."""
    return {"kind": "overflow", "step": step, "detail": {"old_scale": old, "new_scale": new}}


def test_the_search_for_a_loss_scale_at_the_start_is_usual():
    """From 2**32 down to 2**15 in the first steps: noted, never more."""
    events = [overflow(k, 2.0 ** (32 - k), 2.0 ** (31 - k)) for k in range(17)]
    run = make_run({"loss": losses(9, 300)}, events=events)
    assert kinds(run, least="warning") == set()
    assert only(run, "skipped_steps").statistics["skipped"] == 17


def test_halvings_in_the_middle_of_a_run_are_a_collapse():
    """Five within seven steps; the loss that leaps and stays makes it critical."""
    loss = losses(10, 600)
    scale = np.full(600, 1048576.0)
    for k in range(5):
        scale[400 + k :] /= 2
    run = make_run({"loss": loss, "loss_scale": scale})
    assert only(run, "loss_scale_collapse").severity == "warning"
    loss[400:] *= 1.6
    run = make_run({"loss": loss, "loss_scale": scale})
    assert only(run, "loss_scale_collapse").severity == "critical"


def test_one_skip_in_a_hundred_steps_is_a_note():
    """What a window of one hundred steps does by itself."""
    events = []
    for k in range(100, 3000, 100):
        events.append(overflow(k, 65536.0, 32768.0))
    run = make_run({"loss": losses(11)}, events=events)
    assert {f.severity for f in found(run)} == {"info"}


def test_a_log_of_skipped_steps_only_has_learnt_nothing():
    """Few such steps are a note, many are critical."""
    for n, severity in ((5, "info"), (60, "critical")):
        run = make_run({"lr": [0.0] * n, "skipped_steps": [1.0] * n})
        assert only(run, "no_learning").severity == severity


def test_bursts_of_a_restless_norm_are_one_finding():
    """Norms tens of times the running median are told where the noise itself reaches five times."""
    rng = np.random.default_rng(6)
    norm = np.exp(0.6 * rng.standard_normal(250)).clip(0.2, 5.0)
    norm[[80, 140, 200]] = (20.0, 120.0, 40.0)
    said = only(make_run({"grad_norm": norm, "loss": 3.0 + 0.01 * rng.standard_normal(250)}),
                "grad_explosion")  # fmt: skip
    assert (said.severity, said.step_peak) == ("warning", 141)
    assert (said.step_first, said.step_last) == (81, 201)
    calm = norm.clip(0.2, 5.0)
    assert not [f for f in found(make_run({"grad_norm": calm})) if f.kind == "grad_explosion"]


def test_rates_and_ratios_beside_their_seed_rules():
    """Clipping, concentration, update ratio, hard samples: each names the seed's number."""
    n = 4000
    run = make_run(
        {
            "grad_clip_share": np.full(n, 0.2),
            "grad_concentration": np.r_[np.full(2000, 30.0), np.full(2000, 400.0)],
            "update_ratio": np.r_[np.full(3000, 1e-3), np.full(1000, 0.2)],
            "hard_sample_share": np.full(n, 0.35),
        }
    )
    severities = {f.kind: f.severity for f in found(run)}
    assert severities["grad_clip_rate"] == "info"
    assert severities["grad_concentration"] == "warning"
    assert severities["update_ratio"] == "critical"
    rules = {rule.name for f in found(run) for rule in f.rules}
    assert {
        "seed.clip_share_high",
        "seed.grad_concentration_high",
        "seed.update_ratio_high",
    } <= rules


def test_samples_far_above_the_median_one_are_noted_with_the_line_of_their_loss():
    """A ratio of p95 to p50 of five is noted where both are logged; one of two is not."""
    n = 300
    p95 = np.r_[np.full(200, 4.0), np.full(100, 10.0)]
    said = only(
        make_run({"sample_loss_p50": np.full(n, 2.0), "sample_loss_p95": p95}), "hard_samples"
    )
    assert [rule.name for rule in said.rules] == ["seed.sample_difficulty_ratio"]
    assert (said.statistics["worst"], said.step_first) == (5.0, 201)
    assert (said.evidence[0].value, said.evidence[0].step) == (10.0, said.step_peak)
    assert not found(make_run({"sample_loss_p95": p95}))


def test_a_learning_rate_that_starts_again_after_a_resume():
    """Warm-up again after the resume: the rate is far below that of the same step before."""
    first = [*np.linspace(0, 3e-4, 100), *np.full(900, 3e-4)]
    again = list(np.linspace(0, 3e-4, 300))
    run = make_run(
        {"lr": [*first, *again]},
        steps=[*range(1, 1001), *range(901, 1201)],
        segments=[0] * 1000 + [1] * 300,
        relations=("start", "resume"),
    )
    assert only(run, "lr_schedule").severity == "warning"
    assert only(run, "lr_schedule").step_first == 901


def test_a_norm_that_comes_back_from_nothing_is_no_explosion():
    """After 300 steps near zero the norm stands where it stood before: one finding, not two."""
    norm = norms(3)
    norm[1000:1300] *= 1e-6
    run = make_run({"loss": losses(3), "grad_norm": norm})
    assert kinds(run, least="warning") == {"grad_vanishing"}


@pytest.mark.parametrize(("first", "told"), [(0.40, True), (0.02, False)])
def test_epochs_tell_an_excerpt_where_a_log_has_no_steps(first, told):
    """A burst of five times in the middle of an epoch is told; at the start it is usual."""
    norm = [2.3, 2.0, 1.9, 2.1, 2.2, 2.0, 2.3, 11.0, 7.0, 14.0, 6.5, 3.9, 3.0]
    epochs = np.round(first + np.arange(13) / 60, 2)
    run = make_run({"loss": [0.09] * 13, "grad_norm": norm, "epoch": epochs})
    assert ("grad_explosion" in kinds(run)) is told
