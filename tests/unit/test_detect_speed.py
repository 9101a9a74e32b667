"""Speed detectors against runs whose slow steps are known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import FloatArray, by_kind, context, event, make_run, step_time, worst

from loganalyze.detectors.speed import SPEED_OVER_TIME, _window_ratios, detect_speed
from loganalyze.detectors.speed_series import _touched, paces
from loganalyze.detectors.speed_shifts import mean_before
from loganalyze.model import Event, Finding

N = 2000


def _found(
    time: FloatArray, *, events: tuple[Event, ...] = (), **more: FloatArray
) -> list[Finding]:
    values = {"loss": np.linspace(5.0, 3.0, len(time)), "step_time_s": time, **more}
    return detect_speed(context(make_run(values, events=events)))


@pytest.mark.parametrize("count", [3, 19, 25, 60, 300, 5000])
@pytest.mark.parametrize("spread", [0.002, 0.02, 0.05])
def test_healthy_jitter_with_a_slow_start_is_silent(count: int, spread: float) -> None:
    """Compilation, jitter of up to 5 % and any length of run: nothing to say."""
    for seed in range(5):
        assert _found(step_time(count, seed, spread=spread)) == []


def test_a_single_slow_step_is_silent() -> None:
    """One step of fifty times the usual time is no finding at all."""
    time = step_time(N, 0)
    time[1000] *= 50.0
    assert _found(time) == []


@pytest.mark.parametrize(
    ("share", "records", "severity"),
    [(0.04, 400, "info"), (0.07, 100, "info"), (0.15, 30, "warning"), (0.3, 500, "warning")],
)
def test_level_shift_is_found_with_its_ends(share: float, records: int, severity: str) -> None:
    """A slow stretch has its onset and end within a few records, and the severity of its size."""
    time = step_time(N, 3)
    time[1000 : 1000 + records] *= 1.0 + share
    (one,) = by_kind(_found(time))["throughput_drop"]
    assert one.severity == severity
    assert one.step_first == pytest.approx(1001, abs=5)
    assert one.step_last == pytest.approx(1000 + records, abs=5)
    assert one.statistics["excess_share"] == pytest.approx(share, abs=0.02)
    assert one.statistics["recovered"] == 1


@pytest.mark.parametrize("at", [30, 48, 61])
def test_a_level_shift_in_a_hundred_records(at: int) -> None:
    """Wherever the shift falls in a short run, it is found to its end."""
    time = step_time(98, 21, spread=0.003)
    time[at:] *= 1.6
    (one,) = by_kind(_found(time))["throughput_drop"]
    assert one.step_first == pytest.approx(at + 1, abs=2)
    assert one.step_last == 98


def test_halved_speed_to_the_end_is_critical() -> None:
    """Twice the time until the log ends means look now."""
    time = step_time(N, 3)
    time[1500:] *= 2.2
    assert worst(_found(time), "throughput_drop") == "critical"


def test_three_records_of_twice_the_time_are_a_warning() -> None:
    """A burst of three is found where single slow steps are rare."""
    time = step_time(N, 4)
    time[700:703] *= 2.5
    (one,) = by_kind(_found(time))["throughput_drop"]
    assert (one.severity, one.step_first, one.step_last) == ("warning", 701, 703)
    assert {rule.name for rule in one.rules} == {"seed.throughput_low_3_steps"}


def test_a_cheap_burst_and_a_mild_one_are_notes() -> None:
    """Three slow steps of twenty thousand, and 60 % for three steps: worth a line, no alarm."""
    long = step_time(20_000, 4)
    long[700:703] *= 2.2
    mild = step_time(N, 4)
    mild[700:703] *= 1.6
    assert worst(_found(long), "throughput_drop") == "info"
    assert worst(_found(mild), "throughput_drop") == "info"


def test_chance_runs_of_slow_records_are_no_bursts() -> None:
    """Where every tenth step is slow at random, three in a row happen by chance."""
    time = step_time(N, 5)
    slow = np.random.default_rng(5).random(N) < 0.15
    time[slow] *= 2.5
    assert "throughput_drop" not in by_kind(_found(time))


def test_mean_before_equals_the_loop() -> None:
    """The monitoring document's reference is the mean speed of the 100 steps before."""
    time = step_time(300, 6)
    got = mean_before(time, 100)
    for at in (20, 99, 100, 250):
        past = time[max(0, at - 100) : at]
        assert got[at] == pytest.approx(1.0 / np.mean(1.0 / past))
    assert np.isinf(got[19])


