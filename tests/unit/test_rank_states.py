"""The reduction over many ranks against the slow, obvious way, and what it finds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synth_system import FloatArray, context, make_run

from loganalyze.detectors.rank_missing import detect as detect_missing
from loganalyze.detectors.ranks import detect_stragglers
from loganalyze.leads import choose_leads, ended_early
from loganalyze.model import RunLog
from loganalyze.rank_states import (
    UNIT_LOG,
    leaning,
    merged,
    middles,
    sample,
    states_of,
)
from loganalyze.store_parts import write_part

NO_EVENTS = pl.DataFrame(schema={"kind": pl.String, "rank": pl.Int32})


def rows_of(values: FloatArray, metric: str = "step_time_s") -> pl.DataFrame:
    """Rows of a (steps, ranks) table, rank after rank, as rank files give them."""
    steps, ranks = values.shape
    count = steps * ranks
    return pl.DataFrame(
        {
            "segment": pl.Series(np.zeros(count), dtype=pl.Int32),
            "step": np.tile(np.arange(1, steps + 1), ranks),
            "rank": pl.Series(np.repeat(np.arange(ranks), steps), dtype=pl.Int32),
            "source": pl.Series(np.repeat(np.arange(ranks), steps), dtype=pl.Int32),
            "line": np.tile(np.arange(1, steps + 1), ranks),
            "offset": np.tile(np.arange(steps) * 100, ranks),
            "length": np.full(count, 99),
            metric: values.T.ravel(),
        }
    )


def times(steps: int, ranks: int, seed: int, jitter: float = 0.02) -> FloatArray:
    """Step times with jitter that is each rank's own, and slow steps that all ranks share."""
    rng = np.random.default_rng(seed)
    common = 1.0 + 5.0 * (rng.random((steps, 1)) < 0.02)
    return common * np.exp(jitter * rng.standard_normal((steps, ranks)))


