"""CSV tables of trackers: histories, charts, tables of runs, curves in cells."""

from __future__ import annotations

import csv
import io
import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import csv_table, head_of, parser_for, tables
from loganalyze_parsers.blocks import Block, read_blocks
from loganalyze_parsers.csv_table import Header, _cells, header_of
from trackers import assert_adds_up, parsed, rows, rules

from loganalyze.model import Batch


def read(tmp_path: Path, text: str, name: str = "export.csv") -> list[Batch]:
    """All batches of a table with this text."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    return parsed(path)


def test_history_export(tmp_path: Path) -> None:
    """W&B's history: axis by name, clock, sparse cells null, words for non-finite numbers."""
    (batch,) = read(
        tmp_path,
        ",_step,_runtime,_timestamp,train/loss,train/grad_norm,note,train/global_step\n"
        "0,0,1.5,1700000000.5,3.25,NaN,warm,10\n"
        "1,1,2.5,1700000001.5,,Infinity,,20\n"
        '2,2,3.5,1700000002.5,"2.75",-Infinity,,30\n',
    )
    frame = rows(batch)
    assert frame["step"].to_list() == [10, 20, 30]
    assert frame["loss"].to_list() == [3.25, None, 2.75]
    assert frame["wall_s"][2] == 1700000002.5
    grad = frame["grad_norm"].to_list()
    assert math.isnan(grad[0])
    assert grad[1:] == [math.inf, -math.inf]
    assert "raw/_runtime" not in frame.columns
    assert batch.framework == "wandb"
    assert batch.account.ignored == {"header": 1}


def test_gap_of_the_axis_is_filled_by_the_counter(tmp_path: Path) -> None:
    """Where counter and step agree, a row without the step has the counter's."""
    text = "_step,train/step,train/loss,eval/loss\n0,,,9\n1,1,3,\n2,2,2,\n3,,,8\n"
    (batch,) = read(tmp_path, text)
    assert rows(batch)["step"].to_list() == [0, 1, 2, 3]


def test_lightning_rows_stay_apart(tmp_path: Path) -> None:
    """Train, validation and epoch rows are rows of their own; the step loss is the loss."""
    text = (
        "epoch,step,train_loss_epoch,train_loss_step,val_loss\n"
        "0,49,,4.5,\n0,99,,4.25,\n0,99,,,4.0\n0,99,4.4,,\n"
    )
    (batch,) = read(tmp_path, text, "metrics.csv")
    frame = rows(batch)
    assert batch.framework == "lightning"
    assert frame["loss"].to_list() == [4.5, 4.25, None, None]
    assert frame["val_loss"].to_list() == [None, None, 4.0, None]
    assert frame["raw/train_loss_epoch"].to_list() == [None, None, None, 4.4]


def test_place_of_a_row_is_its_line(tmp_path: Path) -> None:
    """line, offset and length span the line without its break, with CRLF too."""
    text = "step,loss\r\n1,2.5\r\n\r\n2,2.25\r\n"
    (batch,) = read(tmp_path, text)
    frame = rows(batch)
    assert frame["line"].to_list() == [2, 4]
    at, size = frame["offset"][1], frame["length"][1]
    assert text.encode()[at : at + size] == b"2,2.25"
    assert batch.account.ignored == {"header": 1, "blank line": 1}


def test_header_in_the_middle_and_torn_end(tmp_path: Path) -> None:
    """A header written again is no row, a cut last line is left out and told."""
    (batch,) = read(tmp_path, "step,loss,lr\n1,2.5,0.1\nstep,loss,lr\n2,2.25,0.1\n3,2.")
    assert rows(batch)["step"].to_list() == [1, 2]
    assert rules(batch) == ["input_breaks_off"]
    assert batch.account.ignored == {"header": 2}
    assert batch.account.unknown == 1


def test_keras_log_counts_epochs(tmp_path: Path) -> None:
    """Without any step the epoch is the axis."""
    (batch,) = read(tmp_path, "epoch,accuracy,loss,val_loss\n0,0.5,2.0,2.5\n1,0.6,1.5,2.25\n")
    frame = rows(batch)
    assert frame["step"].to_list() == [0, 1]
    assert frame["val_loss"].to_list() == [2.5, 2.25]


def test_line_breaks_inside_quotes(tmp_path: Path) -> None:
    """A quoted cell may hold line breaks; the row stands at its first line."""
    text = 'step,note,loss\n1,"two\nlines",2.5\n2,"say ""hi""",2.25\n'
    (batch,) = read(tmp_path, text)
    frame = rows(batch)
    assert frame["loss"].to_list() == [2.5, 2.25]
    assert frame["line"].to_list() == [2, 4]


