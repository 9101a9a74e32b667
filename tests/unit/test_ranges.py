"""One log in ranges of bytes: the run of reading it whole, and the ranges really are read apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from textlogs import megatron_line

from loganalyze import ranges
from loganalyze.engine import serial
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.shards import Workers
from loganalyze.store import write_run


def both(path: Path) -> tuple[RunLog, RunLog, list[int]]:
    """The log read whole and in ranges, and how many ranges each call of the engine read."""
    calls: list[int] = []

    def engine(work: Callable[[Any], Any], todo: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        if work is ranges.read_range:
            calls.append(len(todo))
        yield from reversed(list(serial(work, todo)))

    (whole,) = ingest([str(path)]).runs
    (apart,) = ingest([str(path)], workers=Workers(engine=engine)).runs
    return whole, apart, calls


def same(one: RunLog, other: RunLog, folder: Path) -> bool:
    """Whether two runs are the same on disk."""
    stored = []
    for name, run in (("one", one), ("other", other)):
        place = write_run(run, folder / name)
        files = sorted(path for path in place.rglob("*") if path.is_file())
        stored.append([(p.relative_to(place), p.read_bytes()) for p in files])
    return stored[0] == stored[1]


def test_ranges_of_a_training_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranges with checkpoints and validation between: the same store, none read twice."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 20_000)
    monkeypatch.setattr(ranges, "RUN_UP_BYTES", 3_000)
    lines = []
    for n in range(1, 1500):
        lines.append(megatron_line(n, lm_loss=f"{9 / n:.6E}", grad_norm="0.5", pad="1" * (n % 7)))
        if n % 20 == 0:
            lines.append(f" validation loss at iteration {n} | lm loss value: 2.0 |")
            lines.append(f"saving checkpoint at iteration {n} to /c in torch format")
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    whole, apart, calls = both(path)
    assert calls[0] >= 5
    assert sum(calls) == calls[0]
    assert same(whole, apart, tmp_path)


def test_a_message_across_a_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of arguments longer than the run-up goes over borders: those are read once more."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 3_000)
    monkeypatch.setattr(ranges, "RUN_UP_BYTES", 200)
    lines = [megatron_line(n, lm_loss="2.0") for n in range(1, 60)]
    lines.append("------------------------ arguments ------------------------")
    lines += [f"  option_{n} {'.' * 30} {n}" for n in range(200)]
    lines.append("-------------------- end of arguments ---------------------")
    lines += [megatron_line(n, lm_loss="2.0") for n in range(60, 200)]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    whole, apart, calls = both(path)
    assert len(calls) > 1
    assert len(apart.meta.config) == 200
    assert same(whole, apart, tmp_path)


def test_a_line_that_is_redrawn_over_borders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar on one line of several ranges and blocks: no range begins inside it, and each redraw
    is read once."""
    monkeypatch.setattr(ranges, "RANGE_BYTES", 10_000)
    monkeypatch.setattr(ranges, "RUN_UP_BYTES", 1_000)
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 34_000)
    bar = "{0:3d}%|# | {0}/9000 [00:00<?, 1.0s/it, loss={1:.4f}]"
    drawn = "\r".join(bar.format(n, 2 + 1 / n) for n in range(1, 1500))
    lines = [megatron_line(n, lm_loss="2.0") for n in range(1, 400)]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*lines, drawn, *lines, drawn]))
    whole, apart, calls = both(path)
    assert calls[0] > 3
    assert len(whole.readings) == 2 * 399 + 2 * 1499
    assert same(whole, apart, tmp_path)


@pytest.mark.parametrize("name", sorted(p.parent.name for p in ROOT.glob("sample_logs/*/*.log")))
def test_samples_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every sample log cut into some ranges is the run of the whole."""
    (log,) = (ROOT / "sample_logs" / name).glob("*.log")
    data = log.read_bytes()[:60_000]
    path = tmp_path / log.name
    path.write_bytes(data)
    monkeypatch.setattr(ranges, "RANGE_BYTES", len(data) // 3)
    monkeypatch.setattr(ranges, "RUN_UP_BYTES", len(data) // 10)
    whole, apart, calls = both(path)
    assert calls
    assert same(whole, apart, tmp_path)
