"""trainer_state.json and the flat result files; all samples are invented."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from loganalyze_parsers import trainer_state
from loganalyze_parsers.api import Head
from textlogs import column, run_of

HISTORY: list[dict[str, Any]] = [
    {"epoch": 0.1, "grad_norm": 0.5, "learning_rate": 4e-05, "loss": 1.5, "step": 10},
    {"epoch": 0.2, "grad_norm": math.nan, "learning_rate": 4e-05, "loss": 0.0, "step": 20},
    {"epoch": 0.2, "eval_loss": 1.25, "eval_runtime": 9.5, "step": 20},
    {"epoch": 0.3, "grad_norm": math.inf, "loss": 1.25, "name": "é", "step": 30},
    {"epoch": 0.3, "step": 30, "total_flos": 9e15, "train_loss": 1.375, "train_runtime": 99.5},
]
STATE = {
    "best_metric": None, "epoch": 0.3, "global_step": 30, "log_history": HISTORY,
    "logging_steps": 10, "max_steps": 100, "num_train_epochs": 1, "train_batch_size": 4,
}  # fmt: skip


@pytest.mark.parametrize("indent", [2, 4, None])
def test_history(indent: int | None, tmp_path: Path) -> None:
    """Training and evaluation entries are rows, the last one is a summary; NaN is legal."""
    text = json.dumps(STATE, indent=indent, ensure_ascii=False)
    run = run_of(text, tmp_path, "trainer_state.json")
    assert column(run, "step") == [10, 20, 20, 30]
    losses = column(run, "loss")
    assert (losses[0], losses[2], losses[3]) == (1.5, None, 1.25)
    assert losses[1] is not None
    assert math.isnan(losses[1])
    assert run.readings["raw/nan_hidden"].to_list() == [None, 1.0, None, None]
    assert column(run, "val_loss") == [None, None, 1.25, None]
    assert run.readings["grad_norm"][3] == math.inf
    assert run.meta.config["logging_steps"] == "10"
    (note,) = run.events.filter(pl.col("kind") == "note")["detail"]
    assert json.loads(note)["train_loss"] == 1.375


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_references_point_at_the_entry(newline: str, tmp_path: Path) -> None:
    """line is where the entry begins; the bytes cited are the entry, after non-ASCII text too."""
    history = [{"name": "损失", **HISTORY[0]}, HISTORY[3]]
    text = json.dumps({"epoch": 1, "log_history": history}, indent=2, ensure_ascii=False)
    data = text.replace("\n", newline).encode()
    run = run_of(data, tmp_path, "trainer_state.json")
    for row, entry in zip(run.readings.iter_rows(named=True), history, strict=True):
        cited = data[row["offset"] : row["offset"] + row["length"]]
        assert json.loads(cited) == entry
        assert row["line"] == data[: row["offset"]].count(b"\n") + 1


def test_account_adds_up(tmp_path: Path) -> None:
    """Lines of entries are read, the frame is ignored by name."""
    text = json.dumps(STATE, indent=2) + "\n"
    account = run_of(text, tmp_path, "trainer_state.json").sources[0].account
    assert account.lines == text.count("\n")
    assert account.read == sum(len(entry) + 2 for entry in HISTORY)
    assert account.read + account.ignored_total == account.lines


def test_torn_file(tmp_path: Path) -> None:
    """A copy that breaks off gives the entries before the break, and says so."""
    text = json.dumps(STATE, indent=2)
    cut = text.index('"eval_runtime"')
    run = run_of(text[:cut], tmp_path, "trainer_state.json")
    assert column(run, "step") == [10, 20]
    assert any(problem.rule == "input_breaks_off" for problem in run.problems)
    assert run.sources[0].account.unknown > 0


def test_rows_of_2020_carry_operations(tmp_path: Path) -> None:
    """Before v4.1 every training entry had total_flos: it is a row all the same."""
    entry = {"loss": 1.5, "learning_rate": 1e-05, "epoch": 0.1, "total_flos": 9e15, "step": 10}
    state = {"epoch": 0.1, "global_step": 10, "log_history": [entry]}
    run = run_of(json.dumps(state, indent=2), tmp_path, "trainer_state.json")
    assert column(run, "loss") == [1.5]
    assert column(run, "raw/total_flos") == [9e15]


def test_result_file_has_no_curve(tmp_path: Path) -> None:
    """all_results.json holds final numbers: a note, no rows."""
    text = json.dumps({"epoch": 1.0, "train_loss": 1.375, "train_runtime": 99.5}, indent=4)
    head = Head(path=Path("all_results.json"), data=text.encode(), size=len(text))
    assert trainer_state.sniff_results(head) > 0.5
    path = tmp_path / "all_results.json"
    path.write_text(text)
    (batch,) = trainer_state.RESULTS_PARSER.parse(path, 0)
    assert batch.readings is None
    (event,) = batch.events
    assert event.detail["train_loss"] == 1.375
    assert batch.account.read == batch.account.lines == 5


def test_other_json_is_left_alone() -> None:
    """Neither a configuration nor a log line with a loss is taken for a state file."""
    for text in ('{"model": {"layers": 2}}', '{"loss": 1.5, "step": 1}\n', "[1, 2]", ""):
        head = Head(path=Path("x.json"), data=text.encode(), size=len(text))
        assert trainer_state.sniff_state(head) == 0.0
        assert trainer_state.sniff_results(head) == 0.0
