"""Checks on curves, each on a run that was made to support it, to rule it out, or to be silent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from synth import make_run

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import kinds, load_thresholds
from loganalyze.model import CheckResult, Finding, RunLog

THRESHOLDS = load_thresholds("pretrain")
RNG = np.random.default_rng(11)
N = 400
QUIET = 3.0 + 0.01 * RNG.standard_normal(N)
NORM = 0.5 * np.exp(0.1 * RNG.standard_normal(N))
NAN = math.nan


def finding(kind: str, first: int, last: int | None = None, **statistics: object) -> Finding:
    """A finding at steps [first, last] of segment 0 (or `segment`)."""
    segment = statistics.pop("segment", 0)
    return Finding(
        id=f"{kind}-{first}", code=kinds()[kind].code, kind=kind, metric=None, severity="warning",
        step_first=first, step_last=first if last is None else last,
        segment=segment, statistics=statistics,  # type: ignore[arg-type]
    )  # fmt: skip


def answer(run: RunLog, check: str, *found: Finding) -> CheckResult:
    """What a check says of the last finding, the others beside it."""
    context = CheckContext(run=run, findings=found, finding=found[-1], thresholds=THRESHOLDS)
    return CHECKS[check](context)


def changed(values: np.ndarray, part: slice, new: object) -> np.ndarray:
    """A copy with a part replaced."""
    out = np.array(values, dtype=np.float64)
    out[part] = new
    return out


def ramp(first: float, last: float, n: int = N) -> np.ndarray:
    """A straight line."""
    return np.linspace(first, last, n)


Case = tuple[str, Mapping[str, Sequence[float] | np.ndarray], Finding, str]
SPIKE = finding("loss_spike", 201, 210)
DEAD = finding("loss_nonfinite", 201, 400)
WHOLE = finding("loss_plateau", 1, 400)
CASES: tuple[Case, ...] = (
    ("loss_calm", {"loss": QUIET}, SPIKE, "supported"),
    ("loss_calm", {"loss": changed(QUIET, slice(200, 210), 4.0)}, SPIKE, "ruled_out"),
    ("loss_calm", {"grad_norm": NORM}, SPIKE, "not_checkable"),
    ("came_back", {"loss": changed(QUIET, slice(200, 210), 4.0)}, SPIKE, "supported"),
    ("came_back", {"loss": changed(QUIET, slice(200, 400), 4.0)}, SPIKE, "ruled_out"),
    ("came_back", {"loss": QUIET[:211]}, SPIKE, "not_checkable"),
    ("growth_before", {"loss": QUIET, "grad_norm": changed(NORM, slice(195, 200), 9.0)}, DEAD,
     "supported"),
    ("growth_before", {"loss": QUIET, "grad_norm": NORM}, DEAD, "ruled_out"),
    ("growth_before", {"loss": QUIET - 3}, DEAD, "not_checkable"),  # a policy's, about zero
    ("from_first_step", {"loss": QUIET}, finding("loss_nonfinite", 1), "supported"),
    ("from_first_step", {"loss": QUIET}, DEAD, "ruled_out"),
    ("in_first_dozen", {"loss": QUIET}, finding("loss_nonfinite", 4), "supported"),
    ("in_first_dozen", {"loss": QUIET}, finding("loss_nonfinite", 1), "ruled_out"),
    ("several_epochs", {"epoch": ramp(0, 3)}, WHOLE, "supported"),
    ("several_epochs", {"epoch": ramp(0, 0.9)}, WHOLE, "ruled_out"),
    ("at_epoch_edge", {"epoch": ramp(0, 2)}, SPIKE, "supported"),
    ("at_epoch_edge", {"epoch": changed(ramp(0, 2), slice(199, 202), math.inf)}, SPIKE,
     "ruled_out"),
    ("at_planned_end", {"epoch": changed(ramp(0, 2), slice(399, 400), math.inf)}, WHOLE,
     "ruled_out"),
    ("at_epoch_edge", {"epoch": ramp(0, 2)}, finding("loss_spike", 150), "ruled_out"),
    ("loss_exactly_zero", {"loss": changed(QUIET, slice(200, 400), 0.0)}, WHOLE, "supported"),
    ("loss_exactly_zero", {"loss": QUIET}, WHOLE, "ruled_out"),
    ("zero_stands_for_nan", {"loss": changed(QUIET, slice(9, 20), 0.0),
                             "grad_norm": changed(NORM, slice(9, 20), NAN)}, WHOLE, "supported"),
    ("zero_stands_for_nan", {"loss": changed(QUIET, slice(9, 20), 0.0), "grad_norm": NORM}, WHOLE,
     "ruled_out"),
    ("wild_line_before", {"loss": changed(changed(QUIET, slice(200, 400), 0.0), slice(199, 200),
                                          1e5)}, WHOLE, "supported"),
    ("wild_line_before", {"loss": changed(QUIET, slice(200, 400), 0.0)}, WHOLE, "ruled_out"),
    ("loss_at_ln2", {"loss": np.full(N, 0.6931)}, WHOLE, "supported"),
    ("loss_at_ln2", {"loss": QUIET}, WHOLE, "ruled_out"),
    ("alternates_with_nan", {"loss": changed(QUIET, slice(100, 400, 7), NAN)}, DEAD, "supported"),
    ("alternates_with_nan", {"loss": changed(QUIET, slice(200, 400), NAN)}, DEAD, "ruled_out"),
    ("creeps_up", {"loss": ramp(3, 3.4)}, finding("loss_divergence", 1, 400), "supported"),
    ("creeps_up", {"loss": changed(QUIET, slice(200, 400), 5.0)},
     finding("loss_divergence", 1, 400), "ruled_out"),
    ("onset_while_lr_falls", {"lr": ramp(1e-4, 1e-5)}, finding("loss_divergence", 300, 400),
     "supported"),
    ("onset_while_lr_falls", {"lr": np.full(N, 1e-4)}, finding("loss_divergence", 300, 400),
     "ruled_out"),
    ("train_falls", {"loss": ramp(3, 1)}, finding("val_loss_rising", 100, 400), "supported"),
    ("train_falls", {"loss": ramp(1, 3)}, finding("val_loss_rising", 100, 400), "ruled_out"),
    ("grad_leads", {"loss": QUIET, "grad_norm": changed(NORM, slice(197, 205), 40.0)}, SPIKE,
     "supported"),
    ("grad_leads", {"loss": QUIET, "grad_norm": NORM}, SPIKE, "ruled_out"),
    ("grad_leads", {"loss": QUIET, "grad_norm": np.zeros(N)}, SPIKE, "not_checkable"),
    ("grad_zero", {"grad_norm": np.zeros(N)}, WHOLE, "supported"),
    ("grad_zero", {"grad_norm": NORM}, WHOLE, "ruled_out"),
    ("grad_pinned", {"grad_norm": np.full(N, 1.41421)}, WHOLE, "supported"),
    ("grad_pinned", {"grad_norm": NORM}, WHOLE, "ruled_out"),
    ("grad_huge_at_start", {"loss": QUIET, "grad_norm": changed(NORM, slice(0, 1), math.inf)},
     finding("grad_nonfinite", 1), "supported"),
    ("grad_huge_at_start", {"loss": QUIET, "grad_norm": NORM}, finding("grad_nonfinite", 1),
     "ruled_out"),
    ("grad_drifts", {"grad_norm": ramp(0.4, 0.9)}, finding("grad_explosion", 399), "supported"),
    ("grad_drifts", {"grad_norm": NORM}, finding("grad_explosion", 399), "ruled_out"),
    ("noise_follows_lr", {"grad_norm": 1 + ramp(0.5, 0.01) * RNG.standard_normal(N),
                          "lr": ramp(1e-3, 2e-5)}, WHOLE, "supported"),
    ("noise_follows_lr", {"grad_norm": 1 + 0.1 * RNG.standard_normal(N), "lr": ramp(1e-3, 2e-5)},
     WHOLE, "ruled_out"),
    ("scale_falls_first", {"loss": QUIET, "loss_scale": changed(np.full(N, 65536.0),
                                                                slice(180, 400), 4096.0)}, SPIKE,
     "supported"),
    ("scale_falls_first", {"loss": QUIET, "loss_scale": np.full(N, 65536.0)}, SPIKE, "ruled_out"),
    ("scale_sinks", {"loss_scale": 2.0 ** np.repeat([16, 14, 12, 10], 100)}, WHOLE, "supported"),
    ("scale_at_floor", {"loss_scale": changed(np.full(N, 64.0), slice(390, 400), 1.0)}, WHOLE,
     "supported"),
    ("scale_at_floor", {"loss_scale": np.full(N, 1.0)}, WHOLE, "ruled_out"),
    ("loss_jumps_at_once", {"loss": changed(QUIET, slice(200, 204), 5.0)}, SPIKE, "supported"),
    ("loss_jumps_at_once", {"loss": changed(QUIET, slice(200, 210), 3.0 + np.arange(1, 11) / 5)},
     SPIKE, "ruled_out"),
    ("loss_breaks_alone", {"loss": changed(QUIET, slice(200, 400), NAN), "grad_norm":
                           changed(NORM, slice(200, 400), 0.0)}, DEAD, "supported"),
    ("loss_breaks_alone", {"loss": changed(QUIET, slice(200, 400), NAN), "grad_norm":
                           changed(NORM, slice(200, 400), NAN)}, DEAD, "ruled_out"),
    ("grad_lasts", {"grad_norm": NORM}, finding("grad_explosion", 201, 260, length_points=60),
     "supported"),
    ("grad_lasts", {"grad_norm": NORM}, finding("grad_explosion", 201, 202, length_points=2),
     "ruled_out"),
    ("grad_drifts", {"grad_norm": changed(NORM, slice(200, 400), 9.0)},
     finding("grad_explosion", 201, 400), "ruled_out"),
    ("expert_load", {"raw/moe_max_load": changed(np.full(N, 0.3), slice(190, 400), 0.7)}, DEAD,
     "supported"),
    ("expert_load", {"raw/moe_max_load": np.full(N, 0.3)}, DEAD, "ruled_out"),
    ("expert_load", {"loss": QUIET}, DEAD, "not_checkable"),
    ("data_explains_slow_steps", {
        "step_time_s": changed(np.full(N, 2.0), slice(200, 400, 9), 5.0),
        "data_time_s": changed(np.full(N, 0.1), slice(200, 400, 9), 3.0)}, DEAD, "supported"),
    ("data_explains_slow_steps", {
        "step_time_s": changed(np.full(N, 2.0), slice(200, 400, 9), 5.0),
        "data_time_s": np.full(N, 0.1)}, DEAD, "ruled_out"),
    ("lr_low_for_task", {"lr": np.full(N, 1e-7)}, WHOLE, "supported"),
    ("lr_low_for_task", {"lr": np.full(N, 3e-4)}, WHOLE, "ruled_out"),
    ("lr_tiny", {"lr": changed(np.full(N, 1e-4), slice(200, 400), 1e-7)}, DEAD, "supported"),
    ("lr_tiny", {"lr": np.full(N, 1e-4)}, DEAD, "ruled_out"),
    ("lr_changed", {"lr": changed(np.full(N, 1e-4), slice(195, 400), 3e-4)}, SPIKE, "supported"),
    ("lr_changed", {"lr": ramp(1e-6, 1e-4)}, finding("loss_spike", 6), "ruled_out"),
    ("near_warmup_end", {"lr": np.minimum(ramp(1e-6, 2e-4), 1e-4)}, SPIKE, "supported"),
    ("near_warmup_end", {"lr": np.minimum(ramp(1e-6, 2e-4), 1e-4)}, finding("loss_spike", 20),
     "ruled_out"),
    ("no_warmup", {"lr": ramp(1e-4, 1e-5)}, SPIKE, "supported"),
    ("no_warmup", {"lr": ramp(1e-6, 1e-4)}, SPIKE, "ruled_out"),
    ("memory_was_rising", {"mem_allocated_bytes": ramp(4e10, 6e10)}, finding("oom", 400),
     "supported"),
    ("memory_was_rising", {"mem_allocated_bytes": np.full(N, 4e10)}, finding("oom", 400),
     "ruled_out"),
    ("reserved_runs_away", {"mem_allocated_bytes": np.full(N, 4e10),
                            "mem_reserved_bytes": ramp(5e10, 7e10)}, WHOLE, "supported"),
    ("longer_sequences", {"seq_len": changed(np.full(N, 1e3), slice(200, 400), 4e3)}, DEAD,
     "supported"),
    ("time_follows_length", {"seq_len": ramp(1e3, 9e3), "step_time_s": ramp(1, 7)}, WHOLE,
     "supported"),
    ("batch_grew", {"global_batch_size": changed(np.full(N, 64.0), slice(200, 400), 96.0)}, DEAD,
     "supported"),
    ("abrupt_and_lasting", {"step_time_s": changed(np.full(N, 2.0), slice(200, 400), 2.12)}, DEAD,
     "supported"),
    ("abrupt_and_lasting", {"step_time_s": np.full(N, 2.0)}, DEAD, "ruled_out"),
    ("data_time_rose", {"data_time_s": changed(np.full(N, 0.1), slice(200, 400), 0.9)}, DEAD,
     "supported"),
    ("data_share", {"data_time_s": np.full(N, 0.5), "step_time_s": np.full(N, 2.0)}, DEAD,
     "supported"),
    ("clock_fell", {"gpu_sm_clock_hz": changed(np.full(N, 1.9e9), slice(200, 400), 1.3e9)}, DEAD,
     "supported"),
    ("hot", {"gpu_temp_c": np.full(N, 88.0)}, DEAD, "supported"),
    ("hot", {"gpu_temp_c": np.full(N, 61.0)}, DEAD, "ruled_out"),
    ("busy_without_power", {"gpu_util": np.full(N, 1.0),
                            "gpu_power_w": changed(np.full(N, 600.0), slice(300, 400), 120.0)},
     finding("hang", 301, 400), "supported"),
    ("creeps_slower", {"step_time_s": ramp(2, 2.6)}, finding("throughput_degradation", 1, 400),
     "supported"),
    ("mfu_impossible", {"mfu": np.full(N, 0.9)}, WHOLE, "supported"),
    ("rewards_equal", {"reward_std": np.zeros(N)}, WHOLE, "supported"),
    ("rewards_equal", {"reward_std": np.full(N, 0.3)}, WHOLE, "ruled_out"),
    ("answers_cut_off", {"raw/completions/clipped_ratio": np.ones(N)}, WHOLE, "supported"),
    ("kl_negative", {"kl": np.full(N, -0.4)}, WHOLE, "supported"),
    ("kl_without_gain", {"kl": np.geomspace(0.01, 5, N), "reward": np.full(N, 0.7)}, WHOLE,
     "supported"),
    ("entropy_gone", {"entropy": np.geomspace(1, 0.02, N)}, WHOLE, "supported"),
    ("length_grew", {"response_length": ramp(200, 900)}, WHOLE, "supported"),
    ("reward_constant", {"reward": np.zeros(N)}, WHOLE, "supported"),
    ("updates_large", {"clip_fraction": np.full(N, 0.5)}, WHOLE, "supported"),
    ("attention_logits_grow", {"max_attention_logit": np.geomspace(20, 4000, N)}, WHOLE,
     "supported"),
    ("margins_zero", {"raw/rewards/margins": np.zeros(N)}, WHOLE, "supported"),
)  # fmt: skip


@pytest.mark.parametrize(("check", "metrics", "about", "state"), CASES)
def test_check_answers_by_the_curves(
    check: str, metrics: Mapping[str, np.ndarray], about: Finding, state: str
) -> None:
    """A check finds what was planted, denies it where it was not, and says what it lacks."""
    told = answer(make_run(metrics), check, about)
    assert told.state == state
    assert told.check == check
    assert bool(told.missing) == (state == "not_checkable")
    if state == "supported":
        assert told.evidence


def test_an_excerpt_has_no_first_step() -> None:
    """Where the log begins in the middle, what stands in its first line need not be the start."""
    run = make_run({"loss": QUIET}, steps=np.arange(9000, 9000 + N))
    told = answer(run, "from_first_step", finding("loss_nonfinite", 9000))
    assert told.state == "not_checkable"
    assert told.missing == ("earlier_steps",)


def test_evidence_names_step_value_and_line() -> None:
    """Evidence of a curve carries step, value, what was expected and the line it stands in."""
    run = make_run({"loss": QUIET, "grad_norm": changed(NORM, slice(197, 205), 40.0)})
    norm, lead = answer(run, "grad_leads", SPIKE).evidence
    assert (norm.step, norm.value) == (198, 40.0)
    assert norm.ref is not None
    assert norm.ref.line == 198
    assert (lead.value, lead.unit, lead.expected) == (3, "step", "> 0")


def test_equal_distances_point_to_the_order_of_the_data() -> None:
    """Spikes every 90 steps are periodic, spikes at odd distances are not; two tell nothing."""
    run = make_run({"loss": QUIET})

    def told(*starts: int) -> str:
        found = tuple(finding("loss_spike", start) for start in starts)
        return answer(run, "returns_periodically", *found).state

    assert told(40, 130, 220, 310) == "supported"
    assert told(40, 130, 290, 310) == "ruled_out"
    assert told(40, 130) == "ruled_out"


def test_a_jump_between_means_cannot_be_told() -> None:
    """In a log of every tenth step a rise of eight steps is a jump as well: not checkable."""
    run = make_run({"loss": changed(QUIET, slice(20, 30), 5.0)}, steps=10 * np.arange(1, N + 1))
    told = answer(run, "loss_jumps_at_once", finding("loss_spike", 210, 300))
    assert told.missing == ("every_step",)


def test_search_for_the_scale_leads_nothing() -> None:
    """The falls of the loss scale in the first steps are no sign of an overflow before a spike."""
    scale = changed(np.full(N, 1024.0), slice(0, 20), 65536.0)
    run = make_run({"loss": QUIET, "loss_scale": scale})
    assert answer(run, "scale_falls_first", finding("loss_spike", 30)).state == "ruled_out"


def test_one_rank_out_of_eight() -> None:
    """A rank whose loss is far from the others' is named; eight that agree rule it out."""
    steps = np.repeat(np.arange(1, 51), 8)
    ranks = list(np.tile(np.arange(8), 50))
    values = 3 + 0.01 * RNG.standard_normal(400)
    agree = make_run({"loss": values}, steps=steps, ranks=ranks)
    odd = make_run({"loss": values + 4.0 * (np.array(ranks) == 5)}, steps=steps, ranks=ranks)
    about = finding("loss_spike", 1, 50)
    assert answer(agree, "rank_outlier", about).state == "ruled_out"
    told = answer(odd, "rank_outlier", about)
    assert told.state == "supported"
    assert told.evidence[0].value == 5


