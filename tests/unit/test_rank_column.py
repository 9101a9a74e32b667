"""Ranks and units that home-made loops tell in columns of their own."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from loganalyze.cli import cli as main_cli
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.pipeline import Judging, report_on
from loganalyze.store import read_run

Row = dict[str, float | int]


def rows(steps: int, ranks: int, *, slow: int | None = None) -> Iterator[Row]:
    """All ranks of a step one after the other."""
    rng = np.random.default_rng(1)
    for step in range(1, steps + 1):
        loss = round(2 + 8 * step**-0.5 + 0.01 * rng.standard_normal(), 5)
        for rank in range(ranks):
            time = (1.06 if rank == slow else 1.0) * (1 + 0.01 * rng.standard_normal())
            yield {"step": step, "rank": rank, "loss": loss, "step_time_s": round(time, 4)}


def json_lines(path: Path, told: Iterable[Row]) -> None:
    """One object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")


def table(path: Path, told: Iterable[Row]) -> None:
    """A CSV table."""
    listed = list(told)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)


def pairs(path: Path, told: Iterable[Row]) -> None:
    """`step=1 rank=0 loss=2.5`, a line a row."""
    lines = (" ".join(f"{name}={value}" for name, value in row.items()) for row in told)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


Writer = Callable[[Path, Iterable[Row]], None]
WRITERS: tuple[tuple[str, Writer], ...] = (
    ("train.jsonl", json_lines), ("train.csv", table), ("train.log", pairs),
)  # fmt: skip


def run_of(path: Path) -> RunLog:
    """The one run of an input."""
    (run,) = ingest([str(path)]).runs
    return run


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_a_column_of_ranks_is_the_rank(tmp_path: Path, name: str, write: Writer) -> None:
    """Every row has the rank of its column, times are times, and the slow rank is found."""
    write(tmp_path / name, rows(200, 4, slow=2))
    run = run_of(tmp_path / name)
    assert run.readings["rank"].to_list() == [0, 1, 2, 3] * 200
    assert "step_time_s" in run.readings.columns
    assert not any("rank" in column for column in run.readings.columns[8:])
    (diagnosis,) = report_on([str(tmp_path / name)], Judging()).diagnoses
    assert [f.rank for f in diagnosis.findings if f.kind == "straggler_rank"] == [2]


def test_ranks_one_after_the_other(tmp_path: Path) -> None:
    """All steps of rank 0, then all of rank 1: two tracks of one segment, no restart."""
    told = sorted(rows(100, 2), key=lambda row: row["rank"])
    json_lines(tmp_path / "train.jsonl", told)
    run = run_of(tmp_path / "train.jsonl")
    assert run.readings["rank"].to_list() == [0] * 100 + [1] * 100
    assert len(run.meta.segments) == 1


@pytest.mark.parametrize(
    "ranks", [[16] * 300, [1.5, 2.0, 7.25] * 100, [3, 1, 2] * 100, [float("nan"), 1, 2] * 100]
)
def test_other_numbers_called_rank_stay(tmp_path: Path, ranks: list[float]) -> None:
    """An adapter's rank, a mean rank, the place of an answer in a list: one row a step."""
    told = [{"step": n, "rank": rank, "loss": 2.0 + 1 / n} for n, rank in enumerate(ranks, 1)]
    json_lines(tmp_path / "train.jsonl", told)
    run = run_of(tmp_path / "train.jsonl")
    assert run.readings["rank"].null_count() == 300
    assert "raw/rank" in run.readings.columns


def test_an_adapters_rank_beside_a_launchers(tmp_path: Path) -> None:
    """Lines with a launcher's rank, and others that tell of an adapter of rank 16: no rank 16."""
    lines = [f"[rank0]: step={n} loss={2 + 1 / n:.4f}" for n in range(1, 100)]
    lines += [f"step={n} loss={2 + 1 / n:.4f} rank=16" for n in range(100, 200)]
    (tmp_path / "train.log").write_text("\n".join([*lines, ""]), encoding="utf-8")
    readings = run_of(tmp_path / "train.log").readings
    assert set(readings["rank"].drop_nulls()) == {0}
    assert set(readings["raw/rank"].drop_nulls()) == {16.0}


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_one_more_line_is_read_as_if_it_had_been_there(
    tmp_path: Path, name: str, write: Writer
) -> None:
    """A stored run whose log grew by the line of one rank is the run of the whole log."""
    log, cli = tmp_path / name, CliRunner()
    write(log, rows(50, 4))
    data = log.read_bytes()
    log.write_bytes(data[: data.rfind(b"\n", 0, -1) + 1])
    for store, content in (("grown", None), ("grown", data), ("fresh", data)):
        if content is not None:
            log.write_bytes(content)
        done = cli.invoke(main_cli, ["ingest", str(log), "--store", str(tmp_path / store)])
        assert done.exit_code == 0, done.output
    one, other = (read_run(next((tmp_path / store).iterdir())) for store in ("grown", "fresh"))
    assert_frame_equal(one.readings, other.readings)


def test_units_in_the_names_of_columns(tmp_path: Path) -> None:
    """`peak_mem_gb` and `dt_ms` are bytes and seconds; `loss_ms` is nothing that we know."""
    told: list[Row] = [
        {"step": n, "loss": 2.0 + 1 / n, "peak_mem_gb": 40, "dt_ms": 250, "loss_ms": 3}
        for n in range(1, 50)
    ]
    for write, name in ((table, "train.csv"), (json_lines, "train.jsonl")):
        write(tmp_path / name, told)
        readings = run_of(tmp_path / name).readings
        assert set(readings["mem_peak_allocated_bytes"]) == {40 * 1024.0**3}
        assert set(readings["step_time_s"]) == {0.25}
        assert set(readings["raw/loss_ms"]) == {3.0}
