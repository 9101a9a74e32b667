"""Numbers in an object inside a row: of JSON lines, and of dictionaries behind a logger's words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loganalyze_parsers.huggingface_dicts import find_dicts
from trackers import parsed, rows

ROW = {"step": 3, "loss": 2.5, "optim": {"lr": 1e-4, "grad_norm": 0.25}, "note": {"who": "me"}}


def text_of(*lines: str) -> str:
    """Lines of a log."""
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "lines",
    [
        [json.dumps(ROW), json.dumps({**ROW, "step": 4})],
        [f"INFO trainer: {json.dumps(ROW)}", f"INFO trainer: {json.dumps({**ROW, 'step': 4})}"],
        [f"rank 0 | {ROW}", f"rank 0 | { {**ROW, 'step': 4} }"],
    ],
)
def test_numbers_inside_an_object_are_read(tmp_path: Path, lines: list[str]) -> None:
    """A file of JSON lines, and the same behind a logger's words or as Python prints it."""
    path = tmp_path / "train.log"
    path.write_text(text_of(*lines))
    (batch,) = (one for one in parsed(path) if one.readings is not None)
    frame = rows(batch)
    assert frame["step"].to_list() == [3, 4]
    for name, value in (("loss", 2.5), ("lr", 1e-4), ("grad_norm", 0.25)):
        assert frame[name].to_list() == [value, value]
    assert frame["line"].to_list() == [1, 2]


def test_a_loss_of_its_own_is_not_replaced_by_one_inside(tmp_path: Path) -> None:
    """The inner one stays under its own name."""
    row = {"step": 3, "loss": 2.5, "train": {"loss": 9.0, "mean": 1.0}, "epoch": 0.5}
    path = tmp_path / "train.log"
    path.write_text(text_of(f"INFO {json.dumps(row)}"))
    (batch,) = (one for one in parsed(path) if one.readings is not None)
    values = rows(batch).row(0, named=True)
    assert (values["loss"], values["epoch"]) == (2.5, 0.5)
    assert (values["raw/train.loss"], values["raw/train.mean"]) == (9.0, 1.0)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"step": 1, "a": {"lr": 2}, "b": {"x": 3}, "loss": 4}', "step a.lr b.x loss"),
        ('{"step": 1, "loss": 4, "a": {"lr": 2}}', "step loss a.lr"),
        ('{"step": 1, "loss": 4, "list": [{"lr": 2, "x": 1}]}', "step loss"),
        ('{"step": 1, "loss": 4, "a": {"lr": 2, "b": {"x": 1, "y": 2}}}', "step loss a.lr"),
    ],
)
def test_which_inner_numbers_are_a_rows(text: str, keys: str) -> None:
    """Those one level down; lists and deeper ones are left out."""
    assert [" ".join(found.pairs) for found in find_dicts(text)] == [keys]
