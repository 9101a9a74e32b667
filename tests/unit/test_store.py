"""Runs on disk."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import weakref
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace
from textlogs import megatron_line, run_of

from loganalyze import store, store_parts
from loganalyze.errors import OutputError, StoreError
from loganalyze.ingest import ingest
from loganalyze.model import RunLog
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import render, write_files
from loganalyze.store import open_run, read_run, write_run


@pytest.fixture
def run(tmp_path: Path) -> RunLog:
    """A small run with an event, a placeholder and an unknown line."""
    lines = [megatron_line(n, lm_loss=f"{3.0 + n}", grad_norm="0.000") for n in range(1, 4)]
    lines += ["saving checkpoint at iteration 3 to /c in torch format", "who knows"]
    return run_of("\n".join(lines), tmp_path)


def files_below(place: Path) -> dict[str, bytes]:
    """Bytes of every file below a folder, by its path there."""
    return {
        p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()
    }


def test_parts_in_the_order_of_the_rows(
    run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of many parts is read as it was written, and every part's name is its content's."""
    monkeypatch.setattr(store_parts, "PART_ROWS", 2)
    place = write_run(run, tmp_path / "runs")
    parts = sorted(path.name for path in (place / "readings").iterdir())
    assert [name[:6] for name in parts] == ["00000-", "00001-"]
    for name in parts:
        digest = hashlib.sha256((place / "readings" / name).read_bytes()).hexdigest()
        assert name[6:22] == digest[:16]
    assert read_run(place).readings.equals(run.readings)


def test_a_missing_part_is_told(run: RunLog, tmp_path: Path) -> None:
    """A run without one of its parts is damaged, not shorter."""
    place = write_run(run, tmp_path / "runs")
    next((place / "readings").iterdir()).unlink()
    with pytest.raises(StoreError, match="not a readable run directory"):
        read_run(place)


def test_round_trip(run: RunLog, tmp_path: Path) -> None:
    """What is written is read again, to the last field."""
    again = read_run(write_run(run, tmp_path / "runs"))
    assert again.readings.equals(run.readings)
    assert again.events.equals(run.events)
    assert (again.meta, again.problems, again.sources) == (run.meta, run.problems, run.sources)


def test_writing_twice_is_writing_once(run: RunLog, tmp_path: Path) -> None:
    """A second write of the same run leaves the same bytes and no litter."""
    store = tmp_path / "runs"
    first = files_below(write_run(run, store))
    second = files_below(write_run(run, store))
    assert first == second
    assert [p.name for p in store.iterdir()] == [run.meta.id]


def test_plain_parquet(run: RunLog, tmp_path: Path) -> None:
    """The readings are plain Parquet with one row per line that carried numbers."""
    place = write_run(run, tmp_path / "runs")
    frame = pl.read_parquet(place / "readings" / "*.parquet")
    assert frame.columns[:8] == [
        "step", "segment", "rank", "wall_s", "source", "line", "offset", "length",
    ]  # fmt: skip
    assert frame["loss"].to_list() == [4.0, 5.0, 6.0]


def test_a_run_directory_is_an_input(run: RunLog, tmp_path: Path) -> None:
    """A stored run is opened instead of being read as a log."""
    place = write_run(run, tmp_path / "runs")
    assert ingest([str(place)]).runs[0].meta == run.meta


def test_damage_is_told(run: RunLog, tmp_path: Path) -> None:
    """A damaged or newer run directory gives a clear error."""
    place = write_run(run, tmp_path / "runs")
    document = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps({**document, "schema": "loganalyze.run/99"}))
    with pytest.raises(StoreError, match="run/99"):
        read_run(place)
    (place / "run.json").write_text("{")
    with pytest.raises(StoreError, match="not a readable run directory"):
        read_run(place)


def test_unwritable_store(run: RunLog, tmp_path: Path) -> None:
    """A store that cannot be made is one clear error."""
    (tmp_path / "runs").write_text("a file stands here")
    with pytest.raises(OutputError, match="cannot be written"):
        write_run(run, tmp_path / "runs")


def test_of_many_runs_one_is_held(
    run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judging and reporting on five stored runs never holds the rows of more than two."""
    places = [
        write_run(replace(run, meta=replace(run.meta, id=f"r{n}")), tmp_path / "runs")
        for n in range(5)
    ]
    seen: list[weakref.ref[pl.DataFrame]] = []
    most: list[int] = []
    rows = store._rows

    def watched(*args: Any) -> pl.DataFrame:
        frame = rows(*args)
        seen.append(weakref.ref(frame))
        gc.collect()  # what only a circle of frames of the interpreter holds is not held
        most.append(sum(one() is not None for one in seen))
        return frame

    monkeypatch.setattr(store, "_rows", watched)
    report = report_on([str(place) for place in places], Judging())
    write_files(report, tmp_path / "reports")
    render(report, "text", "en")
    assert [d.run.meta.id for d in report.diagnoses] == [f"r{n}" for n in range(5)]
    assert len(most) >= 5
    assert max(most) <= 2
    assert report.diagnoses[3].run.readings.equals(run.readings)


def test_a_renamed_run_still_reads_its_rows_when_asked(run: RunLog, tmp_path: Path) -> None:
    """A copy with another name holds no rows of its own; damage shows when they are asked for."""
    place = write_run(run, tmp_path / "runs")
    opened = open_run(place)
    renamed = replace(opened, meta=replace(opened.meta, id="other"))
    assert renamed.readings.equals(run.readings)
    assert renamed.events.equals(run.events)
    for part in (place / "readings").iterdir():
        part.write_bytes(b"PAR1")
    write_run(replace(run, meta=replace(run.meta, id="next")), tmp_path / "runs")
    with pytest.raises(StoreError, match="not a readable run directory"):
        _ = renamed.readings


def test_a_run_is_on_the_disk_before_it_takes_its_place(
    run: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a power cut: every file is flushed before the rename, and the store after it."""
    told: list[str] = []
    fsync, swap = os.fsync, store._swap

    def noted(opened: int) -> None:
        told.append(Path(os.readlink(f"/proc/self/fd/{opened}")).name)
        fsync(opened)

    def swapped(fresh: Path, place: Path) -> None:
        told.append("swap")
        swap(fresh, place)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(store, "_swap", swapped)
    place = store.write_run(run, tmp_path / "runs")
    written = {path.name for path in place.rglob("*")}
    at = told.index("swap")
    assert written <= set(told[:at])
    assert told[at + 1 :] == ["runs"]