def parts_of(rows: pl.DataFrame, folder: Path, size: int) -> list[Path]:
    """The rows in parts of so many, some of which cut a rank in two."""
    return [
        folder / write_part(rows.slice(first, size), first // size, folder)
        for first in range(0, len(rows), size)
    ]


def states(rows: pl.DataFrame, folder: Path, metric: str = "step_time_s") -> pl.DataFrame:
    """States of all rows by the product's own way, parts merged in random order."""
    parts = parts_of(rows, folder, len(rows) // 7 + 1)
    chosen = sample(rows["rank"].unique().to_list())
    middle = {metric: middles(parts, metric, chosen)}
    made = [states_of(part, middle) for part in parts]
    random.Random(5).shuffle(made)
    return merged(made)


def test_states_equal_the_loop_over_ranks(tmp_path: Path) -> None:
    """Counts, bounds and summed distances are those of a loop over ranks and steps."""
    values = times(60, 30, 3)
    values[40:, 4] = np.nan
    values[:, 9] *= 1.5
    found = states(rows_of(values), tmp_path).filter(pl.col("metric") == "step_time_s")
    for rank in (0, 4, 9, 29):
        (row,) = found.filter(pl.col("rank") == rank).iter_rows(named=True)
        told = [(step, v) for step, v in enumerate(values[:, rank], 1) if np.isfinite(v)]
        distances = []
        for step, value in told:
            others = np.log(values[step - 1][np.isfinite(values[step - 1])])
            middle = np.median(others)
            limit = max(6.0 * 1.4826 * np.median(np.abs(others - middle)), 0.05)
            distance = np.clip(np.log(value) - middle, -limit, limit)
            distances.append(round(float(distance) / UNIT_LOG))
        assert row["count"] == len(told)
        assert row["distance"] == pytest.approx(sum(distances), abs=len(told))
        assert row["last_step"] == told[-1][0]
        assert (row["low"], row["high"]) == (min(v for _, v in told), max(v for _, v in told))


def test_states_of_parts_are_the_states_of_the_whole(tmp_path: Path) -> None:
    """However the rows are cut and in whatever order they are merged: the same bytes."""
    rows = rows_of(times(50, 40, 8))
    (tmp_path / "one").mkdir()
    (whole,) = parts_of(rows, tmp_path / "one", len(rows))
    middle = {"step_time_s": middles([whole], "step_time_s", sample(range(40)))}
    assert states(rows, tmp_path).equals(merged([states_of(whole, middle)]))


def test_the_sample_is_not_of_one_place_in_the_node() -> None:
    """Of 10,000 ranks about as many are taken from each of eight places; always the same ones."""
    chosen = sample(range(10_000))
    assert chosen == sample(reversed(range(10_000)))
    counts = np.bincount(np.array(chosen) % 8, minlength=8)
    assert counts.min() > 90
    assert len(chosen) == 1024


def _lead_run(values: FloatArray, folder: Path) -> tuple[RunLog, pl.DataFrame]:
    """What the detectors see of a wide job: the leads' rows, and all ranks' states."""
    made = states(rows_of(values), folder)
    leads = choose_leads(made, NO_EVENTS, [], 0)
    rows = rows_of(values).filter(pl.col("rank").is_in(list(leads)))
    run = make_run(
        {"step_time_s": rows["step_time_s"].to_numpy()},
        steps=rows["step"].to_numpy(),
        rank=rows["rank"].to_numpy(),
    )
    return run, made


def test_one_per_cent_stands_out_of_two_per_cent_jitter(tmp_path: Path) -> None:
    """Of 300 ranks one is slower by 1 %: it alone is named, with its excess."""
    values = times(1000, 300, 1)
    values[:, 221] *= 1.01
    run, _ = _lead_run(values, tmp_path)
    (one,) = detect_stragglers(context(run))
    assert one.rank == 221
    assert one.statistics["excess_share"] == pytest.approx(0.01, abs=0.003)


def test_healthy_ranks_of_a_wide_job_are_silent(tmp_path: Path) -> None:
    """Jitter and slow steps that all share: nobody is named."""
    run, made = _lead_run(times(200, 300, 77), tmp_path)
    assert detect_stragglers(context(run)) == []
    assert not len(ended_early(made))


def test_late_half_is_seen_in_the_states(tmp_path: Path) -> None:
    """A rank that becomes slow late leans in the late half about as much as it is slow."""
    values = times(400, 300, 5)
    values[220:, 17] *= 1.04
    lean = leaning(states(rows_of(values), tmp_path), "step_time_s", late=True)
    worst = lean.sort("lean", descending=True).row(0, named=True)
    assert worst["rank"] == 17
    assert worst["lean"] == pytest.approx(np.log(1.04) * 180 / 200, rel=0.1)


def test_a_rank_that_falls_silent_is_named() -> None:
    """One rank of eight stops 30 steps before the others; one line of it is cited."""
    steps = [n for n in range(1, 101) for _ in range(8)]
    ranks = [r for _ in range(100) for r in range(8)]
    kept = [i for i, (n, r) in enumerate(zip(steps, ranks, strict=True)) if r != 5 or n <= 70]
    run = make_run({"step_time_s": np.ones(len(kept))}, steps=[steps[i] for i in kept],
                   rank=[ranks[i] for i in kept])  # fmt: skip
    (one,) = detect_missing(context(run))
    assert (one.rank, one.step_first, one.step_last) == (5, 70, 100)
    assert one.evidence[0].ref is not None


def test_ranks_that_print_only_at_the_start_are_not_missing() -> None:
    """Memory is printed once by every rank, the loss by the last: nobody fell silent."""
    steps, ranks = [2] * 7 + list(range(1, 101)), [*range(7), *([7] * 100)]
    run = make_run({"step_time_s": np.ones(len(steps))}, steps=steps, rank=ranks)
    assert detect_missing(context(run)) == []


def _gaps(rows: int, first: int, seed: int) -> pl.DataFrame:
    """A loss at steps and segments by chance, from `first` on; some rows twice."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame({
        "segment": pl.Series(rng.integers(0, 3, rows), dtype=pl.Int32),
        "step": first + rng.integers(0, 50, rows) * 7,
        "rank": pl.Series(rng.integers(0, 4, rows), dtype=pl.Int32),
        **{name: rng.integers(0, 1000, rows) for name in ("source", "line", "offset", "length")},
        "loss": rng.random(rows),
    })  # fmt: skip


@pytest.mark.parametrize("far", [0, 10**12])
def test_only_rows_whose_step_has_a_middle_count(tmp_path: Path, far: int) -> None:
    """Steps that the sample lacks, before, between and behind its own, are passed by; a step
    far away, for which no table of all steps can be made, changes nothing."""
    rows = _gaps(400, -20, 1)
    middle = (
        _gaps(60, 8, 2).group_by("segment", "step").agg(middle=pl.col("loss").median())
        .with_columns(spread=pl.lit(0.1), half=pl.lit(150.0)).sort("segment", "step")
    )  # fmt: skip
    if far:
        middle = pl.concat([middle, middle.tail(1).with_columns(step=pl.lit(far))])
    part = parts_of(rows, tmp_path, 1000)[0]
    found = states_of(part, {"loss": middle}).filter(pl.col("metric") == "loss")
    known = {(segment, step) for segment, step in middle.select("segment", "step").iter_rows()}
    expected: dict[tuple[int, int], list[float]] = {}
    for segment, step, rank, loss in rows.select("segment", "step", "rank", "loss").iter_rows():
        if (segment, step) in known:
            expected.setdefault((segment, rank), []).append(loss)
    counted = {
        (segment, rank): (count, low, high)
        for segment, rank, count, low, high in found.select(
            "segment", "rank", "count", "low", "high"
        ).iter_rows()
    }
    assert counted == {key: (len(v), min(v), max(v)) for key, v in expected.items()}
    assert len(counted) > 5
