"""Reads lines of one layout all at once: columns of bytes instead of one line after the other.

Trainers print millions of lines that differ in nothing but digits. Lines of equal length are laid
under each other as a byte matrix; a layout, learnt from one of them, says which bytes must be
equal to its own and which are digits of which number. The digits give every number's mantissa as
an integer; one division or multiplication by a power of ten gives the number that float() would
give, to the last bit, because mantissas stay below 2**53 and powers at or below 10**22 (both
exact in a double).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.digits import (
    WORD,
    Bools,
    Bytes,
    Ints,
    Piece,
    Pieces,
    Words,
    cut,
    pieces_of,
    read_pieces,
)

Floats = npt.NDArray[np.float64]

_SIMPLE = lazy.pattern(r"(\d+(?:\.\d+)?)(?:[eE]([+-])(\d\d))?")
_MAX_DIGITS = 15
_MAX_POWER = 22
_POWERS: Floats = np.array([float(10**k) for k in range(_MAX_POWER + 1)])


class Slot(Struct, frozen=True):
    """One number in a layout, from column `start` on."""

    name: str
    factor: float
    start: int
    text: str  # as the teaching line has it
    fixed: bool = False  # whether it always has so many characters
    varies: bool = False  # whether it may be printed in any form


class Exponents(Struct, frozen=True):
    """Exponents of some fields: the fields' indices, and the columns of the signs."""

    fields: Ints
    signs: Ints


class Layout(Struct, frozen=True):
    """A lesson in the form that reads many lines.

    pieces: the last piece of each field, then pieces before those (`more`: index, field and
    place value), then one for each exponent.
    """

    width: int  # bytes of a row: the line and at least a word more
    expected: Words  # the constant bytes, packed in words
    mask: Words  # which bits of them must be equal
    pieces: Pieces
    more: tuple[tuple[int, int, int], ...]
    scale: Floats  # (fields, 1) power of ten of the digits behind the point
    decimals: Ints  # (fields,) number of those digits
    exponents: Exponents
    factors: Floats | None  # (fields, 1); None if all are 1


def simple_number(text: str) -> bool:
    """Whether a number's text can be read by layout: unsigned, decimal, at most 15 digits.

    >>> [simple_number(t) for t in ("12.50", "4.5E+00", "nan", "-1.0", "1,5")]
    [True, True, False, False, False]
    """
    match = _SIMPLE.fullmatch(text)
    return match is not None and len(match[1].replace(".", "")) <= _MAX_DIGITS


def layout_of(line: bytes, slots: Sequence[Slot], room: int = WORD) -> Layout:
    """The layout that a teaching line (or a part of one) and its numbers describe.

    room: bytes of a row behind the line, at least a word.
    """
    constant = np.full(len(line), 255, dtype=np.uint8)
    last: list[Piece] = []
    before: list[tuple[Piece, int, int]] = []
    exponents: list[tuple[int, int]] = []  # field, column of the sign
    decimals: list[int] = []
    for index, slot in enumerate(slots):
        match = _SIMPLE.fullmatch(slot.text)
        assert match is not None
        place = 1
        for number, piece in enumerate(reversed(cut(slot.start, match[1]))):
            if number:
                before.append((piece, index, place))
            else:
                last.append(piece)
            place *= 10**piece.digits
        varying = [slot.start + k for k, c in enumerate(match[1]) if c != "."]
        decimals.append(len(match[1].partition(".")[2]))
        if match[2]:
            sign = slot.start + match.start(2)
            exponents.append((index, sign))
            varying += [sign, sign + 1, sign + 2]
        constant[varying] = 0
    width = -(-len(line) // WORD) * WORD + room
    mask = _words(constant, width)
    factors = np.array([slot.factor for slot in slots]).reshape(-1, 1)
    ends = [Piece(sign + 1, "00") for _, sign in exponents]
    return Layout(
        width=width,
        expected=_words(np.frombuffer(line, dtype=np.uint8), width) & mask,
        mask=mask,
        pieces=pieces_of([*last, *(piece for piece, _, _ in before), *ends]),
        more=tuple((len(last) + k, index, place) for k, (_, index, place) in enumerate(before)),
        scale=_POWERS[decimals].reshape(-1, 1),
        decimals=np.array(decimals, dtype=np.int64),
        exponents=Exponents(*(np.array([e[k] for e in exponents], dtype=np.int64) for k in (0, 1))),
        factors=None if bool((factors == 1.0).all()) else factors,
    )


def _words(row: Bytes, width: int) -> Words:
    padded = np.zeros(width, dtype=np.uint8)
    padded[: len(row)] = row
    return padded.view(np.uint64)


def agrees(rows: Bytes, layout: Layout) -> Bools:
    """Which rows have the constant bytes of the layout: (n, layout.width) contiguous bytes."""
    words = rows.view(np.uint64) & layout.mask
    words ^= layout.expected
    if not np.bitwise_or.reduce(words, axis=None):  # far cheaper than row by row, and the rule
        return np.ones(len(rows), dtype=bool)
    fits: Bools = np.bitwise_or.reduce(words, axis=1) == 0
    return fits


def fixed_values(rows: Bytes, layout: Layout) -> tuple[Floats, Bools]:
    """Numbers of rows that agree (fields, rows), and which rows have digits where they should."""
    integers, fine = read_pieces(rows, layout.pieces)
    values, powers_fine = _scaled(integers, rows, layout)
    return values, fine & powers_fine


def _scaled(integers: Ints, rows: Bytes, layout: Layout) -> tuple[Floats, Bools]:
    """Numbers of the fields, and which rows had readable exponents."""
    mantissas = integers[: len(layout.decimals)]
    for index, number, place in layout.more:
        mantissas[number] += integers[index] * place
    values = mantissas / layout.scale
    fine = np.ones(len(rows), dtype=bool)
    at = layout.exponents
    if len(at.fields):
        base = mantissas[at.fields].astype(np.float64)
        signs = rows[:, at.signs].T
        negative = signs == ord("-")
        size = integers[len(integers) - len(at.fields) :]
        power = np.where(negative, -size, size) - layout.decimals[at.fields].reshape(-1, 1)
        readable = (negative | (signs == ord("+"))) & (np.abs(power) <= _MAX_POWER)
        fine = readable.all(axis=0)
        down = base / _POWERS[np.clip(-power, 0, _MAX_POWER)]
        if bool((power > 0).any()):
            up = base * _POWERS[np.clip(power, 0, _MAX_POWER)]
            down = np.where(power > 0, up, down)
        values[at.fields] = down
    if layout.factors is not None:
        values *= layout.factors
    return values, fine
