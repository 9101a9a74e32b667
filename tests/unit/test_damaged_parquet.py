"""Damaged Parquet files: one clear message that names the file, and nothing else is printed."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from loganalyze_parsers import history_parquet
from loganalyze_parsers.history_parquet import PARSER
from pyarrow import parquet


def table() -> pl.DataFrame:
    """A small history with a column of text."""
    steps = range(2000)
    return pl.DataFrame(
        {
            "step": list(steps),
            "train.loss": [3 - step / 2000 for step in steps],
            "name": [f"x{step}" for step in steps],
        }
    )


def test_damage_anywhere_is_told_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Bytes changed in the pages or in the footer: a problem, or numbers; never a panic's text."""
    path = tmp_path / "history.parquet"
    table().write_parquet(path)
    data = path.read_bytes()
    dice = random.Random(3)
    told = 0
    for turn in range(120):
        hurt = bytearray(data)
        first = 4 if turn % 2 else len(hurt) - 600
        for _ in range(dice.choice([1, 3, 20])):
            hurt[dice.randrange(first, len(hurt))] = dice.randrange(256)
        path.write_bytes(hurt)
        (batch,) = PARSER.parse(path, 0)
        unreadable = [p.message for p in batch.problems if p.rule == "unreadable"]
        assert batch.readings is not None or batch.problems
        assert all(str(path) in message and "\n" not in message for message in unreadable)
        told += len(unreadable)
    assert told > 60
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_a_torn_file_is_told(tmp_path: Path) -> None:
    """Half a file has no footer."""
    path = tmp_path / "history.parquet"
    table().write_parquet(path)
    path.write_bytes(path.read_bytes()[:2000])
    (batch,) = PARSER.parse(path, 0)
    assert [p.rule for p in batch.problems] == ["unreadable"]
    assert "not readable as Parquet" in batch.problems[0].message


def test_all_sorts_of_numbers_are_read(tmp_path: Path) -> None:
    """Short floats, whole numbers, text; structs, lists, dates and flags are no numbers."""
    path = tmp_path / "history.parquet"
    made = pa.table(
        {
            "step": pa.array([1, 2], pa.int32()),
            "train.loss": pa.array([2.5, float("nan")], pa.float16()),
            "grad_norm": pa.array(["0.5", "Infinity"]),
            "lr": pa.array([1, 2], pa.decimal128(9, 3)),
            "flag": pa.array([True, False]),
            "list": pa.array([[1.0], [2.0]]),
            "train": pa.array([{"loss": 9.0}, {"loss": 9.0}]),
        }
    )
    parquet.write_table(made, path)
    (batch,) = PARSER.parse(path, 0)
    assert batch.readings is not None
    assert batch.readings["loss"].to_list()[0] == 2.5
    assert batch.readings["grad_norm"].to_list() == [0.5, float("inf")]
    assert batch.readings["lr"].to_list() == [1.0, 2.0]
    assert not {"raw/flag", "raw/list", "raw/train"} & set(batch.readings.columns)


def test_as_many_columns_as_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones."""
    monkeypatch.setattr(history_parquet, "_MOST_COLUMNS", 2)
    path = tmp_path / "history.parquet"
    table().write_parquet(path)
    (batch,) = PARSER.parse(path, 0)
    assert batch.readings is not None
    assert "loss" in batch.readings.columns
