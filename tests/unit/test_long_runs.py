"""Very long runs: cut into stretches, thinned to an overview, and judged as if at once."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from synth import Planted, make_run, noise, plant, power_law

from loganalyze import long_runs
from loganalyze.config import load_thresholds
from loganalyze.detectors import detect, detect_and_show
from loganalyze.long_runs import cut, overview, part_of, place, rows_to_show, telling_rows
from loganalyze.model import Finding, RunLog
from loganalyze.report.counted import counted


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is long from 20,000 rows on."""
    for name, value in (
        ("LONGEST", 20_000), ("ROWS", 12_000), ("MARGIN", 6_000), ("OVERVIEW", 10_000),
        ("_PIECE", 1_024), ("_AMONG", 1_024), ("_BIN", 50),
        ("_ENDS", 20), ("_RARE", 100), ("_MOST_RARE", 1_000),
    ):  # fmt: skip
        monkeypatch.setattr(long_runs, name, value)


def several_attempts(seed: int) -> RunLog:
    """Three segments of two ranks, ranks one after the other, some rows without a step."""
    rng = np.random.default_rng(seed)
    steps, segments, ranks = [], [], []
    for rank in (0, 1):
        for segment, (first, last) in enumerate(((1, 9_000), (8_001, 16_000), (12_001, 25_000))):
            steps += range(first, last)
            segments += [segment] * (last - first)
            ranks += [rank] * (last - first)
    run = make_run(
        {"loss": rng.normal(2.0, 0.1, len(steps)), "val_loss": [None] * len(steps)},
        steps=steps, segments=segments, ranks=ranks, relations=("start", "resume", "resume"),
        events=[{"kind": "evaluation", "step": 5_003}, {"kind": "exit", "step": 15_005,
                                                        "segment": 2}],
    )  # fmt: skip
    step = np.where(rng.random(len(steps)) < 0.01, None, np.array(steps, dtype=object))
    val = pl.when(pl.col("step") % 1_000 == 7).then(3.0).alias("val_loss")
    readings = run.readings.with_columns(step=pl.Series(step.tolist(), dtype=pl.Int64))
    return replace(run, readings=readings.with_columns(val))