@given(
    st.lists(
        st.lists(st.text(alphabet='ab1." ;,\n', max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None)
def test_cells_equal_the_standard_reader(table: list[list[str]]) -> None:
    """Whatever is quoted, the cells are those of Python's csv module."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(table)
    header = Header(("x", "y", "z"), ",", b"x,y,z")
    data = b"x,y,z\n" + written.getvalue().encode()
    cells = _cells(Block(data, 0, 1), header, frozenset())
    want = [row for row in table if any(row)]
    got = [["" if cell is None else cell for cell in row] for row in cells.frame.iter_rows()]
    assert [row for row in got if any(row)] == want


def test_chart_of_several_runs(tmp_path: Path) -> None:
    """One batch a run; a run's name may hold ` - `; rows without a point of the run are none."""
    text = (
        '"Step","lr - 3e-4 - train/loss","lr - 3e-4 - train/loss__MIN",'
        '"lr - 3e-4 - train/loss__MAX","b - train/loss","b - train/loss__MIN",'
        '"b - train/loss__MAX"\n'
        '"10","2.5","2.5","2.5","","",""\n"20","2.25","2.25","2.25","3","3","3"\n'
    )
    batches = read(tmp_path, text)
    assert [batch.run for batch in batches] == ["b", "lr - 3e-4"]
    assert rows(batches[0])["step"].to_list() == [20]
    assert rows(batches[1])["loss"].to_list() == [2.5, 2.25]
    assert sum(batch.account.lines for batch in batches) == 3


def test_bucketed_chart_shows_the_extreme(tmp_path: Path) -> None:
    """A spike that only __MAX has is not lost, and the user hears of the buckets."""
    head = '"Step","r - train/loss","r - train/loss__MIN","r - train/loss__MAX"\n'
    text = head + '"25","2","1.9","2.1"\n"50","2","1.9","6.5"\n"75","2","1.9","2.1"\n'
    (batch,) = read(tmp_path, text)
    assert rows(batch)["loss"].to_list() == [2.1, 6.5, 2.1]
    assert rows(batch)["raw/train/loss (drawn)"].to_list() == [2.0, 2.0, 2.0]
    assert rules(batch) == ["bucketed_export"]


def test_chart_over_time_takes_its_steps_from_the_counter(tmp_path: Path) -> None:
    """With a clock as axis, `<run> - _step` is the step."""
    text = (
        '"Relative Time (Process)","a - _step","a - _step__MIN","a - _step__MAX","a - lr"\n'
        '"1.25","7","7","7","0.1"\n"2.5","8","8","8","0.2"\n'
    )
    (batch,) = read(tmp_path, text)
    assert rows(batch)["step"].to_list() == [7, 8]
    assert rows(batch)["lr"].to_list() == [0.1, 0.2]


def test_sampled_export_is_told(tmp_path: Path) -> None:
    """Exactly 500 rows with uneven gaps: the export is a sample."""
    steps = np.cumsum(np.where(np.arange(500) % 7 == 0, 30, 10))
    lines = "".join(f'"{step}","2","2","2"\n' for step in steps)
    text = '"Step","r - train/loss","r - train/loss__MIN","r - train/loss__MAX"\n' + lines
    (batch,) = read(tmp_path, text)
    assert rules(batch) == ["sampled_export"]


@pytest.mark.parametrize(
    "head",
    [
        "Name,State,Notes,User,Tags,Created,Runtime,Sweep,lr,train/loss",
        "run_name,seed,learning_rate,final_train_loss",
    ],
)
def test_table_of_runs_is_no_history(tmp_path: Path, head: str) -> None:
    """One row a run: refused as a time series, with what to export instead."""
    cells = ",".join("1" for _ in head.split(","))
    (batch,) = read(tmp_path, f"{head}\n{cells}\n{cells}\n")
    assert batch.readings is None
    assert rules(batch) == ["not_a_history"]
    assert batch.account.ignored == {"header": 1, "row of a table of runs": 2}


def test_curves_in_cells(tmp_path: Path) -> None:
    """JSON lists in cells are curves, one run a row; the place in the list is the step."""
    text = 'run_id,run_name,loss_curve\nu1,same,"[3.0, 2.5, NaN]"\nu2,same,"[4.0]"\n'
    batches = read(tmp_path, text)
    by_run = {batch.run: batch for batch in batches if batch.readings is not None}
    assert sorted(by_run) == ["u1", "u2"]
    assert rows(by_run["u1"])["step"].to_list() == [0, 1, 2]
    assert rows(by_run["u1"])["loss"].to_list()[:2] == [3.0, 2.5]
    assert sum(batch.account.lines for batch in batches) == 3


def test_tensorboard_download(tmp_path: Path) -> None:
    """The three columns of TensorBoard's page; the tag stands in the file's name."""
    text = "Wall time,Step,Value\n1700000000.0,1,2.5\n1700000001.0,2,2.25\n"
    (batch,) = read(tmp_path, text, "run-exp7-tag-train_loss.csv")
    assert rows(batch)["loss"].to_list() == [2.5, 2.25]
    assert rows(batch)["wall_s"][0] == 1.7e9


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "time,level,message\n1,info,step 5 loss 2\n",
        "1,2,3\n4,5,6\n",
        "",
        "one\ntwo\n",
    ],
)
def test_other_tables_are_left_alone(tmp_path: Path, text: str) -> None:
    """A table without a step and a known metric is nobody's here."""
    path = tmp_path / "x.csv"
    path.write_text(text)
    parser = parser_for(head_of(path))
    assert parser is None or not parser.name.startswith("csv_")


def test_header_names_are_unique() -> None:
    """Columns of one name are told apart."""
    header = header_of(b"step,loss,loss\n")
    assert header is not None
    assert header.names == ("step", "loss", "loss#2")


@given(st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_bytes_behind_a_header(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Nothing in a file can raise, and every line is accounted for."""
    path = tmp_path_factory.mktemp("csv") / "m.csv"
    path.write_bytes(b"step,loss\n1,2.5\n" + data)
    parser = parser_for(head_of(path))
    assert parser is not None
    for batch in parser.parse(path, 0):
        assert_adds_up(batch.account)


@pytest.mark.parametrize("name", ["history.csv", "metrics.csv", "quoted.csv"])
def test_a_row_of_too_many_cells_is_unknown(tmp_path: Path, name: str) -> None:
    """A decimal comma makes two cells of one, also where the last is empty: nobody reads that."""
    note = '"a\nb"' if name == "quoted.csv" else "a"
    lines = [f"1,2.5,0.1,{note}", "2,4,03,0.1,", "3,4,03,,", "4,2.25,,", "5,2,,"]
    batches = read(tmp_path, "\n".join(["_step,train/loss,lr,note", *lines, ""]), name)
    frame = rows(batches[0])
    assert frame["loss"].to_list() == [2.5, 2.25, 2.0]
    assert batches[0].account.unknown == 2
    assert_adds_up(batches[0].account)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("end", ["\n", ""])
def test_numbers_read_at_once_are_those_of_the_text(
    seed: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of numbers, of text, and of both, in many blocks: the same cells and account."""
    made = random.Random(seed)
    odd = ["", "nan", "-Infinity", " 2", "2 ", "true", "x", '"1.5"', '""', "5.", "1e400", "1_0"]
    lines = ["step,loss,note,mixed"]
    for step in range(400):
        mixed = made.choice(odd) if step > 200 and made.random() < 0.1 else repr(made.random())
        lines.append(f"{step},{made.uniform(0, 9)!r},n{step},{mixed}")
        lines += ["", lines[0], "7,8"][: made.choice([0, 0, 0, 0, 3])]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines) + end)
    monkeypatch.setattr(csv_table, "read_blocks", lambda stream: read_blocks(stream, 900))
    at_once = tables.read_table(path)
    monkeypatch.setattr(
        tables, "read_cells", lambda path, header, *, numeric: csv_table.read_cells(path, header)
    )
    as_text = tables.read_table(path)
    assert repr(at_once) == repr(as_text)
    for name, cells in at_once[1].columns.items():
        assert repr(cells.to_list()) == repr(as_text[1].columns[name].to_list())


def test_a_block_without_rows_has_the_same_columns(tmp_path: Path) -> None:
    """A column without a name, and a last block of blank lines only, or of quoted line breaks."""
    header = Header(("", "loss"), ",", b",loss")
    data = (b"1,2\n", b"\n\n", b'"a\nb",2\n')
    made = [_cells(Block(one, 0, 1), header, frozenset()) for one in data]
    assert [cells.frame.columns for cells in made] == [["", "loss"]] * 3


def test_lines_of_a_logger_are_no_chart(tmp_path: Path) -> None:
    """`time,ms - name - INFO - text` has a comma and a ` - ` in each line, and is read as text."""
    log = tmp_path / "train.log"
    lines = [f"2031-04-05 06:07:{n:02d},123 - trainer - INFO - words {n}" for n in range(1, 40)]
    log.write_text("\n".join(lines))
    parser = parser_for(head_of(log))
    assert parser is not None
    assert parser.name == "text"


@pytest.mark.parametrize("header", ["step,name,value", "step,run - loss", "step,loss"])
def test_a_carriage_return_in_the_only_row_is_no_error(header: str, tmp_path: Path) -> None:
    """Such a line is none of a table: whoever reads the file, its lines are accounted for."""
    path = tmp_path / "scalars.csv"
    path.write_bytes(header.encode() + b"\n1\r2,3\x00,4")
    parser = parser_for(head_of(path))
    assert parser is None or list(parser.parse(path, 0))
