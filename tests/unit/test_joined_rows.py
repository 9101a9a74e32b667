"""Rows read by the column and rows read one by one come in the order of their lines."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import frames
from loganalyze_parsers.frames import joined_rows, readings_frame
from polars.testing import assert_frame_equal

from loganalyze.model import LineRef, Reading


def reading(offset: int, **values: float) -> Reading:
    """A row whose line begins at that byte."""
    ref = LineRef(source=0, line=offset // 10 + 1, offset=offset, length=9)
    return Reading(step=offset, ref=ref, values=values)


@given(st.lists(st.integers(0, 400), unique=True))
def test_rows_that_are_told_late_stand_where_their_lines_stand(told: list[int]) -> None:
    """Readers may tell a row only with a later line: alone as well, rows are in order."""
    made = joined_rows([], [reading(at, loss=1.0) for at in told])
    assert (made is None) == (not told)
    assert made is None or made["offset"].to_list() == sorted(told)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400), max_size=6))
def test_few_rows_between_many_equal_all_rows_sorted(many: set[int], few: set[int]) -> None:
    """Before, between and behind them; each with columns that the others do not have."""
    bulk = readings_frame([reading(20 * at, loss=at / 3, lr=0.5) for at in sorted(many)])
    single = [reading(20 * at + 10, loss=-1.0, epoch=float(at)) for at in sorted(few)]
    if bulk is None:
        return
    made = joined_rows([bulk], single)
    rows = [one for one in (bulk, readings_frame(single)) if one is not None]
    expected = pl.concat(rows, how="diagonal").sort("offset")
    assert made is not None
    assert_frame_equal(made, expected)
    for few_enough in (0, 10**9):  # always by pieces, never by pieces
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "_FEW", few_enough)
            again = joined_rows([bulk], single)
        assert again is not None
        assert_frame_equal(again, expected)
