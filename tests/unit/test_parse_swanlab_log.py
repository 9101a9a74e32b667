"""SwanLab's own log of a run, and the names of its numbered columns."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from build_wandb import field, time_of, wandb_log
from loganalyze_parsers.swanlab_log import console_text
from trackers import parsed, rows, rules

HEADER = b":SWL\xd6\xe1\x02"


def scalar(key: str, step: int, value: float, wall: float = 1.7e9) -> bytes:
    """A scalar record."""
    body = field(1, key) + field(2, step) + field(4, time_of(wall)) + field(5, field(1, value))
    return field(13, body)


def test_log_of_a_run(tmp_path: Path) -> None:
    """Scalars of a step become one row, system columns stay apart, the end is an event."""
    bodies = [
        field(10, field(9, "someone")),
        field(12, field(1, 2) + field(3, "cpu.pct")),
        scalar("train/loss", 1, 2.5, 1.7e9),
        scalar("train/learning_rate", 1, 0.5, 1.7e9),
        scalar("train/loss", 2, 2.25, 1.7e9 + 5),
        scalar("cpu.pct", 1, 12.0, 1.7e9 + 6),
        field(16, field(1, "hello")),
        field(11, field(1, 2) + field(2, "ValueError: no")),
    ]
    path = tmp_path / "run-x.swanlab"
    path.write_bytes(wandb_log(bodies, header=HEADER))
    (batch,) = parsed(path)
    frame = rows(batch)
    assert frame["step"].to_list() == [1, 2, 2]
    assert frame["loss"].to_list() == [2.5, 2.25, None]
    assert frame["lr"].to_list() == [0.5, None, None]
    assert frame["raw/system/cpu.pct"].to_list() == [None, None, 12.0]
    (end,) = batch.events
    assert end.kind == "exit"
    assert end.detail == {"exit_code": 1, "error": "ValueError: no"}
    assert rules(batch) == []
    assert console_text(path) == b"hello\n"


def test_torn_log(tmp_path: Path) -> None:
    """A log without its end keeps its rows and says so."""
    data = wandb_log([scalar("loss", at, 1.0) for at in range(9)], header=HEADER)
    path = tmp_path / "run-x.swanlab"
    path.write_bytes(data[:-3])
    (batch,) = parsed(path)
    assert len(rows(batch)) == 8
    assert rules(batch) == ["input_breaks_off", "no_exit_record"]


def test_numbered_columns_get_their_names(tmp_path: Path) -> None:
    """The database of the store says which metric a numbered folder holds."""
    run = tmp_path / "swanlog" / "run-20310402_101112-a1b2c3"
    folder = run / "logs" / "7"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(tmp_path / "swanlog" / "runs.swanlab")) as base, base:
        base.execute("create table experiment (id int, run_id text, name text)")
        base.execute("create table tag (experiment_id int, name text, folder text)")
        base.execute("insert into experiment values (1, ?, 'e')", (run.name,))
        base.execute("insert into tag values (1, 'train/grad_norm', '7')")
    row = {"index": 10, "data": 1.5, "create_time": "2031-04-02T10:11:12.345+00:00"}
    path = folder / "1000.log"
    path.write_text(json.dumps(row) + "\n")
    batches = parsed(path)
    assert rows(batches[0])["grad_norm"].to_list() == [1.5]
    assert all(not batch.problems for batch in batches)
