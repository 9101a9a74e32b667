"""Tables and JSON as home-made loops and structured loggers leave them."""

from __future__ import annotations

import json
from pathlib import Path

from textlogs import run_of

LOSSES = [3.5, 3.25, 3.0, 2.75]


def test_numbers_inside_the_object_of_a_structured_logger(tmp_path: Path) -> None:
    """A line's `data` object has the step and the metrics; they lose its name."""
    lines = [
        json.dumps({"level": "INFO", "msg": "train", "data": {"step": n, "loss": loss, "lr": 1e-4}})
        for n, loss in enumerate(LOSSES, 1)
    ]
    run = run_of("\n".join(lines), tmp_path, "train.jsonl")
    assert run.readings["step"].to_list() == [1, 2, 3, 4]
    assert run.readings["loss"].to_list() == LOSSES
    assert run.sources[0].account.unknown == 0


def test_a_number_of_both_names_is_kept_twice(tmp_path: Path) -> None:
    """A loss on the line and one in its object are two numbers: none hides the other."""
    lines = [
        json.dumps({"_step": n, "_timestamp": 2e9 + n, "loss": loss, "metrics": {"loss": loss + 1}})
        for n, loss in enumerate(LOSSES, 1)
    ]
    rows = run_of("\n".join(lines), tmp_path, "train.jsonl").readings
    assert rows["loss"].to_list() == LOSSES
    assert [loss + 1 for loss in LOSSES] in [rows[name].to_list() for name in rows.columns]


def test_lists_of_a_document_with_and_without_steps(tmp_path: Path) -> None:
    """Entries belong together by their place; without a list of steps they are counted from 1."""
    with_steps = json.dumps({"step": [10, 20, 30, 40], "train_loss": LOSSES})
    run = run_of(with_steps, tmp_path, "curves.json")
    assert run.readings["step"].to_list() == [10, 20, 30, 40]
    assert run.readings["loss"].to_list() == LOSSES
    history = json.dumps({"loss": LOSSES, "val_loss": [4, 4, 4, 4], "test_acc": [0.5]})
    run = run_of(history, tmp_path, "history.json")
    assert run.readings["step"].to_list() == [1, 2, 3, 4]
    assert run.readings["val_loss"].to_list() == [4, 4, 4, 4]
    (told,) = (p.message for p in run.problems if p.rule == "list_of_another_length")
    assert "test_acc" in told


def test_a_table_of_epochs_by_any_name_of_the_loss(tmp_path: Path) -> None:
    """`epoch,train_loss,val_loss` has an entry an epoch, and the epoch is the step."""
    rows = "".join(f"{n},{loss},{loss + 1}\n" for n, loss in enumerate(LOSSES, 1))
    run = run_of(f"epoch,train_loss,val_loss\n{rows}", tmp_path, "log.csv")
    assert run.readings["step"].to_list() == [1, 2, 3, 4]
    assert run.readings["loss"].to_list() == LOSSES
    assert run.readings["val_loss"].to_list() == [loss + 1 for loss in LOSSES]
