"""Checks on shapes, slow steps and attempts, each on runs made to support it and to rule it out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synth_system import make_run as make_rows

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import kinds, load_thresholds
from loganalyze.model import CheckResult, Finding, RunLog
from loganalyze.resumed import served_again
from loganalyze.tracks import longest_row, tracks

THRESHOLDS = load_thresholds("pretrain")
RNG = np.random.default_rng(5)
N = 400
QUIET = 3.0 + 0.01 * RNG.standard_normal(N)
NORM = 0.5 * np.exp(0.1 * RNG.standard_normal(N))
TIME = 1.0 + 0.01 * RNG.standard_normal(N)


def finding(kind: str, first: int, last: int, **statistics: object) -> Finding:
    """A finding at steps [first, last]."""
    segment = statistics.pop("segment", 0)
    metric = statistics.pop("metric", None)
    return Finding(
        id=f"{kind}-{first}", code=kinds()[kind].code, kind=kind, metric=metric,  # type: ignore[arg-type]
        severity="warning", step_first=first, step_last=last, segment=segment,  # type: ignore[arg-type]
        statistics=statistics,  # type: ignore[arg-type]
    )  # fmt: skip


def answer(run: RunLog, check: str, found: Finding) -> CheckResult:
    """What a check says of a finding."""
    context = CheckContext(run=run, findings=(found,), finding=found, thresholds=THRESHOLDS)
    return CHECKS[check](context)


def put(values: np.ndarray, start: int, new: object) -> np.ndarray:
    """A copy with the values from `start` on replaced."""
    out, fresh = np.array(values, dtype=np.float64), np.atleast_1d(np.asarray(new, dtype=float))
    out[start : start + len(fresh)] = fresh
    return out


BLOCK = put(QUIET, 200, [5.0, 5.1, 4.9, 5.0])
DECAY = put(QUIET, 200, 3.0 + 3.0 * np.exp(-np.arange(30) / 6))
STEP = put(QUIET, 200, np.full(200, 5.0) + 0.01 * RNG.standard_normal(200))
SPIKE = finding("loss_spike", 201, 204)
LONG = finding("loss_spike", 201, 215)
LASTING = finding("loss_divergence", 201, 400)
NAN = put(QUIET, 200, np.full(200, math.nan))
LEAPS = put(put(put(NORM, 200, 5e3), 210, 5e3), 220, 5e3)
LEAPING = finding("grad_explosion", 201, 221, base=0.5, length_points=21)
CASES = (
    ("block_of_steps", {"loss": BLOCK}, SPIKE, "supported"),
    ("block_of_steps", {"loss": DECAY}, LONG, "ruled_out"),
    ("ends_at_once", {"loss": BLOCK}, SPIKE, "supported"),
    ("ends_at_once", {"loss": DECAY}, SPIKE, "ruled_out"),
    ("ends_at_once", {"grad_norm": NORM}, SPIKE, "not_checkable"),
    ("decays_from_peak", {"loss": DECAY}, LONG, "supported"),
    ("decays_from_peak", {"loss": BLOCK}, SPIKE, "ruled_out"),
    ("steps_took_longer", {"loss": BLOCK, "step_time_s": put(TIME, 200, [2.0] * 4)}, SPIKE,
     "supported"),
    ("steps_took_longer", {"loss": BLOCK, "step_time_s": TIME}, SPIKE, "ruled_out"),
    ("norm_fell_as_loss_rose", {"loss": STEP, "grad_norm": put(NORM, 200, [0.1] * 200)}, LASTING,
     "supported"),
    ("norm_fell_as_loss_rose", {"loss": STEP, "grad_norm": put(NORM, 200, [2.0] * 200)}, LASTING,
     "ruled_out"),
    ("stays_high", {"loss": STEP}, LASTING, "supported"),
    ("stays_high", {"loss": DECAY}, LONG, "ruled_out"),
    ("nan_to_the_end", {"loss": NAN}, finding("loss_nonfinite", 201, 400), "supported"),
    ("nan_to_the_end", {"loss": put(QUIET, 200, [math.nan] * 20)},
     finding("loss_nonfinite", 201, 220), "ruled_out"),
    ("broke_at_once", {"loss": NAN, "grad_norm": NORM}, finding("loss_nonfinite", 201, 400),
     "supported"),
    ("broke_at_once", {"loss": put(NAN, 197, [6.0, 12.0, 50.0])},
     finding("loss_nonfinite", 201, 400), "ruled_out"),
    ("weights_stand_still", {"loss": QUIET, "params_norm": np.full(N, 24.5)},
     finding("loss_plateau", 1, 400), "supported"),
    ("weights_stand_still", {"loss": QUIET, "params_norm": np.linspace(20, 24, N)},
     finding("loss_plateau", 1, 400), "ruled_out"),
    ("weights_grew", {"loss": QUIET, "params_norm": put(np.full(N, 20.0), 200,
                                                        20 * 1.02 ** np.arange(200))},
     finding("grad_explosion", 201, 400), "supported"),
    ("weights_grew", {"loss": QUIET, "params_norm": np.linspace(20, 24, N)},
     finding("grad_explosion", 201, 400), "ruled_out"),
    ("leaps_beyond_reason", {"loss": QUIET, "grad_norm": LEAPS}, LEAPING, "supported"),
    ("leaps_beyond_reason", {"loss": QUIET, "grad_norm": put(NORM, 200, [40.0] * 20)}, LEAPING,
     "ruled_out"),
    ("grad_lasts", {"loss": QUIET, "grad_norm": LEAPS}, LEAPING, "ruled_out"),
    ("scale_falls_in_one_go", {"loss_scale": put(np.full(N, 65536.0), 200,
                                                 65536.0 / 2 ** np.minimum(np.arange(200), 16))},
     finding("loss_scale_collapse", 201, 220), "supported"),
    ("scale_falls_in_one_go", {"loss_scale": np.repeat(2.0 ** np.arange(16, 12, -1), 100)},
     finding("loss_scale_collapse", 201, 220), "ruled_out"),
    ("val_apart_from_start", {"loss": QUIET, "val_loss": put(np.full(N, math.nan), 99, [5.0])},
     finding("val_loss_rising", 100, 400), "supported"),
    ("val_apart_from_start", {"loss": QUIET, "val_loss": put(np.full(N, math.nan), 99, [3.1])},
     finding("val_loss_rising", 100, 400), "ruled_out"),
    ("lr_jumped_earlier", {"lr": put(np.full(N, 1e-5), 180, np.full(220, 6e-5))},
     finding("kl_blowup", 201, 400), "supported"),
    ("lr_jumped_earlier", {"lr": np.full(N, 1e-5)}, finding("kl_blowup", 201, 400), "ruled_out"),
    ("entropy_falls_first", {"entropy": put(np.full(N, 2.0), 200, np.linspace(2, 0.1, 200)),
                             "kl": put(np.full(N, 1.0), 300, np.full(100, 3.0))},
     finding("kl_blowup", 301, 400), "supported"),
    ("entropy_falls_first", {"entropy": np.full(N, 2.0),
                             "kl": put(np.full(N, 1.0), 300, np.full(100, 3.0))},
     finding("kl_blowup", 301, 400), "ruled_out"),
    ("tensors_leaked", {"loss": QUIET}, finding("memory_leak", 1, 400,
                                                metric="mem_allocated_bytes"), "supported"),
    ("tensors_leaked", {"loss": QUIET}, finding("memory_leak", 1, 400,
                                                metric="mem_reserved_bytes"), "ruled_out"),
    ("rate_is_wild", {"loss": QUIET}, finding("config_audit", 1, 1, rule="lr_adam_most",
                                              side="above", value=0.1), "supported"),
    ("rate_is_wild", {"loss": QUIET}, finding("config_audit", 1, 1, rule="eps_high",
                                              side="above", value=0.1), "ruled_out"),
    ("start_is_wide", {"loss": QUIET}, finding("config_audit", 1, 1, rule="first_loss_nat"),
     "supported"),
    ("start_is_wide", {"loss": QUIET}, finding("config_audit", 1, 1, rule="eps_high"),
     "ruled_out"),
    ("load_rises_late", {"loss": QUIET, "raw/moe_max_load": QUIET},
     finding("expert_imbalance", 201, 400, metric="raw/moe_max_load"), "supported"),
    ("load_rises_late", {"loss": QUIET, "raw/moe_max_load": QUIET},
     finding("expert_imbalance", 2, 400, metric="raw/moe_max_load"), "ruled_out"),
)  # fmt: skip


BLOCKS = np.tile(np.where(np.arange(50) < 12, 4.0, 3.0), 8) + 0.02 * RNG.standard_normal(N)
HUMP = QUIET + 2.0 * np.exp(-(((np.arange(N) - 250) / 40) ** 2))
CASES += (
    ("loss_repeats", {"loss": BLOCKS}, SPIKE, "supported"),
    ("loss_repeats", {"loss": HUMP}, SPIKE, "ruled_out"),
    ("loss_repeats", {"loss": QUIET[:100]}, SPIKE, "not_checkable"),
    ("equal_then_apart", {"loss": QUIET}, finding("rank_divergence", 201, 400, same_before=200),
     "supported"),
    ("equal_then_apart", {"loss": QUIET}, finding("rank_divergence", 1, 400, same_before=0),
     "ruled_out"),
    ("long_pauses", {"loss": QUIET}, finding("throughput_stall", 1, 400, stall_time=30.0),
     "supported"),
    ("long_pauses", {"loss": QUIET}, finding("throughput_stall", 1, 400, stall_time=0.8),
     "ruled_out"),
    ("period_of_few_steps", {"loss": QUIET}, finding("throughput_stall", 1, 400,
                                                     period_steps=8.0), "supported"),
    ("period_of_few_steps", {"loss": QUIET}, finding("throughput_stall", 1, 400,
                                                     period_steps=50.0), "ruled_out"),
)  # fmt: skip


@pytest.mark.parametrize(("check", "columns", "found", "state"), CASES)
def test_a_check_tells_its_case(
    check: str, columns: dict[str, np.ndarray], found: Finding, state: str
) -> None:
    """Supported where it was made to hold, ruled out where it was made not to."""
    assert answer(make_rows(columns), check, found).state == state


SLOW = put(TIME, 203, [2.5])
for _at in range(203, N, 9):
    SLOW[_at] = 2.5
_SLOW = SLOW > 2
STALL = finding("throughput_stall", 204, 400)
STALLS = (
    ("data_explains_slow_steps", {"data_time_s": np.where(_SLOW, 1.51, 0.01)}, "supported"),
    ("data_explains_slow_steps", {"data_time_s": np.full(N, 0.01)}, "ruled_out"),
    ("compute_explains_slow_steps", {"forward_time_s": np.where(_SLOW, 1.1, 0.3),
                                     "backward_time_s": np.where(_SLOW, 1.3, 0.6)}, "supported"),
    ("compute_explains_slow_steps", {"forward_time_s": np.full(N, 0.3)}, "ruled_out"),
    ("outside_the_timers", {"forward_time_s": np.full(N, 0.3), "data_time_s": np.full(N, 0.01)},
     "supported"),
    ("outside_the_timers", {"forward_time_s": np.full(N, 0.3)}, "not_checkable"),
    ("outside_the_timers", {"forward_time_s": np.where(_SLOW, 1.8, 0.3),
                            "data_time_s": np.full(N, 0.01)}, "ruled_out"),
    ("outside_the_timers", {}, "not_checkable"),
    ("loss_differs_in_slow_steps", {"loss": np.where(_SLOW, QUIET + 0.3, QUIET)}, "supported"),
    ("loss_differs_in_slow_steps", {"loss": QUIET}, "ruled_out"),
    ("more_tokens_in_slow_steps", {"tokens_per_s": np.full(N, 1000.0)}, "supported"),
    ("more_tokens_in_slow_steps", {"tokens_per_s": 1000.0 / SLOW}, "ruled_out"),
)  # fmt: skip


@pytest.mark.parametrize(("check", "columns", "state"), STALLS)
def test_what_slow_steps_have(check: str, columns: dict[str, np.ndarray], state: str) -> None:
    """The part of the step, the loss or the work that sets the slow steps apart."""
    assert answer(make_rows({"step_time_s": SLOW, **columns}), check, STALL).state == state


def _two_attempts(second: np.ndarray) -> RunLog:
    """Steps 1 to 227, then again from 201 on with other losses."""
    steps = [*range(1, 228), *range(201, 201 + len(second))]
    return make_rows({"loss": [*FIRST[:227], *second]}, steps=steps)


NOISE = 0.05 * RNG.standard_normal(N)
FIRST = 3.0 - np.arange(N) / 400 + NOISE
_AFTER = finding("loss_discontinuity", 201, 220, segment=1)


def test_a_state_that_was_lost_shows_in_the_second_step() -> None:
    """The first repeated step is alike, the next ones are higher; healthy ones are all alike."""
    lost = FIRST[200:400].copy()
    lost[1:12] += np.linspace(0.6, 0.05, 11)
    assert answer(_two_attempts(lost), "first_step_alike", _AFTER).state == "supported"
    sound = answer(_two_attempts(FIRST[200:400]), "first_step_alike", _AFTER)
    assert sound.state == "ruled_out"


def test_data_served_again_swing_alike() -> None:
    """Losses that swing as those of the first steps are found; fresh noise is not."""
    again = FIRST[200:400] - NOISE[200:400] + 0.7 * NOISE[:200] + 0.02 * RNG.standard_normal(200)
    assert answer(_two_attempts(again), "data_served_again", _AFTER).state == "supported"
    fresh = FIRST[200:400] - NOISE[200:400] + 0.05 * RNG.standard_normal(200)
    assert answer(_two_attempts(fresh), "data_served_again", _AFTER).state == "ruled_out"
    run = _two_attempts(again)
    own = tracks(run, "loss")
    link, deviations, count = served_again(own, own[1])
    assert deviations == pytest.approx(link * math.sqrt(count))


def test_one_rank_that_got_slower_is_told_from_all() -> None:
    """One of two ranks at twice its time is; both at twice theirs are not."""
    late = np.arange(N) >= 200
    both = np.where(late, 2.0, 1.0)
    rank = [*([0] * N), *([1] * N)]
    steps = [*range(1, N + 1)] * 2
    found = finding("throughput_drop", 201, 400)
    for one, state in ((np.full(N, 1.0), "supported"), (1.01 * both, "ruled_out")):
        run = make_rows({"step_time_s": [*one, *both]}, steps=steps, rank=rank)
        assert answer(run, "one_rank_got_slower", found).state == state


def test_rows_of_skipped_steps_go_on_over_an_interval() -> None:
    """Two messages at every second step are one row; a gap ends it."""
    steps = np.repeat(np.arange(10, 30, 2), 2)
    assert longest_row(steps, np.ones(len(steps)), 2) == 20
    assert longest_row(np.array([1, 2, 3, 9, 10]), np.ones(5), 1) == 3
    assert longest_row(np.array([]), np.array([]), 1) == 0
