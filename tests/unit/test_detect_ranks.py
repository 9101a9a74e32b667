"""Slow ranks and disagreeing ranks against grids whose culprit is known."""

from __future__ import annotations

import numpy as np
import pytest
from synth_system import FloatArray, context, make_run

from loganalyze.detectors.ranks import RANKS, detect_divergence, detect_stragglers, grids
from loganalyze.model import RunLog


def _grid_run(metric: str, values: FloatArray) -> RunLog:
    steps, ranks = values.shape
    return make_run(
        {metric: values.ravel()},
        steps=np.repeat(np.arange(1, steps + 1), ranks),
        rank=np.tile(np.arange(ranks), steps),
    )


def _times(steps: int, ranks: int, seed: int, spread: float = 0.02) -> FloatArray:
    rng = np.random.default_rng(seed)
    return np.exp(spread * rng.standard_normal((steps, ranks)))


@pytest.mark.parametrize("ranks", [4, 8, 64, 256])
def test_healthy_ranks_are_silent(ranks: int) -> None:
    """Independent jitter on every rank, five seeds: nobody is named."""
    for seed in range(5):
        run = _grid_run("forward_time_s", _times(100, ranks, seed))
        assert detect_stragglers(context(run)) == []


@pytest.mark.parametrize(
    ("share", "severity"), [(0.02, "info"), (0.05, "warning"), (0.2, "warning")]
)
@pytest.mark.parametrize("ranks", [8, 64])
def test_the_slow_rank_is_named(share: float, severity: str, ranks: int) -> None:
    """One rank is slower by 2 to 20 %: it is named, with its excess, and nobody else."""
    values = _times(300, ranks, 7)
    values[:, 3] *= 1.0 + share
    (one,) = detect_stragglers(context(_grid_run("forward_time_s", values)))
    assert (one.rank, one.severity) == (3, severity)
    assert one.statistics["excess_share"] == pytest.approx(share, abs=0.005)


def test_excess_equals_the_loop_over_steps_and_ranks() -> None:
    """The excess is the median over steps of the rank's time against the others' median."""
    values = _times(60, 8, 11)
    values[:, 6] *= 1.1
    (one,) = detect_stragglers(context(_grid_run("forward_time_s", values)))
    ratios = []
    for row in values:
        others = sorted(np.delete(row, 6))
        ratios.append(row[6] / others[3])
    assert one.statistics["excess_share"] == pytest.approx(np.median(ratios) - 1.0, abs=1e-3)


def test_a_rank_that_becomes_slow_has_an_onset() -> None:
    """Slow from step 201 of 300 on: found in the last half, onset within some steps."""
    values = _times(300, 16, 9)
    values[200:, 5] *= 1.1
    (one,) = detect_stragglers(context(_grid_run("forward_time_s", values)))
    assert one.rank == 5
    assert one.step_first == pytest.approx(201, abs=10)


def test_a_slow_half_of_the_ranks_is_no_straggler() -> None:
    """A stage of the pipeline that takes longer is a layout, not a slow rank."""
    values = _times(100, 8, 2)
    values[:, 4:] *= 1.3
    assert detect_stragglers(context(_grid_run("forward_time_s", values))) == []


def test_the_rank_that_waits_least_is_the_slow_one() -> None:
    """Only waiting is logged: the rank with a third of the others' waiting is named, as a note."""
    values = _times(100, 8, 4)
    values[:, 2] *= 0.3
    (one,) = detect_stragglers(context(_grid_run("comm_time_s", values)))
    assert (one.rank, one.severity, one.statistics["waits_least"]) == (2, "info", 1)


def test_incomplete_steps_are_left_out_of_the_grid() -> None:
    """Rank 3 misses a step: the grid holds only the steps of all."""
    run = _grid_run("loss", _times(40, 5, 0))
    cut = run.readings.filter(~((run.readings["step"] == 7) & (run.readings["rank"] == 3)))
    made = make_run(
        {"loss": cut["loss"].to_numpy()}, steps=cut["step"].to_numpy(), rank=cut["rank"].to_list()
    )
    (grid,) = grids(context(made), "loss")
    assert len(grid.steps) == 39
    assert 7 not in grid.steps


def test_reduced_values_that_part_are_a_divergence() -> None:
    """Equal on all ranks for 50 steps, then rank 1 goes its own way."""
    values = np.repeat(_times(100, 1, 5), 4, axis=1)
    values[50:, 1] *= 1.02
    (one,) = detect_divergence(context(_grid_run("grad_norm", values)))
    assert (one.rank, one.step_first, one.severity) == (1, 51, "warning")


def test_local_losses_differ_and_are_no_divergence() -> None:
    """Each rank has its own data: losses differ by nature."""
    values = 3.0 * _times(100, 8, 6, spread=0.05)
    assert detect_divergence(context(_grid_run("loss", values))) == []


def test_one_rank_far_off_is_a_divergence() -> None:
    """One rank's loss is half above the others at every step: other data, or a broken device."""
    values = 3.0 * _times(100, 8, 8, spread=0.02)
    values[:, 0] *= 1.5
    (one,) = detect_divergence(context(_grid_run("loss", values)))
    assert one.rank == 0


def test_rank_detectors_are_skipped_without_metrics() -> None:
    """A log with the learning rate only skips both."""
    assert all(d.missing(context(make_run({"lr": np.ones(5)}))) for d in RANKS)
