"""Where the step goes back: resume, another run in the file, or interleaved streams."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from textlogs import megatron_line, run_of

from loganalyze import segments
from loganalyze.model import RunLog


def log_of(*parts: str | range) -> str:
    """Lines of steps (ranges) and other lines (strings), in order."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        else:
            lines.extend(megatron_line(n, lm_loss=f"{9 - n / 100:.4f}") for n in part)
    return "\n".join(lines) + "\n"


def told(run: RunLog) -> list[tuple[str, int, int, int]]:
    """Relation, first, last and superseded steps of each segment."""
    return [(s.relation, s.first, s.last, s.superseded_steps) for s in run.meta.segments]


def test_one_run_is_one_segment(tmp_path: Path) -> None:
    """A run without a step back has one segment that starts it."""
    assert told(run_of(log_of(range(1, 50)), tmp_path)) == [("start", 1, 49, 0)]


def test_resume_counts_the_work_done_twice(tmp_path: Path) -> None:
    """After a checkpoint load the steps that are run again are counted to the step."""
    load = "loading checkpoint from /ckpt at iteration 30"
    run = run_of(log_of(range(1, 51), load, range(31, 71)), tmp_path)
    assert told(run) == [("start", 1, 50, 0), ("resume", 31, 70, 20)]


def test_resume_without_a_step_back(tmp_path: Path) -> None:
    """A load that goes on exactly where the run stopped still begins a segment."""
    load = "loading checkpoint from /ckpt at iteration 50"
    run = run_of(log_of(range(1, 51), load, range(51, 61)), tmp_path)
    assert told(run) == [("start", 1, 50, 0), ("resume", 51, 60, 0)]


def test_another_run_in_the_same_file(tmp_path: Path) -> None:
    """Steps that begin again at 1 without a checkpoint are another run, no lost work."""
    run = run_of(log_of(range(1, 21), range(1, 31)), tmp_path)
    assert told(run) == [("start", 1, 20, 0), ("fresh", 1, 30, 0)]


def test_interleaved_streams(tmp_path: Path) -> None:
    """Two counters that alternate in one file are two parallel segments, each complete."""
    parts: list[range] = []
    for n in range(1, 40):
        parts += [range(n, n + 1), range(500 + n, 501 + n)]
    run = run_of(log_of(*parts), tmp_path)
    assert told(run) == [("start", 1, 39, 0), ("parallel", 501, 539, 0)]


def test_events_take_the_step_before_them(tmp_path: Path) -> None:
    """An event without a step gets the step and segment of the last row before it."""
    text = log_of(range(1, 6), "loading checkpoint from /ckpt", range(3, 6))
    run = run_of(text, tmp_path)
    assert run.events.select("kind", "step", "segment").row(0) == ("checkpoint_load", 5, 0)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_line_endings_do_not_matter(ending: str, tmp_path: Path) -> None:
    """Windows line endings give the same rows."""
    text = log_of(range(1, 30)).replace("\n", ending)
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == list(range(1, 30))


def _followed_row_by_row(labels: list[int], sources: list[int]) -> list[int]:
    filled = list(labels)
    for source in set(sources):
        rows = [row for row, its in enumerate(sources) if its == source]
        held = next((labels[row] for row in rows if labels[row] >= 0), 0)
        for row in rows:
            held = labels[row] if labels[row] >= 0 else held
            filled[row] = held
    return filled


@pytest.mark.parametrize("seed", range(20))
def test_rows_without_a_label_follow_the_one_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holes are filled piece by piece as a walk over all rows fills them."""
    monkeypatch.setattr(segments, "_PIECE", 7)
    draw = np.random.default_rng(seed)
    labels = draw.integers(-1, 3, 60, dtype=np.int32)
    labels[draw.random(60) < draw.random()] = -1
    sources = draw.integers(0, 3, 60, dtype=np.int32)
    made = segments.followed(labels, sources)
    assert made.tolist() == _followed_row_by_row(labels.tolist(), sources.tolist())


@pytest.mark.parametrize("seed", range(40))
def test_different_values_as_a_set_has_them(seed: int) -> None:
    """The different values, growing and of the same kind, wherever they lie and however far."""
    draw = np.random.default_rng(seed)
    span = int(draw.choice([3, 200, 30_000]))
    values = draw.integers(-span, span, 300).astype(draw.choice([np.int16, np.int32, np.int64]))
    values[: seed % 3] *= 1 if values.dtype == np.int16 else 1000
    made = segments.distinct(values)
    assert made.tolist() == sorted(set(values.tolist()))
    assert made.dtype == values.dtype


@pytest.mark.parametrize("seed", range(40))
def test_middle_of_gaps_is_their_median(seed: int) -> None:
    """The whole part of the median, where most gaps are alike and where they are not."""
    draw = np.random.default_rng(seed)
    gaps = draw.choice([1, 1, 1, 2, 50], int(draw.integers(1, 12)))
    assert segments.middle(gaps) == int(np.median(gaps))


def test_places_pick_what_the_mask_picks() -> None:
    """The numbers of the true ones; a slice stays."""
    assert segments.places(np.array([True, False, True])).tolist() == [0, 2]
    assert segments.places(slice(None)) == slice(None)


@pytest.mark.parametrize("ranks", [3, 40])
def test_leader_is_the_rank_with_the_most_records(ranks: int) -> None:
    """Of few ranks and of many; the lowest of equals; other rows do not count."""
    named = np.repeat(np.arange(ranks), 5)
    main = np.ones(len(named), dtype=bool)
    assert np.flatnonzero(segments.leader_of(named, main)).tolist() == [0, 1, 2, 3, 4]
    main[named == 0] = np.array([True, True, True, True, False])
    assert np.flatnonzero(segments.leader_of(named, main)).tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_only_go_forward_are_one_segment(seed: int) -> None:
    """Of several ranks, too: as if the rows of each were looked at apart; with a load between
    them, or a step back, there are two."""
    draw = np.random.default_rng(seed)
    steps, ranks = np.sort(draw.integers(0, 30, 40)), draw.integers(-1, 3, 40)
    main = draw.random(40) < 0.8
    none = np.zeros(40, dtype=np.int16)
    labels, parallel = segments.stream_labels(steps, ranks, none, main)
    assert not parallel
    assert labels.tolist() == np.where(main, 0, -1).tolist()
    loads = np.where(np.arange(40) < 20, 0, 1).astype(np.int16)
    for told, before in ((steps, loads), (np.concatenate((steps[20:], steps[:20])), none)):
        labels, _ = segments.stream_labels(told, ranks, before, main)
        for rank in np.unique(ranks[main]):
            own = np.flatnonzero(main & (ranks == rank))
            begins = (np.diff(told[own]) < 0) | (np.diff(before[own]) > 0)
            assert labels[own].tolist() == np.cumsum(np.concatenate(([0], begins))).tolist()
