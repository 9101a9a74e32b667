"""Inputs read by workers: the same bytes whatever the engine, the order and the accidents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from textlogs import megatron_line

from loganalyze import shards, wide
from loganalyze.engine import Engine, ShardFailed, on_executor
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import render
from loganalyze.shards import Workers
from loganalyze.store import read_run, write_run


def files_below(place: Path) -> dict[str, bytes]:
    """Bytes of every file below a folder, by its path there."""
    return {
        p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()
    }


def rank_files(folder: Path, ranks: int, *, steps: int = 40) -> list[str]:
    """A file a rank; rank 3 is slow, rank 5 ends early, rank 7 fails."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    for rank in range(ranks):
        times = 1000 * np.exp(0.01 * rng.standard_normal(steps)) * (1.3 if rank == 3 else 1.0)
        count = 25 if rank == 5 else steps
        lines = [
            megatron_line(
                n + 1, **{"elapsed time per iteration (ms)": f"{times[n]:.2f}", "lm loss": "2.0"}
            )
            for n in range(count)
        ]
        lines.append("saving checkpoint at iteration 40 to /c in torch format")
        if rank == 7:
            lines.append("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
        (folder / f"train_rank_{rank}.log").write_text("\n".join(lines) + "\n")
    return [str(folder)]


def shuffled(work: Callable[[Any], Any], todo: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """An engine whose shards finish in a random order, one after its second try."""
    order = list(range(len(todo)))
    random.Random(4).shuffle(order)
    for number, index in enumerate(order):
        if not number:
            work(todo[index])  # a worker that died after it had written
        yield index, work(todo[index])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files make a shard, and more than sixteen ranks a wide job."""
    monkeypatch.setattr(shards, "SHARD_FILES", 3)
    monkeypatch.setattr(wide, "MANY_RANKS", 16)


@pytest.mark.parametrize("ranks", [8, 20])
def test_the_same_bytes_with_any_engine(tmp_path: Path, ranks: int) -> None:
    """One process, threads of an executor, random order with a shard done twice: one store."""
    paths = rank_files(tmp_path / "logs", ranks)
    (plain,) = ingest(paths).runs
    want = files_below(write_run(plain, tmp_path / "plain"))
    with ThreadPoolExecutor(3) as threads:
        engines: list[Engine[Any, Any]] = [on_executor(threads), shuffled]
        for number, engine in enumerate(engines):
            (run,) = ingest(paths, workers=Workers(engine=engine, folder=tmp_path)).runs
            assert files_below(write_run(run, tmp_path / f"s{number}")) == want
    left = _left(tmp_path)
    assert (ranks == 20) == bool(left), left  # a wide run's parts live as long as the run


def _left(folder: Path) -> list[Path]:
    """Folders of rows on their way, and what lies in them."""
    return [p for place in folder.glob(".loganalyze*") for p in (place, *place.rglob("*"))]


def test_trackers_and_rotated_logs_too(tmp_path: Path) -> None:
    """Parts of a rotated log stay one reader's; files nobody can read are told as ever."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, first in (("a.log.1", 1), ("a.log", 21), ("b.log", 1), ("c.log", 5), ("d.log", 9)):
        lines = [megatron_line(n, lm_loss="2.5") for n in range(first, first + 20)]
        (logs / name).write_text("\n".join(lines) + "\n")
    (logs / "e.log").write_bytes(b"\x00\x01\x02" * 500)
    plain = ingest([str(logs)])
    made = ingest([str(logs)], workers=Workers(engine=shuffled))
    assert [run.meta for run in made.runs] == [run.meta for run in plain.runs]
    assert [run.sources for run in made.runs] == [run.sources for run in plain.runs]
    assert made.unread == plain.unread
    for one, other in zip(made.runs, plain.runs, strict=True):
        assert one.readings.equals(other.readings)


def test_small_inputs_start_no_worker(tmp_path: Path) -> None:
    """One shard's work is done here, whatever the engine."""

    def never(work: Callable[[Any], Any], todo: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        raise AssertionError("a worker was asked")
        yield

    log = tmp_path / "a.log"
    log.write_text(megatron_line(1, lm_loss="2.5") + "\n")
    assert len(ingest([str(log)], workers=Workers(engine=never)).runs) == 1
    paths = rank_files(tmp_path / "logs", 8)
    assert ingest(paths, workers=Workers(engine=never, least_bytes=1 << 30)).runs


def test_a_worker_that_fails_is_told_with_its_inputs(tmp_path: Path) -> None:
    """A shard that fails three times ends the reading and names its first file; what others gave
    is gone from the disk while the error is still told."""

    def broken(shard: Any) -> str:
        raise OSError("no space left on device")

    paths = rank_files(tmp_path / "logs", 8)
    with ThreadPoolExecutor(1) as threads:

        def engine(work: Any, todo: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            return on_executor(threads)(broken, todo)

        told = r"train_rank_\d\.log and 2 more: failed 3 times"
        with pytest.raises(ShardFailed, match=told) as error:
            ingest(paths, workers=Workers(engine=engine, folder=tmp_path))
        assert not _left(tmp_path), error


def _wide(tmp_path: Path) -> tuple[RunLog, Path]:
    (run,) = ingest(rank_files(tmp_path / "logs", 40)).runs
    return run, write_run(run, tmp_path / "runs")


def test_a_wide_job_tells_slow_silent_and_failed_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 ranks the slow one, the silent one and the one out of memory; the same from the store.

    Only the leads' rows are held: some healthy ranks and the odd ones.
    """
    monkeypatch.setattr("loganalyze.leads.LEADS", 6)
    run, place = _wide(tmp_path)
    assert run.ranks is not None
    assert {3, 7} <= set(run.ranks.leads)
    assert len(run.ranks.leads) < 20
    assert set(run.readings["rank"].unique()) == set(run.ranks.leads)
    report = report_on([str(tmp_path / "logs")], Judging())
    found = {(f.kind, f.rank) for f in report.diagnoses[0].findings}
    assert {("straggler_rank", 3), ("rank_missing", 5), ("oom", 7)} <= found
    stored = report_on([str(place)], Judging())
    assert render(stored, "json", "en") == render(report, "json", "en")


def test_a_wide_store_is_one_table(tmp_path: Path) -> None:
    """All ranks' rows lie in plain Parquet, and what was reduced of each rank beside them."""
    run, place = _wide(tmp_path)
    rows = pl.read_parquet(place / "readings" / "*.parquet")
    assert len(rows) == 39 * 40 + 25
    table = pl.read_parquet(place / "ranks.parquet").filter(metric="step_time_s", rank=3)
    mine = rows.filter(rank=3)["step_time_s"]
    assert table["count"].to_list() == [40]
    assert table["low"].to_list() == [mine.min()]
    again = read_run(place)
    assert again.readings.equals(run.readings)
    assert again.meta == run.meta
    assert again.events.equals(run.events)