def slow_places(readings: pl.DataFrame) -> list[tuple[int, int]]:
    """Segment and step of each row, one after the other; without a step that of the row before."""
    held, found = 0, []
    for segment, step in readings.select("segment", "step").iter_rows():
        held = held if step is None else step
        found.append((segment, held))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_one_stretchs_own(short: None, seed: int) -> None:
    """Each row lies between the borders of exactly one stretch; all are of about one size."""
    run = several_attempts(seed)
    made = cut(run)
    places = np.array([int(place(*one)) for one in slow_places(run.readings)])
    owners = sum(((places >= s.own) & (places < s.own_end)).astype(int) for s in made.stretches)
    assert (np.asarray(owners) == 1).all()
    sizes = [((places >= s.own) & (places < s.own_end)).sum() for s in made.stretches]
    assert len(sizes) == -(-len(places) // 12_000)
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_holds_its_rows_and_those_around_it(short: None, seed: int) -> None:
    """part_of() gives the rows that a slow look at every row gives, in the order of the log."""
    run = several_attempts(seed)
    made = cut(run)
    held = slow_places(run.readings)
    places = [int(place(*one)) for one in held]
    for one in made.stretches:
        own = [line for line, at in enumerate(places, 1) if one.first <= at < one.end]
        part = part_of(run, made, one)
        assert part.readings["line"].to_list() == own
        segments = {segment: 0 for segment, _ in (held[line - 1] for line in own)}
        assert [s.index for s in part.meta.segments] == sorted(segments)


def test_events_lie_in_the_stretch_of_their_step(short: None) -> None:
    """Of the events each stretch has those between its borders, and none is in no stretch."""
    run = several_attempts(0)
    made = cut(run)
    seen = [part_of(run, made, one).events["step"].to_list() for one in made.stretches]
    assert {step for steps in seen for step in steps} == {5_003, 15_005}
    for one, steps in zip(made.stretches, seen, strict=True):
        inside = [s for g, s in ((0, 5_003), (2, 15_005)) if one.first <= place(g, s) < one.end]
        assert steps == inside


def test_the_overview_has_what_tells_most(short: None) -> None:
    """Every k-th step of all ranks, both ends, every evaluation, rows beside events, spans."""
    run = several_attempts(1)
    made, rows = cut(run), telling_rows(run)
    seen = overview(run, rows_to_show(rows, run, made, [(1, 9_000, 9_100)]))
    lines = set(seen.readings["line"])
    told = run.readings.with_row_index("at")
    every = -(-len(told) // 10_000)
    step, segment = pl.col("step"), pl.col("segment")
    wanted = told.filter(
        (step % every == 0)
        | pl.col("val_loss").is_not_null()
        | (pl.col("at") < 20) | (pl.col("at") >= len(told) - 20)
        | ((segment == 0) & step.is_between(5_001, 5_005))
        | ((segment == 1) & step.is_between(9_000, 9_100))
    )  # fmt: skip
    assert set(wanted["line"]) <= lines
    assert len(lines) < len(wanted) + 0.03 * len(told)
    assert seen.whole is run.readings
    assert seen.readings["line"].is_sorted()


def test_the_overview_has_the_extremes_of_every_metric(short: None) -> None:
    """The lowest and the highest loss of every few rows are among those that are shown."""
    run = several_attempts(3)
    seen = overview(run, rows_to_show(telling_rows(run), run, cut(run), []))
    lines = set(seen.readings["line"])
    for piece in run.readings.iter_slices(1_024):
        for best in (piece["loss"].arg_min(), piece["loss"].arg_max()):
            assert best is not None
            assert piece["line"][best] in lines


def test_counts_are_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows counted piece by piece are those counted at once."""
    run = several_attempts(2)
    at_once = counted(run.readings)
    monkeypatch.setattr("loganalyze.report.counted.LONGEST", 1_000)
    assert counted(run.readings) == at_once


def told(found: tuple[Finding, ...]) -> set[tuple[object, ...]]:
    """Kind, severity, steps, and the line of the first evidence."""
    return {
        (f.kind, f.severity, f.step_first, f.step_last, f.step_peak,
         *(e.ref.line for e in f.evidence[:1] if e.ref))
        for f in found
    }  # fmt: skip


def long_curves(seed: int) -> dict[str, np.ndarray]:
    """A healthy run of 40,000 steps."""
    rng = np.random.default_rng(seed)
    n = 40_000
    return {
        "loss": power_law(n) * (1 + noise(rng, n, 0.01)),
        "grad_norm": 0.5 * np.exp(noise(rng, n, 0.1)),
        "step_time_s": 2.0 * (1 + noise(rng, n, 0.02)),
        "lr": np.full(n, 3e-4),
    }


def judged_both(metrics: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
                ) -> tuple[set[tuple[object, ...]], set[tuple[object, ...]]]:  # fmt: skip
    """What is told of a run at once, and in stretches."""
    run, thresholds = make_run(metrics), load_thresholds("pretrain")
    near = told(detect(run, thresholds)[0])
    monkeypatch.setattr(long_runs, "LONGEST", 10**9)
    return told(detect(run, thresholds)[0]), near


def test_a_healthy_run_is_clean_in_stretches(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told of it that would not be told at once."""
    at_once, near = judged_both(long_curves(1), monkeypatch)
    assert near == at_once


def test_spikes_are_found_at_the_borders_too(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spikes in the middle, at borders of stretches and near the end: the same steps and lines."""
    metrics = long_curves(2)
    spikes = [Planted(first=at, last=at + 4, height=0.6) for at in
              (3_000, 9_998, 10_400, 19_996, 24_000, 29_995, 39_000)]  # fmt: skip
    metrics["loss"] = plant(metrics["loss"], spikes)
    at_once, near = judged_both(metrics, monkeypatch)
    assert {one[2] for one in near if one[0] == "loss_spike"} >= {s.first + 1 for s in spikes}
    assert near == at_once


def test_a_stretch_of_nan_over_borders_is_one_finding(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN from one stretch through the next into a third: told once, with all its steps."""
    metrics = long_curves(3)
    metrics["loss"][8_000:25_000] = np.nan
    run, thresholds = make_run(metrics), load_thresholds("pretrain")
    (near,) = [f for f in detect(run, thresholds)[0] if f.kind == "loss_nonfinite"]
    monkeypatch.setattr(long_runs, "LONGEST", 10**9)
    (at_once,) = [f for f in detect(run, thresholds)[0] if f.kind == "loss_nonfinite"]
    assert told((near,)) == told((at_once,))
    assert near.statistics == at_once.statistics


def test_what_lasts_is_told_by_the_overview(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow-down that lasts for two stretches ends where it ends, not at a stretch's border."""
    metrics = long_curves(4)
    metrics["step_time_s"][9_000:33_000] *= 1.5
    run, thresholds = make_run(metrics), load_thresholds("pretrain")
    (drop,) = [f for f in detect(run, thresholds)[0] if f.kind == "throughput_drop"]
    assert drop.step_first is not None
    assert abs(drop.step_first - 9_001) <= 5
    assert drop.step_last is not None
    assert abs(drop.step_last - 33_000) <= 20
    assert drop.severity == "warning"  # it came back
    records, lost = drop.statistics["records"], drop.statistics["lost_time"]
    assert isinstance(records, int)
    assert isinstance(lost, float)
    assert abs(records - 24_000) < 1_200  # the overview counts one of four
    assert abs(lost - 24_000) < 1_500


def test_a_slow_drift_needs_the_overview(short: None) -> None:
    """Steps that take a fifth longer at the end than at the beginning, a little each."""
    metrics = long_curves(5)
    metrics["step_time_s"] *= np.linspace(1.0, 1.25, len(metrics["step_time_s"]))
    found, _ = detect(make_run(metrics), load_thresholds("pretrain"))
    (drift,) = [f for f in found if f.kind == "throughput_degradation"]
    assert drift.step_first is not None
    assert drift.step_first < 500
    assert drift.step_last is not None
    assert drift.step_last > 39_500


def test_the_run_to_show_has_all_rows_around_a_finding(short: None) -> None:
    """Hundreds of rows on both sides of a spike, and every k-th elsewhere."""
    metrics = long_curves(6)
    metrics["loss"] = plant(metrics["loss"], [Planted(first=22_222, last=22_226, height=0.8)])
    run = make_run(metrics)
    shown, _, _ = detect_and_show(run, load_thresholds("pretrain"))
    steps = set(shown.readings["step"])
    assert set(range(22_000, 22_450)) <= steps
    assert len(steps) < 0.4 * len(run.readings)
    assert shown.whole is not None
    assert len(shown.whole) == 40_000
    assert "40,000 rows" in shown.problems[-1].message
