"""Tracks are cut as the slow, obvious way cuts them."""

from __future__ import annotations

import gc
import random

import numpy as np
import polars as pl
import pytest
from msgspec.structs import force_setattr
from synth_system import make_run

from loganalyze import tracks as module
from loganalyze.tracks import first_value, outlines, tracks

Row = tuple[int | None, int, int | None, float | None, float | None]


def rows_of(seed: int) -> list[Row]:
    """Step, segment, rank and two metrics; any of them may be missing, steps may go back."""
    made = random.Random(seed)
    ranks = made.choice([[None], [None, 7], [-3, None, 0, 2], [5]])
    return [
        (
            made.choice([None, *range(-3, 40)]),
            made.randrange(made.choice([1, 3])),
            made.choice(ranks),
            made.choice([None, 1.5, float("nan"), made.random()]),
            made.random(),
        )
        for _ in range(made.randint(0, 60))
    ]


def obvious(rows: list[Row], at: int) -> list[tuple[int, int | None, list[int], list[int]]]:
    """Segment, rank, steps and rows of each track of a metric, copies left in."""
    found: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
    for row, told in enumerate(rows):
        step, segment, rank = told[:3]
        if step is not None and told[at] is not None:
            found.setdefault((segment, rank), []).append((step, row))
    ordered = sorted(found, key=lambda key: (key[0], -(10**9) if key[1] is None else key[1]))
    made = [(key, sorted(found[key], key=lambda pair: pair[0])) for key in ordered]
    return [(*key, [step for step, _ in own], [row for _, row in own]) for key, own in made]


@pytest.mark.parametrize("seed", range(80))
def test_as_the_obvious_way(seed: int) -> None:
    """By segment, then rank; steps never decrease, and equal ones stay as they were logged."""
    rows = rows_of(seed)
    run = make_run({"loss": np.zeros(len(rows)), "lr": np.zeros(len(rows))})
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    frame = run.readings.with_columns(
        step=pl.Series(columns[0], dtype=pl.Int64), segment=pl.Series(columns[1], dtype=pl.Int32),
        rank=pl.Series(columns[2], dtype=pl.Int32), loss=pl.Series(columns[3], dtype=pl.Float64),
        lr=pl.Series(columns[4], dtype=pl.Float64),
    )  # fmt: skip
    frame = pl.concat([frame[: len(rows) // 3], frame[len(rows) // 3 :]], rechunk=False)
    force_setattr(run, "readings", frame)
    for at, metric in ((3, "loss"), (4, "lr"), (3, "loss")):
        made = tracks(run, metric)
        expected = obvious(rows, at)
        told = [(t.segment, t.rank, t.steps.tolist(), t.rows.tolist()) for t in made]
        kept = [one for one in expected if one in told]
        assert told == kept
        assert len(kept) == len(expected) or at == 3  # numbers by chance are no copies
        values = [rows[row][at] for t in made for row in t.rows.tolist()]
        assert np.array_equal(np.concatenate([[], *(t.values for t in made)]),
                              np.array(values, dtype=float), equal_nan=True)  # fmt: skip


def test_metrics_of_one_line_share_their_steps() -> None:
    """Memory does not grow by steps and rows for each metric, and goes with the run."""
    run = make_run({"loss": np.arange(50.0), "lr": np.arange(50.0) + 1})
    (one,), (other,) = tracks(run, "loss"), tracks(run, "lr")
    assert one.steps is other.steps
    assert one.rows is other.rows
    del run
    gc.collect()
    assert not module._HELD


@pytest.mark.parametrize("seed", range(60))
def test_outlines_are_those_of_the_tracks(seed: int) -> None:
    """Segment, rank, number of points, first and last step of each track; and the first value."""
    run, rows = make_run({"loss": np.zeros(1)}), rows_of(seed)
    frame = pl.DataFrame(
        [told[:4] for told in rows], orient="row",
        schema={"step": pl.Int64, "segment": pl.Int32, "rank": pl.Int32, "loss": pl.Float64},
    )  # fmt: skip
    force_setattr(run, "readings", frame)
    made = tracks(run, "loss")
    expected = [(t.segment, t.rank, len(t), int(t.steps[0]), int(t.steps[-1])) for t in made]
    told = [(o.segment, o.rank, o.points, o.first, o.last) for o in outlines(run, "loss")]
    assert told == expected
    first = first_value(run, "loss")
    assert first is None if not made else np.array_equal(first, made[0].values[0], equal_nan=True)


@pytest.mark.parametrize("copied", [True, False])
def test_copies_have_no_outline(copied: bool) -> None:
    """Of ranks that print the same numbers only the lowest has one; of others each has its own."""
    values = np.repeat(np.arange(20.0), 2)
    run = make_run({"loss": values if copied else np.arange(40.0)})
    frame = run.readings.with_columns(
        step=pl.Series(np.repeat(np.arange(20), 2)),
        rank=pl.Series(np.tile([4, 5], 20), dtype=pl.Int32),
    )
    force_setattr(run, "readings", frame)
    assert [line.rank for line in outlines(run, "loss")] == ([4] if copied else [4, 5])


def test_few_numbers_of_many_rows() -> None:
    """A metric on every hundredth row is cut as one on each: steps and rows are its own."""
    rows = np.arange(1000)
    values = np.where(rows % 100 == 7, rows / 8, np.nan)
    run = make_run({"loss": values, "lr": np.ones(1000)})
    sparse = run.readings.with_columns(pl.col("loss").fill_nan(None), rank=pl.lit(3, pl.Int32))
    force_setattr(run, "readings", sparse)
    (track,) = tracks(run, "loss")
    assert track.rank == 3
    assert track.rows.tolist() == list(range(7, 1000, 100))
    assert track.steps.tolist() == sparse["step"].gather(track.rows).to_list()
    assert track.values.tolist() == [row / 8 for row in track.rows.tolist()]


def test_values_may_be_written_to() -> None:
    """A track's values are its own: a change reaches neither the run nor another track."""
    run = make_run({"loss": np.arange(50.0)})
    (track,) = tracks(run, "loss")
    track.values[:] = -1.0
    assert tracks(run, "loss")[0].values.tolist() == list(range(50))
