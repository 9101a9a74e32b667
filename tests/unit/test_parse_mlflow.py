"""MLflow's and Trackio's stores: SQLite and the file store, joined by step."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from loganalyze_parsers import head_of, mlflow_files, parser_for
from loganalyze_parsers.tracker_folders import tracker_inputs
from loganalyze_parsers.tracker_join import join_columns
from trackers import parsed, rows, rules

MLFLOW = """
create table runs (run_uuid text, name text, status text, start_time int, end_time int);
create table params (key text, value text, run_uuid text);
create table metrics (key text, value float, timestamp int, run_uuid text, step int, is_nan int);
"""
TRACKIO = """
create table metrics (id integer primary key, run_id text, timestamp text, run_name text,
                      step int, metrics text);
create table system_metrics (id integer primary key, timestamp text, run_name text, metrics text);
create table configs (id integer primary key, run_name text, config text);
create table alerts (id integer primary key, run_name text, title text, text text, step int);
"""


def database(path: Path, schema: str, rows_of: dict[str, list[tuple[object, ...]]]) -> Path:
    """A SQLite file with these tables and rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(schema)
        for table, found in rows_of.items():
            marks = ",".join("?" * len(found[0]))
            connection.executemany(f"insert into {table} values ({marks})", found)
    return path


def metrics(run: str, steps: range, *, start: int = 0) -> list[tuple[object, ...]]:
    """Loss and learning rate at these steps, as MLflow keeps them."""
    made: list[tuple[object, ...]] = []
    for at, step in enumerate(steps):
        stamp = 1_700_000_000_000 + start + 1000 * at
        made.append(("loss", 5.0 - step / 128, stamp, run, step, 0))
        made.append(("learning_rate", 0.25, stamp, run, step, 0))
    return made