def test_slow_drift_is_one_degradation_and_no_drop() -> None:
    """A rise of 20 % over the run is told as a drift, with an interval that holds the truth."""
    time = step_time(N, 7) * (1.0 + 0.2 * np.arange(N) / N)
    kinds = by_kind(_found(time))
    assert set(kinds) == {"throughput_degradation"}
    (one,) = kinds["throughput_degradation"]
    assert one.severity == "warning"
    low, high = one.statistics["excess_share_low"], one.statistics["excess_share_high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low <= 0.2 <= high + 0.02


def test_periodic_stalls_have_period_and_phase() -> None:
    """Every 100th step is slow: period 100, phase 0, and it costs what it costs."""
    time = step_time(N, 8)
    time[99::100] += 8.0
    (one,) = by_kind(_found(time))["throughput_stall"]
    assert (one.statistics["period_steps"], one.statistics["phase"]) == (100, 0)
    assert one.statistics["stalls"] == 20
    assert one.statistics["cost_share"] == pytest.approx(20 * 8.0 / time[1:].sum(), rel=0.02)
    assert one.severity == "info"


def test_dear_stalls_are_a_warning_but_evaluations_never() -> None:
    """Stalls that take a third of the time alarm, unless they are the evaluations of the run."""
    time = step_time(N, 9)
    time[50::50] += 50.0
    assert worst(_found(time), "throughput_stall") == "warning"
    marks = tuple(event("evaluation", row - 1, step=row) for row in range(50, N, 50))
    found = _found(time, events=marks)
    assert worst(found, "throughput_stall") == "info"
    (one,) = by_kind(found)["throughput_stall"]
    assert one.statistics["at_evaluation_share"] == 1.0


def test_two_periods_are_told_apart() -> None:
    """Saves every 500 steps and loader stalls every 64: two findings."""
    time = step_time(6000, 10)
    time[63::64] += 4.0
    time[500::500] += 60.0
    periods = {f.statistics["period_steps"] for f in by_kind(_found(time))["throughput_stall"]}
    assert periods == {64, 500}


@pytest.mark.parametrize(("spread", "severity"), [(0.1, None), (0.25, "info"), (0.6, "warning")])
def test_variance_by_p95_over_p50(spread: float, severity: str | None) -> None:
    """p95/p50 of 200 steps: above 1.3 a note, above 2 a warning."""
    assert worst(_found(step_time(N, 11, spread=spread)), "throughput_variance") == severity


def test_a_level_shift_is_not_told_again_as_variance() -> None:
    """A clean drop of 60 % is a drop and nothing else."""
    time = step_time(N, 12)
    time[900:1000] *= 1.6
    assert set(by_kind(_found(time))) == {"throughput_drop"}


def test_a_batch_ramp_is_no_slow_down() -> None:
    """Steps that take longer because they hold more samples are not slower."""
    batch = np.repeat([256.0, 512.0, 1024.0], 300)
    time = step_time(900, 13) * batch / 256.0
    assert _found(time, global_batch_size=batch) == []


def test_a_faster_phase_that_ends_is_no_drop() -> None:
    """Back to the usual speed after a fast stretch is usual."""
    time = step_time(N, 14)
    time[1200:1500] *= 0.7
    assert _found(time) == []


def test_tokens_per_second_serve_where_step_time_is_absent() -> None:
    """A drop of the rate is found and named after the metric that shows it."""
    rate = 1e5 / step_time(N, 15)
    rate[1000:] *= 0.8
    run = make_run({"loss": np.ones(N), "tokens_per_s": rate})
    (one,) = by_kind(detect_speed(context(run)))["throughput_drop"]
    assert one.metric == "tokens_per_s"
    assert one.statistics["excess_share"] == pytest.approx(0.25, abs=0.02)


def test_the_wall_clock_serves_where_no_speed_was_logged() -> None:
    """Time stamps of the loss lines show a halved speed."""
    time = step_time(400, 16, usual=30.0)
    time[200:] *= 2.0
    wall = 1.7e9 + np.round(np.cumsum(time))
    run = make_run({"loss": np.ones(400)}, wall_s=wall)
    (one,) = by_kind(detect_speed(context(run)))["throughput_drop"]
    assert one.step_first == pytest.approx(201, abs=3)


def test_resumed_segments_are_one_chain_and_fresh_ones_are_not() -> None:
    """A slower resume is compared with what ran before; another run in the file is not."""
    time = np.r_[step_time(300, 17), step_time(300, 18, usual=2.6)]
    steps = np.r_[np.arange(1, 301), np.arange(250, 550)]
    run = make_run({"loss": np.ones(600), "step_time_s": time}, steps=steps)
    (one,) = by_kind(detect_speed(context(run)))["throughput_drop"]
    assert one.segment == 1
    again = np.r_[np.arange(1, 301), np.arange(1, 301)]
    fresh = make_run({"loss": np.ones(600), "step_time_s": time}, steps=again)
    assert len(paces(context(fresh))) == 2
    assert detect_speed(context(fresh)) == []


def test_several_ranks_are_judged_by_their_median() -> None:
    """Four ranks print the same drop: one finding."""
    parts = [step_time(400, seed) for seed in range(4)]
    for part in parts:
        part[200:] *= 1.2
    run = make_run(
        {"step_time_s": np.stack(parts, axis=1).ravel(), "loss": np.ones(1600)},
        steps=np.repeat(np.arange(1, 401), 4),
        rank=np.tile(np.arange(4), 400),
    )
    assert len(by_kind(detect_speed(context(run)))["throughput_drop"]) == 1


def test_the_detector_names_what_it_needs() -> None:
    """Without any number that tells time the detector is skipped, not silent."""
    run = make_run({"lr": np.ones(10)})
    assert SPEED_OVER_TIME.missing(context(run))


def test_paces_are_made_once() -> None:
    """Every restart asks for them: a log of thousands of restarts must not take thousandfold."""
    given = context(make_run({"step_time_s": step_time(40, 1)}))
    assert paces(given) is paces(given)


@pytest.mark.parametrize("seed", range(20))
def test_records_near_a_step_equal_the_loop(seed: int) -> None:
    """A record counts whose step, or the interval before it, holds one of some steps; the same
    where a resume goes back."""
    draw = np.random.default_rng(seed)
    steps, interval = np.cumsum(draw.integers(0, 4, 200)), int(draw.integers(1, 6))
    at = np.unique(draw.integers(-5, 400, draw.integers(1, 20)))
    for told in (steps, np.concatenate((steps[100:], steps[50:150]))):
        near = [any(step - 2 * interval < one <= step for one in at) for step in told]
        assert _touched(told, interval, at).tolist() == near


@pytest.mark.parametrize("seed", range(10))
def test_windows_above_a_ratio_are_those_of_all_quantiles(seed: int) -> None:
    """Windows that are not looked at would not have been above it either."""
    draw = np.random.default_rng(seed)
    seconds = np.exp(draw.normal(0.0, draw.random(3000) * 0.3))
    starts, ratios = _window_ratios(seconds, 200, 1.5)
    slow = [np.quantile(seconds[at : at + 200], (0.5, 0.95)) for at in starts]
    told = np.array([high / low for low, high in slow])
    assert (ratios > 1.5).tolist() == (told > 1.5).tolist()
    assert ratios[ratios > 1.5] == pytest.approx(told[told > 1.5])
