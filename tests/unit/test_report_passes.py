"""Passes over long columns for the reports, each against the slow and obvious way."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import report_fixture as fixture
from msgspec.structs import replace
from plotly.offline import get_plotlyjs

from loganalyze.report import buckets
from loganalyze.report.charts import _lowest, plotly_bundle, plotly_hash, script_hash, trimmed
from loganalyze.report.counted import counted
from loganalyze.report.curves import _Drawing
from loganalyze.report.model import view
from loganalyze.report.text import baseline_words
from loganalyze.tracks import tracks


@pytest.mark.parametrize("seed", range(30))
def test_means_to_the_last_digit(seed: int) -> None:
    """Each mean is np.add.reduce() of its finite values by their number, bit for bit."""
    draw = np.random.default_rng(seed)
    steps = np.cumsum(draw.integers(0, 4, 2500))
    values = draw.normal(0, 10.0 ** draw.integers(-3, 6), 2500)
    values[draw.random(2500) < draw.choice([0, 0.01, 0.9])] = draw.choice([np.nan, -np.inf])
    at = np.unique(steps[draw.integers(0, 2500, 60)])
    for window in (1, 100, 500):
        made = buckets.smooth(steps, values, window, at)
        for step, mean in zip(at.tolist(), made.tolist(), strict=True):
            near = values[(steps >= step - window // 2) & (steps <= step + window // 2)]
            near = near[np.isfinite(near)]
            expected = float(np.add.reduce(near) / len(near)) if len(near) else math.nan
            assert mean == expected or (math.isnan(mean) and math.isnan(expected))


@pytest.mark.parametrize("seed", range(30))
def test_gaps_and_raw_ranges_by_a_walk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Piece by piece as step by step: where steps jump, and which stretches are whole."""
    monkeypatch.setattr(buckets, "_PIECE", 7)
    draw = np.random.default_rng(seed)
    steps = np.cumsum(draw.choice([0, 1, 2, 40], 60, p=[0.1, 0.6, 0.2, 0.1]))
    jumps = np.diff(steps).tolist()
    assert buckets.gaps(steps, 1).tolist() == [i for i, jump in enumerate(jumps) if jump > 5]
    largest = sorted(range(len(jumps)), key=lambda i: jumps[i])[-1]
    assert len(buckets.gaps(steps, 1, most=1)) == int(jumps[largest] > 5)
    kept = draw.random(60) < 0.8
    expected, run = [], []
    for step, held in zip([*steps.tolist(), 0], [*kept.tolist(), False], strict=True):
        if held:
            run.append(step)
            continue
        expected += [(run[0], run[-1])] if len(run) >= 3 else []
        run = []
    assert buckets.raw_ranges(steps, kept, least=3) == expected


def test_gaps_are_found_once_for_metrics_of_one_line() -> None:
    """Two tracks that share their steps share what is found of them; other steps do not."""
    run = fixture.sick_run().run
    drawing = _Drawing(window=10, again={})
    names = [name for name in run.readings.columns if name in ("loss", "grad_norm")]
    made = [track for name in names for track in tracks(run, name)]
    for track in made:
        assert drawing.gaps(track).tolist() == buckets.gaps(track.steps, track.interval).tolist()
        assert drawing.gaps(track) is drawing.gaps(track)
        alone = replace(track, steps=track.steps[::2] * 100)
        assert drawing.gaps(alone) is not drawing.gaps(track)


@pytest.mark.parametrize("seed", range(30))
def test_metrics_are_counted_as_row_by_row(seed: int) -> None:
    """How many numbers, how many of them NaN or Inf, and at which steps the first and the last."""
    draw = np.random.default_rng(seed)
    size = int(draw.integers(1, 40))
    steps = [None if draw.random() < 0.2 else int(n) for n in draw.integers(0, 90, size)]
    choice = [None, 1.5, -1e308, math.nan, math.inf] if seed % 2 else [None, 1e308, 2.0]
    values = [choice[n] for n in draw.integers(0, len(choice), size)]
    frame = fixture.sick_run().run.readings.clear().select("segment", "rank")
    frame = pl.DataFrame(
        {"step": steps, "segment": [0] * size, "rank": [None] * size, "loss": values},
        schema={"step": pl.Int64, **frame.schema, "loss": pl.Float64},
    )
    told = [(s, v) for s, v in zip(steps, values, strict=True) if v is not None]
    at = [step for step, _ in told if step is not None]
    made = {metric.name: metric for metric in counted(frame).metrics}
    if not told:
        assert not made
        return
    loss = made["loss"]
    assert loss.count == len(told)
    assert loss.nonfinite == sum(1 for _, value in told if not math.isfinite(value))
    assert (loss.first_step, loss.last_step) == (min(at, default=None), max(at, default=None))


@pytest.mark.parametrize("seed", range(30))
def test_lowest_value_at_each_step(seed: int) -> None:
    """Of each segment the steps, growing, and the lowest finite value that any row says there."""
    draw = np.random.default_rng(seed)
    rows = [
        (int(draw.integers(0, 3)), None if draw.random() < 0.1 else int(draw.integers(0, 30)),
         [None, math.nan, float(draw.normal())][min(2, int(draw.integers(0, 9)))])
        for _ in range(int(draw.integers(0, 80)))
    ]  # fmt: skip
    if seed % 3 == 0:
        rows.sort(key=lambda row: (row[0], -1 if row[1] is None else row[1]))
    schema = {"segment": pl.Int32, "step": pl.Int64, "value": pl.Float64}
    expected: dict[int, dict[int, float]] = {}
    for segment, step, value in rows:
        if step is not None and value is not None and math.isfinite(value):
            own = expected.setdefault(segment, {})
            own[step] = min(value, own.get(step, math.inf))
    made = _lowest(pl.DataFrame(rows, schema=schema, orient="row"))
    told = {segment: dict(zip(at.tolist(), low.tolist(), strict=True)) for segment, at, low in made}
    assert told == expected
    assert all(list(own) == sorted(own) for own in told.values())


def test_plotly_is_read_as_plotly_gives_it() -> None:
    """The file of the wheel is what plotly itself hands out; the page's hash is of its rest."""
    assert plotly_bundle().decode("utf-8") == get_plotlyjs()
    assert plotly_hash() == script_hash(trimmed(get_plotlyjs()))


def test_nothing_is_said_of_no_baseline() -> None:
    """Without a baseline there are no words about one; with one, its verdict comes first."""
    diagnosis = fixture.sick_run()
    assert baseline_words(view(diagnosis), None) == ()
    assert "baseline" in baseline_words(view(diagnosis), diagnosis.run)[0].en
