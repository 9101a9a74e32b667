"""Many history rows at once: the usual layout of their items, decoded side by side with numpy.

The first item of all rows is taken in one step, then the second, and so on. The usual item is

    0a len | 12 (or 0a) len key | 82 01 len text          every length below 128

A row with any other item (a long text, a nested key, a typed value) is left to the slow way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_ITEM, _STEP, _KEY, _NESTED = 0x0A, 0x12, 0x0A, 0x12
_SLACK = 300  # a torn item points at most this far behind the end
_VARINT_BYTES = 10


class Items(Struct, frozen=True):
    """Items of many rows. row, key: indices per item; value: NaN where `is_text` (no number).

    at, size: where the text of each value stands in `data`. odd: rows that were left out.
    step: the row's own counter by row, where `has_step`.
    """

    data: bytes
    row: IntArray
    keys: list[bytes]
    key: IntArray
    value: FloatArray
    is_text: BoolArray
    at: IntArray
    size: IntArray
    odd: BoolArray
    step: IntArray
    has_step: BoolArray


def decode(bodies: Sequence[bytes]) -> Items:
    """Items of all rows that have the usual layout only; rows are numbered from 0."""
    data = b"".join(bodies)
    cells = np.zeros(len(data) + _SLACK, dtype=np.uint8)
    cells[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    end = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    walk = _Walk(cells, end)
    walk.run(np.concatenate(([0], end[:-1])))
    row, key_at, key_size, at, size = walk.found()
    kept = ~walk.odd[row]
    row, key_at, key_size, at, size = (part[kept] for part in (row, key_at, key_size, at, size))
    keys, key = _grouped(cells, key_at, key_size)
    value, is_text = _numbers(cells, at, size)
    return Items(
        data, row, keys, key, value, is_text, at, size, walk.odd, walk.step,
        walk.has_step & ~walk.odd,
    )  # fmt: skip


class _Walk:
    """Goes through the items of all rows in parallel."""

    def __init__(self, cells: Bytes, end: IntArray) -> None:
        self._cells = cells
        self._end = end
        self._found: list[tuple[IntArray, IntArray, IntArray, IntArray, IntArray]] = []
        self.odd = np.zeros(len(end), dtype=np.bool_)
        self.step = np.zeros(len(end), dtype=np.int64)
        self.has_step = np.zeros(len(end), dtype=np.bool_)

    def run(self, at: IntArray) -> None:
        """Take item after item, until every row is at its end or odd."""
        row = np.flatnonzero(at < self._end)
        at = at[row]
        while len(row):
            cells, end = self._cells, self._end[row]
            tag, size = cells[at], cells[at + 1].astype(np.int64)
            start = at + 2
            stop = start + size
            inside = (size < 0x80) & (stop <= end)
            is_item = inside & (tag == _ITEM) & self._items(row, start, stop)
            is_step = inside & (tag == _STEP)
            is_step[is_step] = self._steps(row[is_step], start[is_step], stop[is_step])
            good = is_item | is_step
            self.odd[row[~good]] = True
            more = good & (stop < end)
            row, at = row[more], stop[more]

    def _items(self, row: IntArray, start: IntArray, stop: IntArray) -> BoolArray:
        """Note the items of the usual layout; which those are."""
        cells = self._cells
        tag, size = cells[start], cells[start + 1].astype(np.int64)
        middle = start + 2 + size
        text = middle + 3
        usual: BoolArray = (tag == _NESTED) | (tag == _KEY)
        usual &= (size < 0x80) & (cells[middle] == 0x82) & (cells[middle + 1] == 0x01)
        length = cells[middle + 2].astype(np.int64)
        usual &= (length < 0x80) & (text + length == stop)
        part = np.flatnonzero(usual)
        self._found.append((row[part], start[part] + 2, size[part], text[part], length[part]))
        return usual

    def _steps(self, row: IntArray, start: IntArray, stop: IntArray) -> BoolArray:
        """Take HistoryStep { num 1 }; an empty one is step 0."""
        cells = self._cells
        value = np.zeros(len(row), dtype=np.uint64)
        at = start + 1
        empty = start == stop
        open_ = ~empty & (cells[start] == 0x08)
        good: BoolArray = empty | open_
        for turn in range(_VARINT_BYTES):
            byte = cells[at]
            part = (byte & 0x7F).astype(np.uint64) << np.uint64(7 * turn)
            value = np.where(open_, value | part, value)
            at = np.where(open_, at + 1, at)
            open_ = open_ & (byte >= 0x80)
            if not open_.any():
                break
        good &= empty | (at == stop)
        self.step[row] = value.view(np.int64)
        self.has_step[row] = good
        return good

    def found(self) -> tuple[IntArray, ...]:
        """Row, place and size of the key, place and size of the value, by item."""
        if not self._found:
            return tuple(np.zeros(0, dtype=np.int64) for _ in range(5))
        return tuple(np.concatenate(parts) for parts in zip(*self._found, strict=True))


def _spread(at: IntArray, size: IntArray) -> IntArray:
    """Places of all bytes of all spans, one span after the other."""
    behind = np.cumsum(size)
    first = np.repeat(at - (behind - size), size)
    return first + np.arange(int(behind[-1]) if len(behind) else 0)


def _strings(cells: Bytes, at: IntArray, size: IntArray) -> pl.Series:
    """The spans as a column of bytes."""
    import pyarrow as pa  # loaded where it is needed: it takes a while

    offsets = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    packed = cells[_spread(at, size)]
    array = pa.Array.from_buffers(
        pa.large_binary(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(packed)]
    )
    made = pl.from_arrow(array)
    assert isinstance(made, pl.Series)
    return made


def _grouped(cells: Bytes, at: IntArray, size: IntArray) -> tuple[list[bytes], IntArray]:
    """Distinct keys, and the index of each item's."""
    if not len(at):
        return [], np.zeros(0, dtype=np.int64)
    column = _strings(cells, at, size)
    distinct = column.unique(maintain_order=True)
    index = pl.DataFrame({"key": distinct}).with_row_index("at")
    found = pl.DataFrame({"key": column}).join(index, on="key", maintain_order="left")
    return distinct.to_list(), found["at"].to_numpy().astype(np.int64)


def _numbers(cells: Bytes, at: IntArray, size: IntArray) -> tuple[FloatArray, BoolArray]:
    """Numbers of JSON texts, and which texts are none (words in quotes, objects, true)."""
    if not len(at):
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    first = cells[at]
    plain = (first < 0x80) & (first != ord('"')) & (first != ord("{")) & (size > 0)
    column = _strings(cells, at[plain], size[plain])
    made = column.cast(pl.String, strict=False).cast(pl.Float64, strict=False)
    value = np.full(len(at), np.nan)
    is_text = np.ones(len(at), dtype=np.bool_)
    value[plain] = made.fill_null(np.nan).to_numpy()
    is_text[plain] = made.is_null().to_numpy()
    return value, is_text
