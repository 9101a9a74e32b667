"""Numbers that stand at the end of a constant piece of text: where they end, and their values.

Rows of bytes lie under each other; in every row the number begins at the same column and ends at
the first byte of one kind. Eight bytes are looked at at once, in a machine word.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze_parsers.digits import WORD, Bools, Bytes, Ints, Words, eight_digits, word_column

Floats = npt.NDArray[np.float64]

_ONES = np.uint64(0x0101010101010101)
_HIGHEST = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)
_POINT = np.uint64(ord(".") ^ ord("0"))
#: Words that a number is searched in, at most: no double is printed with more characters.
MOST_WORDS = 4
#: Digits behind the point that are read here; with more, or more digits in all, it is a text.
_MOST_DECIMALS = 6
_MOST_CHARS = 14


class Free(Struct, frozen=True):
    """A number of any length. decimals: digits behind the point, -1 where they may vary.

    terminator: the byte that ends it. words: how many of eight bytes it may fill, less the last
    byte.
    """

    decimals: int
    terminator: int
    words: int


def free_number(text: str, terminator: int) -> Free:
    """The number that a teaching line has there.

    >>> free_number("12.5", 32), free_number("-1.5e-05", 44).decimals
    (Free(decimals=1, terminator=32, words=1), -1)
    """
    whole, point, behind = text.partition(".")
    plain = whole.isdigit() and (behind.isdigit() if point else True)
    if plain and len(behind) <= _MOST_DECIMALS and len(text) <= _MOST_CHARS:
        return Free(len(behind), terminator, 1 if len(text) < WORD - 1 else 2)
    return any_number(terminator)


def any_number(terminator: int) -> Free:
    """A number that float() reads, in any form."""
    return Free(-1, terminator, MOST_WORDS)


def lengths_of(rows: Bytes, column: int, free: Free) -> Ints:
    """Bytes before the terminator, row by row; 8 * words where there is none."""
    lengths = _first(word_column(rows, column), free.terminator)
    for number in range(1, free.words):
        further = lengths == WORD * number
        if not further.any():
            break
        more = _first(word_column(rows, column + WORD * number), free.terminator)
        lengths += np.where(further, more, 0)
    return lengths


def _first(words: Words, byte: int) -> Ints:
    """Index of the first such byte in each word; 8 where there is none."""
    odd = words ^ np.uint64(byte * 0x0101010101010101)
    marks = (odd - _ONES) & ~odd & _HIGHEST
    lowest = marks & (~marks + np.uint64(1))
    below = (((lowest >> np.uint64(7)) - np.uint64(1)) & _ONES) * _ONES
    return (below >> np.uint64(56)).view(np.int64)


def values_of(rows: Bytes, column: int, lengths: Ints, free: Free) -> tuple[Floats, Bools]:
    """The numbers, and in which rows one is there as it was taught (free.decimals >= 0)."""
    last = word_column(rows, column) ^ _ZEROS
    shift = (WORD - lengths.view(np.uint64)) << np.uint64(3)  # beyond 63 a shift gives 0
    if free.words == 1:
        high = None
        low = last << shift
    else:
        further = word_column(rows, column + WORD) ^ _ZEROS
        wide = shift + np.uint64(64)
        high = last << wide
        low = (last << shift) | (further << wide) | (last >> (np.uint64(0) - shift))
    fine = lengths > free.decimals + (free.decimals > 0)
    fine &= lengths < WORD * free.words
    if free.decimals:
        low, pointed = _without_point(low, free.decimals)
        fine &= pointed
    mantissas, odd = eight_digits(low)
    if high is not None and bool(high.any()):
        upper, worse = eight_digits(high)
        mantissas += upper * 10 ** (WORD - (free.decimals > 0))
        odd |= worse
    fine &= odd == 0
    values: Floats = mantissas / float(10**free.decimals)
    return values, fine


def _without_point(words: Words, decimals: int) -> tuple[Words, Bools]:
    """Digits moved together, and where a point stood so many digits before the end."""
    place = 8 * (WORD - 1 - decimals)
    pointed: Bools = (words >> np.uint64(place)) & np.uint64(255) == _POINT
    below = np.uint64((1 << place) - 1)
    above = np.uint64((1 << 64) - (1 << place + 8))
    return (words & above) | ((words & below) << np.uint64(8)), pointed


def text_values(data: bytes, starts: Ints, ends: Ints) -> tuple[Floats, Bools]:
    """Numbers of spans of a text (rows, fields), as float() reads them; which rows have all.

    Spans grow along each row and from row to row; a value that is not finite is not taken.
    """
    import pyarrow as pa  # its loading takes as long as all else that a small log needs

    places = np.empty((*starts.shape, 2), dtype=np.int64)
    places[..., 0], places[..., 1] = starts, ends
    offsets = np.append(places.ravel(), ends[-1, -1] if ends.size else 0)
    array = pa.LargeStringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data)
    )
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    numbers = series.gather_every(2).cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    values: Floats = numbers.reshape(starts.shape)
    fine: Bools = np.asarray(np.isfinite(values).all(axis=1))
    return values, fine
