"""Decimal numbers of many rows at once: eight characters of each in one machine word.

A number's characters are loaded as little-endian words, its digits moved next to each other, and
three multiplications add up pairs, then fours, then eights. All in integers, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Characters that one word holds.
WORD = 8
_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)  # added to a byte above 9 it sets the highest bit
_HIGHEST = np.uint64(0x8080808080808080)
#: Factor, shift and mask of the three steps: 10 * 2**8 + 1, 100 * 2**16 + 1, 10000 * 2**32 + 1.
_STEPS = (
    (np.uint64(2561), np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(6553601), np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(42949672960001), np.uint64(32), np.uint64(0x00000000FFFFFFFF)),
)


class Piece(Struct, frozen=True):
    """Up to eight characters of a number from `column` on: digits, and at most one point."""

    column: int
    text: str

    @property
    def digits(self) -> int:
        """How many digits it has."""
        return len(self.text) - self.text.count(".")


class Pieces(Struct, frozen=True):
    """Pieces in the form that reads many rows; masks and shifts of shape (pieces, 1).

    high: the digits before a point, low: those behind it, or all where there is no point.
    """

    columns: tuple[int, ...]
    high: Words
    high_shift: Words
    low: Words
    low_shift: Words


def cut(start: int, text: str) -> list[Piece]:
    """The pieces of a number that begins at column `start`, the last one full.

    >>> [piece.text for piece in cut(0, "123456.7890")]
    ['123', '456.7890']
    """
    ends = range(len(text), 0, -WORD)
    pieces = [Piece(start + max(end - WORD, 0), text[max(end - WORD, 0) : end]) for end in ends]
    return pieces[::-1]


def pieces_of(pieces: Sequence[Piece]) -> Pieces:
    """Masks and shifts that bring the digits of each piece to the upper end of its word."""
    high, high_shift, low, low_shift = [], [], [], []
    for piece in pieces:
        size = len(piece.text)
        point = piece.text.find(".")
        high.append(_mask(0, max(point, 0)))
        high_shift.append(8 * (WORD + 1 - size) if point > 0 else 0)
        low.append(_mask(point + 1, size))
        low_shift.append(8 * (WORD - size))
    columns = tuple(piece.column for piece in pieces)
    return Pieces(columns, _tall(high), _tall(high_shift), _tall(low), _tall(low_shift))


def _mask(first: int, end: int) -> int:
    return sum(0xFF << 8 * place for place in range(first, end))


def _tall(values: Sequence[int]) -> Words:
    return np.array(values, dtype=np.uint64).reshape(-1, 1)


def read_pieces(rows: Bytes, pieces: Pieces) -> tuple[Ints, Bools]:
    """Integers (pieces, rows), and which rows had a digit wherever there should be one.

    rows: (n, width) contiguous bytes; width reaches eight bytes beyond the last column.
    """
    words = np.empty((len(pieces.columns), len(rows)), dtype="<u8")
    for word, column in zip(words, pieces.columns, strict=True):
        word[:] = word_column(rows, column)
    words ^= _ZEROS
    digits = words & pieces.low
    digits <<= pieces.low_shift
    words &= pieces.high
    words <<= pieces.high_shift
    digits |= words
    integers, odd = eight_digits(digits)
    return integers, np.bitwise_or.reduce(odd, axis=0) == 0


def word_column(rows: Bytes, column: int) -> Words:
    """Eight bytes of each row from a column on, as one little-endian word (a view)."""
    count, width = rows.shape
    return np.ndarray((count,), dtype="<u8", buffer=rows, offset=column, strides=(width,))


def eight_digits(digits: Words) -> tuple[Ints, Words]:
    """Integers of eight digits each (0 to 9, the first lowest), and what is not 0 where one is not.

    Writes into `digits`.

    >>> eight_digits(np.frombuffer(bytes([0, 0, 0, 0, 0, 1, 2, 3]), dtype="<u8").copy())[0].tolist()
    [123]
    """
    odd = digits + _ABOVE_NINE
    odd |= digits
    odd &= _HIGHEST
    for factor, shift, mask in _STEPS:
        digits *= factor
        digits >>= shift
        digits &= mask
    return digits.view(np.int64), odd
