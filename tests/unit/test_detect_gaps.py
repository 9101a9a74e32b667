"""Numbers that are there and say nothing: NaN evaluations, rates of 0, norms that are NaN."""

from __future__ import annotations

import numpy as np
import pytest
from judged import found, kinds, only
from synth import make_run, noise, power_law

from loganalyze.config import load_thresholds
from loganalyze.detectors import detect
from loganalyze.diagnose import diagnose


def falling(n=400, seed=1):
    """A healthy loss."""
    return power_law(n) * (1 + noise(np.random.default_rng(seed), n, 0.01))


def standing(n=400, seed=1, level=10.8):
    """A loss that learns nothing."""
    return level * (1 + noise(np.random.default_rng(seed), n, 0.005))


def evaluated(n, every, values):
    """A column of evaluations, absent between them."""
    column = [None] * n
    column[every - 1 :: every] = values
    return column


def test_evaluations_that_turn_nan_beside_a_finite_loss_are_a_warning():
    """From the eighth evaluation on, and the last one alone; no training step is lost."""
    for bad in (13, 1):
        values = [3.0] * (20 - bad) + [np.nan] * bad
        run = make_run({"loss": falling(), "val_loss": evaluated(400, 20, values)})
        item = only(run, "loss_nonfinite")
        assert (item.severity, item.metric) == ("warning", "val_loss")
        assert item.step_first == 20 * (21 - bad)
        assert "cost_steps" not in item.statistics


def test_one_nan_evaluation_that_passes_is_a_note():
    """Finite ones follow."""
    values = [3.0] * 5 + [np.nan] + [2.9] * 14
    run = make_run({"loss": falling(), "val_loss": evaluated(400, 20, values)})
    assert only(run, "loss_nonfinite").severity == "info"


def test_evaluations_inside_a_stretch_of_nan_losses_are_no_finding_of_their_own():
    """The loss says it already."""
    loss = falling()
    loss[200:] = np.nan
    run = make_run({"loss": loss, "val_loss": evaluated(400, 20, [3.0] * 10 + [np.nan] * 10)})
    assert only(run, "loss_nonfinite").metric == "loss"


def test_nan_between_evaluations_of_a_table_is_no_finding():
    """A table may say NaN where none was made; what comes after the last one may be more."""
    column = np.full(400, np.nan)
    column[9::10] = 3.0
    assert kinds(make_run({"loss": falling(), "val_loss": column})) == set()
    column[200:] = np.nan
    assert (
        only(make_run({"loss": falling(), "val_loss": column}), "loss_nonfinite").step_first == 201
    )
    column[:] = np.nan
    assert (
        only(make_run({"loss": falling(), "val_loss": column}), "loss_nonfinite").severity == "info"
    )


def test_nan_evaluations_alone_point_at_their_labels():
    """The weights cannot be broken where the training loss is finite."""
    values = [3.0] * 7 + [np.nan] * 13
    run = make_run({"loss": falling(), "val_loss": evaluated(400, 20, values)})
    thresholds = load_thresholds("pretrain")
    told = diagnose(run, *detect(run, thresholds), thresholds)
    (incident,) = [one for one in told.incidents if one.kind == "loss_nonfinite"]
    causes = {cause.id: cause.verdict for cause in incident.causes}
    assert causes["C.LABELS.ALL_MASKED"] == "supported"
    assert causes["C.STATE.NAN_WEIGHTS"] == "ruled_out"


def test_a_rate_of_zero_on_every_line_is_critical_where_nothing_is_learned():
    """The whole run was for nothing; without the start of the run it is a warning."""
    run = make_run({"loss": standing(), "lr": [0.0] * 400})
    item = only(run, "lr_schedule")
    assert (item.severity, item.statistics["shape"]) == ("critical", "zero")
    assert [e.label for e in item.evidence[:2]] == ["lr_zero", "lr_zero"]
    run = make_run({"loss": standing(level=2.0), "lr": [0.0] * 400}, steps=range(9000, 9400))
    assert only(run, "lr_schedule").severity == "warning"


def test_a_rate_printed_as_zero_while_the_loss_falls_is_a_note():
    """0.000 stands for 3e-5: the optimizer moves."""
    item = only(make_run({"loss": falling(), "lr": [0.0] * 400}), "lr_schedule")
    assert (item.severity, item.statistics["shape"]) == ("info", "zero_printed")
    assert [e.label for e in item.evidence] == ["lr_printed_zero", "loss_onset", "loss_end"]


@pytest.mark.parametrize(("digits", "severity"), [(4, "info"), (12, "warning")])
def test_zeros_of_a_coarse_print_are_no_end_of_the_schedule(digits, severity):
    """A rate that leaves the last printed digit is not 0; one that drops to 0 is."""
    rate = 4e-4 * (1 + np.cos(np.linspace(0, np.pi, 400))) / 2
    if digits > 4:
        rate[300:] = 0.0
    loss = np.r_[falling(300), standing(100, level=2.5)]
    item = only(make_run({"loss": loss, "lr": np.round(rate, digits)}), "lr_schedule")
    assert item.severity == severity


def test_a_short_print_of_zeros_at_the_start_is_no_finding():
    """A warm-up prints a few zeros."""
    rate = np.r_[np.zeros(12), np.full(388, 3e-4)]
    assert "lr_schedule" not in kinds(make_run({"loss": falling(), "lr": rate}))


def test_a_norm_that_is_nan_on_every_line_of_a_run_that_learns_is_a_warning():
    """The gradients cannot be NaN; nothing was lost, yet nobody can judge them."""
    item = only(make_run({"loss": falling(), "grad_norm": [np.nan] * 400}), "grad_nonfinite")
    assert item.severity == "warning"
    assert not {"cost_steps", "recovered"} & set(item.statistics)
    short = make_run({"loss": [3.0, 2.5], "grad_norm": [np.nan] * 2})
    assert only(short, "grad_nonfinite").severity == "info"


def test_a_norm_that_is_nan_on_every_line_of_a_run_that_learns_nothing_is_critical():
    """Every step may be skipped."""
    run = make_run({"loss": standing(), "grad_norm": [np.nan] * 400})
    assert only(run, "grad_nonfinite").severity == "critical"


def test_a_norm_that_turns_nan_later_is_judged_as_before():
    """The state may be lost from there."""
    norm = np.r_[np.full(200, 1.0), np.full(200, np.nan)]
    run = make_run({"loss": falling(), "grad_norm": norm})
    assert "critical" in {f.severity for f in found(run) if f.kind == "grad_nonfinite"}