def test_mlflow_database(tmp_path: Path) -> None:
    """One row a step; NaN and infinities decoded; parameters and the end are events."""
    found = metrics("r1", range(10, 50, 10))
    found += [
        ("loss", 0.0, 1_700_000_009_000, "r1", 50, 1),
        ("grad_norm", 1.7976931348623157e308, 1_700_000_009_000, "r1", 50, 0),
        ("grad_norm", -1.7976931348623157e308, 1_700_000_010_000, "r1", 60, 0),
    ]
    path = database(
        tmp_path / "mlflow.db",
        MLFLOW,
        {
            "runs": [("r1", "first", "FAILED", 1, 1_700_000_020_000)],
            "params": [("lr", "0.25", "r1")],
            "metrics": found,
        },
    )
    (batch,) = parsed(path)
    frame = rows(batch)
    assert frame["step"].to_list() == [10, 20, 30, 40, 50, 60]
    assert math.isnan(frame["loss"][4])
    assert frame["grad_norm"].to_list()[4:] == [math.inf, -math.inf]
    assert frame["wall_s"][1] == 1_700_000_001.0
    assert batch.account.read == 11
    by_kind = {event.kind: event for event in batch.events}
    assert by_kind["config"].detail == {"lr": "0.25"}
    assert by_kind["exit"].detail == {"exit_code": 1, "status": "FAILED"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mlflow.db"]


def test_mlflow_runs_and_resume(tmp_path: Path) -> None:
    """Each run is a batch with its own name; steps written again are further rows, in order."""
    path = database(
        tmp_path / "mlflow.db",
        MLFLOW,
        {
            "runs": [
                ("aaaabbbbcc", "same", "RUNNING", 1, None),
                ("ddddeeeeff", "same", "FINISHED", 2, 3),
            ],
            "metrics": [
                *metrics("aaaabbbbcc", range(0, 50, 10)),
                *metrics("aaaabbbbcc", range(30, 70, 10), start=99_000),
                *metrics("ddddeeeeff", range(0, 20, 10)),
            ],
        },
    )  # fmt: skip
    batches = parsed(path)
    assert [batch.run for batch in batches] == ["same-aaaabbbb", "same-ddddeeee"]
    assert rows(batches[0])["step"].to_list() == [0, 10, 20, 30, 40, 30, 40, 50, 60]


def test_newest_rows_in_the_write_ahead_log(tmp_path: Path) -> None:
    """Rows that are only in `-wal` are read, and nothing is written beside the database."""
    path = database(tmp_path / "mlflow.db", MLFLOW, {"runs": [("r1", "a", "RUNNING", 1, None)]})
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("pragma journal_mode=wal")
        with writer:
            rows_of = metrics("r1", range(1, 4))
            writer.executemany("insert into metrics values (?,?,?,?,?,?)", rows_of)
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert len(before["mlflow.db-wal"]) > 0
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("mlflow.db", "mlflow.db-wal"):
            (copy / name).write_bytes(before[name])
    (batch,) = parsed(copy / "mlflow.db")
    assert rows(batch)["step"].to_list() == [1, 2, 3]
    assert sorted(file.name for file in copy.iterdir()) == ["mlflow.db", "mlflow.db-wal"]


def test_other_database_is_left_alone(tmp_path: Path) -> None:
    """A SQLite file of another make is nobody's."""
    path = database(tmp_path / "x.db", "create table t (a int);", {"t": [(1,)]})
    assert parser_for(head_of(path)) is None


@pytest.mark.parametrize("size", [100, 5000])
def test_damaged_database(tmp_path: Path, size: int) -> None:
    """A torn database never raises."""
    path = database(tmp_path / "m.db", MLFLOW, {"metrics": metrics("r1", range(200))})
    path.write_bytes(path.read_bytes()[:size])
    parser = parser_for(head_of(path))
    assert parser is None or list(parser.parse(path, 0)) is not None


def file_store(root: Path) -> Path:
    """A file store with one run that was resumed at step 30; returns its metrics folder."""
    run = root / "mlruns" / "123" / "abcd1234ef"
    folder = run / "metrics"
    (folder / "train").mkdir(parents=True)
    (run / "params").mkdir()
    (run / "tags").mkdir()
    (root / "mlruns" / "123" / "meta.yaml").write_text(
        "artifact_location: x\nexperiment_id: '123'\n"
    )
    (run / "params" / "bs").write_text("64")
    (run / "tags" / "mlflow.runName").write_text("fine")
    (run / "meta.yaml").write_text("end_time: 1700000099000\nrun_id: abcd1234ef\nstatus: 5\n")
    steps = [10, 20, 30, 40, 30, 40, 50]
    lines = [f"{1_700_000_000_000 + n} {9.0 - n} {step}\n" for n, step in enumerate(steps)]
    lines[3] = "1700000000003 nan 40\n"
    (folder / "loss").write_text("".join(lines))
    (folder / "train" / "tokens_per_sec").write_text("".join(lines[:2]) + "junk\n")
    (folder / "eval_loss").write_text("1700000000009 8.5 25\n")
    return folder


@pytest.mark.parametrize("stamp", ["²", "٤", "9" * 5000, "now"])
def test_an_end_that_is_no_time_is_no_time(stamp: str, tmp_path: Path) -> None:
    """What only looks like digits ends nothing: the run's status is told without a time."""
    meta = file_store(tmp_path).parent / "meta.yaml"
    meta.write_text(f"end_time: {stamp}\nrun_id: abcd1234ef\nstatus: 5\n", encoding="utf-8")
    (batch,) = mlflow_files.parse_meta(meta, 0)
    assert [(event.kind, event.wall_s) for event in batch.events if event.kind == "exit"] == [
        ("exit", None)
    ]


def test_file_store_line_by_line(tmp_path: Path) -> None:
    """Every line is a row with its own place; a line that is none is unknown."""
    folder = file_store(tmp_path)
    (batch,) = parsed(folder / "train" / "tokens_per_sec")
    frame = rows(batch)
    assert frame["tokens_per_s"].to_list() == [9.0, 8.0]
    assert frame["line"].to_list() == [1, 2]
    assert batch.account.unknown == 1


def test_file_store_joined(tmp_path: Path) -> None:
    """The files of a run are columns of one table; the loss leads and keeps its order."""
    file_store(tmp_path)
    (run,) = (one for one in tracker_inputs(tmp_path) if one.paths)
    left = {file for one in tracker_inputs(tmp_path) for file in (*one.paths, *one.beside)}
    assert left == {file for file in tmp_path.rglob("*") if file.is_file()}
    assert run.columns
    assert run.label == "fine-abcd1234"
    frames = []
    events = []
    for source, path in enumerate(run.paths):
        parser = parser_for(head_of(path))
        assert parser is not None
        for batch in parser.parse(path, source):
            events.extend(batch.events)
            if batch.readings is not None:
                frames.append(batch.readings)
    frame = join_columns(frames)
    assert frame["step"].to_list() == [10, 20, 25, 30, 40, 30, 40, 50] or frame[
        "step"
    ].to_list() == [25, 10, 20, 30, 40, 30, 40, 50]
    assert frame["tokens_per_s"].count() == 2
    by_kind = {event.kind: event.detail for event in events}
    assert by_kind["config"] == {"bs": "64"}
    assert by_kind["exit"] == {"exit_code": 255, "status": "KILLED"}


def test_trackio(tmp_path: Path) -> None:
    """Rows as JSON (text or bytes), words for non-finite numbers, system metrics by time."""

    def row(step: int, run: str, values: dict[str, object], *, blob: bool) -> tuple[object, ...]:
        words = json.dumps(values)
        stamp = f"2031-01-01T00:00:{step:02d}+00:00"
        return step + 100 * (run == "b"), "x", stamp, run, step, words.encode() if blob else words

    found = [
        row(1, "a", {"train/loss": 2.5, "train/global_step": 10}, blob=True),
        row(2, "a", {"train/loss": "NaN", "train/global_step": 20}, blob=False),
        row(1, "b", {"loss": 1.0}, blob=False),
        (300, "x", "2031-01-01T00:00:09", "b", 9, "{torn"),
    ]
    path = database(
        tmp_path / "toy.db",
        TRACKIO,
        {
            "metrics": found,
            "system_metrics": [(1, "2031-01-01T00:00:02.5+00:00", "a", '{"gpu.0.gpu": 40}')],
            "configs": [(1, "a", '{"lr": 0.5, "_Username": "someone"}')],
            "alerts": [(1, "a", "Loss", "is NaN", 20)],
        },
    )
    first, second = parsed(path)
    assert (first.run, second.run) == ("a", "b")
    frame = rows(first)
    assert frame["step"].to_list() == [10, 20, 20]
    assert math.isnan(frame["loss"][1])
    assert frame["gpu_util"].to_list() == [None, None, 0.4]
    assert [(e.kind, e.text) for e in first.events] == [("config", ""), ("warning", "Loss: is NaN")]
    assert first.events[0].detail == {"lr": "0.5"}
    assert second.account.unknown == 1
    assert rules(second) == []
