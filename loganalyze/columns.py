"""Columns of frames as numpy's arrays, by way of the bytes that they lie in.

Polars looks at each value of a column with nulls; a run has millions. To read the bytes pyarrow is
loaded, which a short column is not worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_LONG = 10_000  # rows


def given(column: pl.Series) -> npt.NDArray[np.bool_]:
    """Where a column is not null."""
    if not column.null_count():
        return np.ones(len(column), dtype=bool)
    if len(column) < _LONG:
        return column.is_not_null().to_numpy()
    bits, offset = _bits(column)
    told = np.unpackbits(bits, count=offset + len(column), bitorder="little")
    return told[offset:].view(np.bool_)


def where_given(column: pl.Series) -> bytes:
    """The same as bytes, a bit a row, to tell columns apart; empty where nothing is null."""
    if not column.null_count():
        return b""
    whole, rest = divmod(len(column), 8)
    bits, offset = _bits(column) if len(column) >= _LONG else (np.empty(0, np.uint8), 1)
    if offset:
        return np.packbits(given(column), bitorder="little").tobytes()
    last = bytes([int(bits[whole]) & (1 << rest) - 1]) if rest else b""  # there may be anything
    return bits[:whole].tobytes() + last


def _bits(column: pl.Series) -> tuple[npt.NDArray[np.uint8], int]:
    """A bit a row, set where it is not null, and how many stand before the first."""
    bits = column.is_not_null().rechunk().to_arrow()
    return np.frombuffer(bits.buffers()[1], dtype=np.uint8), bits.offset


def in_place(chunk: pl.Series) -> npt.NDArray[Any]:
    """The numbers of a column in one chunk, not to be written to; of a long one not copied.

    Where it is null there may be anything.
    """
    if not chunk.null_count():
        return chunk.to_numpy()
    if len(chunk) < _LONG:
        return chunk.fill_null(0).to_numpy()
    held = chunk.to_arrow()
    numbers = np.frombuffer(held.buffers()[1], dtype=held.type.to_pandas_dtype())
    return numbers[held.offset : held.offset + len(held)]


def numbers(column: pl.Series) -> npt.NDArray[np.float64]:
    """A column as float64 in one row, not to be written to; anything where it is null.

    numpy joins the chunks: what polars would take for it stays taken for a while.
    """
    parts = [in_place(chunk) for chunk in column.cast(pl.Float64).get_chunks()]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])