@pytest.mark.parametrize(
    ("check", "config", "state"),
    [
        ("init_wide", {"init_method_std": "0.02", "hidden_size": "11600"}, "supported"),
        ("init_wide", {"init_method_std": "0.006", "hidden_size": "11600"}, "ruled_out"),
        ("init_wide", {}, "not_checkable"),
        ("is_bf16", {"bf16": "True"}, "supported"),
        ("is_fp16", {"fp16": "True"}, "supported"),
        ("clip_off", {"clip_grad": "0.0"}, "supported"),
        ("clip_off", {"clip_grad": "1.0"}, "ruled_out"),
        ("small_batch", {"global_batch_size": "4", "seq_length": "2048"}, "supported"),
        ("small_batch", {"global_batch_size": "512", "seq_length": "4096"}, "ruled_out"),
        ("tensor_over_node", {"tensor_model_parallel_size": "16"}, "supported"),
        ("moe_on", {"num_experts": "8"}, "supported"),
        ("fp8_on", {"fp8": "hybrid"}, "supported"),
        ("fp8_on", {"fp8": "None"}, "ruled_out"),
        ("overlap_on", {"zero_optimization.overlap_comm": "true"}, "supported"),
        ("pipeline_bubble", {"pipeline_model_parallel_size": "8", "micro_batch_size": "1",
                             "global_batch_size": "128", "data_parallel_size": "8"}, "supported"),
        ("late_in_run", {"train_iters": "220"}, "supported"),
        ("loss_above_uniform", {"padded_vocab_size": "10"}, "ruled_out"),
    ],
)  # fmt: skip
def test_check_answers_by_the_settings(check: str, config: dict[str, str], state: str) -> None:
    """A check of a setting knows yes, no, and not printed."""
    run = make_run({"loss": QUIET, "grad_norm": NORM}, config=config)
    assert answer(run, check, SPIKE).state == state
