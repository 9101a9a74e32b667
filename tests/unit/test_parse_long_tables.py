"""Tables in long form: a row a number, with the metric's name in a cell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.tables_long import roles
from trackers import parsed, rows

from loganalyze.model import Batch


def read(tmp_path: Path, text: str, name: str = "scalars.csv") -> list[Batch]:
    """All batches of a table with this text."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    return parsed(path)


def test_numbers_of_one_step_become_one_row_that_cites_their_lines(tmp_path: Path) -> None:
    """Two names a step; a third one now and then, and a line without a number."""
    text = (
        "name,value,step\ntrain/loss,4.5,10\ntrain/grad_norm,0.5,10\n"
        "train/loss,4.25,20\nnote,warm,20\ntrain/grad_norm,nan,20\neval/loss,4.0,20\n\n"
    )
    (batch,) = read(tmp_path, text)
    frame = rows(batch)
    assert frame["step"].to_list() == [10, 20]
    assert frame["loss"].to_list() == [4.5, 4.25]
    assert frame["val_loss"].to_list() == [None, 4.0]
    assert math.isnan(frame["grad_norm"][1])
    assert frame["line"].to_list() == [2, 4]
    at, size = frame["offset"][1], frame["length"][1]
    assert text[at : at + size].split() == [
        "train/loss,4.25,20", "note,warm,20", "train/grad_norm,nan,20", "eval/loss,4.0,20",
    ]  # fmt: skip
    assert batch.account.read == 5


def test_half_a_character_in_a_name_loses_no_line(tmp_path: Path) -> None:
    """The name is read with a mark in its place; every line is accounted for."""
    names = ["loss", "half \ud83d", "loss"]
    lines = [
        json.dumps({"metric": name, "value": 2.5, "step": 7 + n}) for n, name in enumerate(names)
    ]
    (batch,) = read(tmp_path, "\n".join(lines) + "\n", "scalars.jsonl")
    assert batch.account.lines == batch.account.read == 3
    assert rows(batch)["loss"].to_list() == [2.5, None, 2.5]


def test_one_metric_after_the_other_is_put_in_the_order_of_steps(tmp_path: Path) -> None:
    """The loss is cited where it stands; a step that only the evaluation has lies between."""
    lines = ["tag,step,value,wall_time"]
    lines += [f"train/grad_norm,{step},0.{step},{1.7e9 + step}" for step in (10, 20, 30)]
    lines += [f"train/loss,{step},4.{step},{1.7e9 + step}" for step in (10, 20, 30)]
    lines += [f"eval/loss,25,5.5,{1.7e9 + 25}"]
    (batch,) = read(tmp_path, "\n".join(lines) + "\n")
    frame = rows(batch)
    assert frame["step"].to_list() == [10, 20, 25, 30]
    assert frame["loss"].to_list() == [4.1, 4.2, None, 4.3]
    assert frame["grad_norm"].to_list() == [0.1, 0.2, None, 0.3]
    assert frame["line"].to_list() == [5, 6, 8, 7]
    assert frame["wall_s"].to_list() == [1.7e9 + step for step in (10, 20, 25, 30)]
    assert frame["length"].to_list() == [len(lines[at]) for at in (4, 5, 7, 6)]


def test_a_resume_that_writes_steps_again_keeps_both(tmp_path: Path) -> None:
    """The second value of a step is a row of its own, where it was written."""
    lines = [f"loss,{4 - step / 10},{step}" for step in (1, 2, 3, 2, 3, 4)]
    (batch,) = read(tmp_path, "\n".join(["metric,value,step", *lines]) + "\n")
    assert rows(batch)["step"].to_list() == [1, 2, 3, 2, 3, 4]


def test_runs_of_one_table_are_told_apart(tmp_path: Path) -> None:
    """By the column of the run; the times of MLflow are milliseconds."""
    lines = [
        f"{run},loss,{value},{1700000000000 + 1000 * step},{step}"
        for step in (1, 2)
        for run, value in (("ab", 4.5), ("cd", 3.5))
    ]
    made = read(tmp_path, "\n".join(["run_uuid,key,value,timestamp,step", *lines]) + "\n")
    assert [batch.run for batch in made] == ["ab", "cd"]
    assert rows(made[1])["loss"].to_list() == [3.5, 3.5]
    assert rows(made[1])["wall_s"].to_list() == [1700000001.0, 1700000002.0]
    assert [batch.account.lines for batch in made] == [5, 0]


def test_json_lines_of_one_number_each(tmp_path: Path) -> None:
    """Numbers as numbers or as words; what is no object is unknown."""
    lines = [
        json.dumps({"metric": name, "step": step, "value": value})
        for step in (1, 2)
        for name, value in (("loss", 4.5), ("lr", "1e-4"), ("note", "warm"))
    ]
    (batch,) = read(tmp_path, "\n".join([*lines, "stopped", "", '{"metric": "lo']), "scalars.jsonl")
    frame = rows(batch)
    assert frame["step"].to_list() == [1, 2]
    assert (frame["loss"].to_list(), frame["lr"].to_list()) == ([4.5, 4.5], [1e-4, 1e-4])
    account = batch.account
    assert (account.lines, account.read, account.unknown) == (9, 4, 2)


@pytest.mark.parametrize(
    "text",
    [
        "step,loss,value,name\n1,2.5,3,x\n",
        "name,value\nloss,2.5\n",
        "name,value,step\n3,2.5,1\n",
        "name,value,step\nloss,high,1\n",
    ],
)
def test_other_tables_are_left_to_others(tmp_path: Path, text: str) -> None:
    """A metric of its own, no step, no name, or no number."""
    path = tmp_path / "table.csv"
    path.write_text(text)
    parser = parser_for(head_of(path))
    assert parser is None or parser.name != "csv_long"


def test_the_surest_name_of_a_role_is_taken() -> None:
    """`epoch` is a step only where there is no other."""
    assert roles(["metric", "value", "step", "epoch"])["step"] == "step"
    assert roles(["metric", "value", "epoch"])["step"] == "epoch"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["loss", "lr", "x", ""]),
            st.sampled_from(["1.5", "nan", "", "word", '"a\nb"']),
            st.sampled_from(["0", "3", "7", "-1", "1e30", "inf", ""]),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_any_table_adds_up(
    tmp_path_factory: pytest.TempPathFactory,
    cells: list[tuple[str, str, str]], whole: bool,
) -> None:  # fmt: skip
    """Lines read, ignored and unknown are all lines (parsed() looks)."""
    path = tmp_path_factory.mktemp("long") / "scalars.csv"
    body = "\n".join(",".join(row) for row in [("loss", "2.5", "1"), *cells])
    path.write_text("name,value,step\n" + body + ("\n" if whole else ""))
    parsed(path)
