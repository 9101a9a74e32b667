"""Columns are read from their bytes as polars itself reads them."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from loganalyze import columns
from loganalyze.columns import given, in_place, numbers, where_given
from loganalyze.segments import integers


@pytest.fixture(params=[0, 10_000], autouse=True)
def long(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column is long, or none is."""
    monkeypatch.setattr(columns, "_LONG", request.param)


def column_of(seed: int, kind: type[pl.DataType]) -> pl.Series:
    """Numbers with holes, in one to three chunks, the first of them cut out of a longer one."""
    made = random.Random(seed)
    holes = made.choice([0.0, 0.1, 0.9, 1.0])
    parts = []
    for _ in range(made.randint(1, 3)):
        size = made.randint(0, 40)
        values = [None if made.random() < holes else made.randint(-300, 300) for _ in range(size)]
        whole = pl.Series("a", values, dtype=kind)
        parts.append(whole[made.randint(0, 9) :])
    return pl.concat(parts, rechunk=False)


@pytest.mark.parametrize("kind", [pl.Float64, pl.Int64, pl.Int32])
@pytest.mark.parametrize("seed", range(40))
def test_given_as_polars_says(seed: int, kind: type[pl.DataType]) -> None:
    """True where a column is not null, whatever its chunks."""
    column = column_of(seed, kind)
    assert given(column).tolist() == [value is not None for value in column.to_list()]


@pytest.mark.parametrize("seed", range(40))
def test_columns_told_in_the_same_rows_have_the_same_bytes(seed: int) -> None:
    """Whatever their numbers and chunks; the bytes of others differ, and none stand for all."""
    column = column_of(seed, pl.Float64)
    other = column_of(seed + 1, pl.Float64).head(len(column))
    joined = (column * 2.0).rechunk()
    assert where_given(joined) == where_given(column)
    assert (where_given(column) == b"") == (column.null_count() == 0)
    if len(other) == len(column):
        alike = given(other).tolist() == given(column).tolist()
        assert (where_given(other) == where_given(column)) == alike


@pytest.mark.parametrize("kind", [pl.Float64, pl.Int64, pl.Int32])
@pytest.mark.parametrize("seed", range(40))
def test_numbers_in_place_where_they_are_given(seed: int, kind: type[pl.DataType]) -> None:
    """The numbers of one chunk; nothing is promised where it is null."""
    column = column_of(seed, kind).rechunk()
    numbers = in_place(column)
    assert len(numbers) == len(column)
    assert numbers[given(column)].tolist() == column.drop_nulls().to_list()


@pytest.mark.parametrize("kind", [pl.Float64, pl.Int64, pl.Int32])
@pytest.mark.parametrize("seed", range(40))
def test_numbers_of_all_chunks_in_one_row(seed: int, kind: type[pl.DataType]) -> None:
    """Every number as float64 at its row; nothing is promised where it is null."""
    column = column_of(seed, kind)
    made = numbers(column)
    assert (made.dtype, len(made)) == (np.float64, len(column))
    assert made[given(column)].tolist() == column.drop_nulls().to_list()


@pytest.mark.parametrize("seed", range(40))
def test_integers_with_their_holes_filled(seed: int) -> None:
    """Each number as it is, -7 for null; of all nulls -1 throughout."""
    column = column_of(seed, pl.Int64)
    empty = len(column) == column.null_count()
    wanted = [-1] * len(column) if empty else column.fill_null(-7).to_list()
    assert integers(column, -7).tolist() == wanted


def test_numbers_in_place_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The array of a long chunk lies where the column lies."""
    monkeypatch.setattr(columns, "_LONG", 0)
    column = pl.Series([1.0, None, 3.0])
    assert np.shares_memory(in_place(column), in_place(column))
