"""Reads lines of one layout all at once: their digits times a matrix of powers of ten.

Trainers print millions of lines that differ in nothing but digits. Lines of equal length are laid
under each other as a byte matrix; a template, learnt from one of them, says which columns must
equal its own bytes and which are digits of which field. The digit columns as a matrix, times the
place values, give every field's integer mantissa; one division by a power of ten gives the number
that float() would give, to the last bit, because mantissas stay below 2**53 and powers at or below
10**22 (both exact in a double).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SIMPLE = re.compile(r"(\d+)(?:\.(\d+))?(?:[eE]([+-])(\d\d))?")
_MAX_DIGITS = 15
_MAX_POWER = 22
_POWERS: Floats = np.array([float(10**k) for k in range(_MAX_POWER + 1)])
#: Layouts learnt for one length of line; lines beyond that go the slow way.
_MAX_LAYOUTS = 200
#: Lines in a row that teach nothing before a length is given up.
_MAX_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Slot:
    """One number in a layout. span: its columns [start, end) in the line."""

    name: str
    factor: float
    start: int
    text: str  # as the teaching line has it


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a teaching line says of its layout: the numbers in it, and what is constant."""

    slots: tuple[Slot, ...]
    constants: dict[str, int | None] = field(default_factory=dict)  # e.g. the rank in the prefix


@dataclass(frozen=True, slots=True)
class Exponents:
    """Columns of the exponents of some fields: sign, tens, units; and the fields' indices."""

    fields: Ints
    signs: Ints
    tens: Ints
    units: Ints


@dataclass(frozen=True, slots=True)
class Layout:
    """A lesson in the form that reads many lines."""

    lesson: Lesson
    expected: Words  # the constant bytes, packed in words
    mask: Words  # which bits of them must be equal
    digits: Ints  # columns that must be digits
    places: Floats  # (digits, fields): place value of each digit column in its field
    decimals: Ints  # (fields,) digits behind the point
    exponents: Exponents


def simple_number(text: str) -> bool:
    """Whether a number's text can be read by layout: unsigned, decimal, at most 15 digits.

    >>> [simple_number(t) for t in ("12.50", "4.5E+00", "nan", "-1.0", "1,5")]
    [True, True, False, False, False]
    """
    match = _SIMPLE.fullmatch(text)
    return match is not None and len(match[1]) + len(match[2] or "") <= _MAX_DIGITS


def layout_of(line: bytes, lesson: Lesson) -> Layout:
    """The layout that a teaching line and its lesson describe."""
    constant = np.ones(len(line), dtype=bool)
    digits: list[int] = []
    entries: list[tuple[int, int, float]] = []  # digit index, field, place value
    decimals: list[int] = []
    exponents: list[tuple[int, int]] = []  # field, column of the sign
    for index, slot in enumerate(lesson.slots):
        match = _SIMPLE.fullmatch(slot.text)
        assert match is not None
        mantissa = (match[1] or "") + (match[2] or "")
        columns = [slot.start + k for k, c in enumerate(slot.text[: match.end(2) if match[2]
                   else match.end(1)]) if c != "."]  # fmt: skip
        for place, column in enumerate(columns):
            entries.append((len(digits), index, float(10 ** (len(mantissa) - 1 - place))))
            digits.append(column)
        decimals.append(len(match[2] or ""))
        if match[3]:
            exponents.append((index, slot.start + match.start(3)))
            constant[slot.start + match.start(3) : slot.start + match.end(4)] = False
    constant[digits] = False
    places = np.zeros((len(digits), len(lesson.slots)))
    for row, index, value in entries:
        places[row, index] = value
    return Layout(
        lesson=lesson,
        expected=_words(np.frombuffer(line, dtype=np.uint8)),
        mask=_words(np.where(constant, 255, 0).astype(np.uint8)),
        digits=np.array(digits, dtype=np.int64),
        places=places,
        decimals=np.array(decimals, dtype=np.int64),
        exponents=_exponents(exponents),
    )


def _exponents(found: Sequence[tuple[int, int]]) -> Exponents:
    fields = np.array([index for index, _ in found], dtype=np.int64)
    signs = np.array([column for _, column in found], dtype=np.int64)
    return Exponents(fields, signs, signs + 1, signs + 2)


def _words(row: Bytes) -> Words:
    padded = np.zeros(-(-len(row) // 8) * 8, dtype=np.uint8)
    padded[: len(row)] = row
    return padded.view(np.uint64)


def read_rows(rows: Bytes, layout: Layout) -> tuple[Bools, Floats]:
    """Which rows have the layout, and the numbers of those that have: (rows, fields).

    rows: (n, width) bytes, width a multiple of 8.
    """
    fits = ~((rows.view(np.uint64) ^ layout.expected) & layout.mask).any(axis=1)
    chosen = rows[fits]
    digits = chosen[:, layout.digits] - np.uint8(48)
    fine = (digits <= 9).all(axis=1)
    values, powers_fine = _scaled(digits.astype(np.float64) @ layout.places, chosen, layout)
    fine &= powers_fine
    fits[np.flatnonzero(fits)[~fine]] = False
    factors = np.array([slot.factor for slot in layout.lesson.slots])
    return fits, values[fine] * factors


def _scaled(mantissas: Floats, rows: Bytes, layout: Layout) -> tuple[Floats, Bools]:
    """Mantissas brought to their power of ten, and which rows had a readable exponent."""
    values = mantissas / _POWERS[layout.decimals]
    at = layout.exponents
    fine = np.ones(len(rows), dtype=bool)
    if not len(at.fields):
        return values, fine
    signs = rows[:, at.signs]
    tens, units = rows[:, at.tens].astype(np.int64) - 48, rows[:, at.units].astype(np.int64) - 48
    negative = signs == ord("-")
    readable = (negative | (signs == ord("+"))) & (tens >= 0) & (tens <= 9)
    readable &= (units >= 0) & (units <= 9)
    power = np.where(negative, -1, 1) * (tens * 10 + units) - layout.decimals[at.fields]
    readable &= np.abs(power) <= _MAX_POWER
    power = np.clip(power, -_MAX_POWER, _MAX_POWER)
    base = mantissas[:, at.fields]
    values[:, at.fields] = np.where(
        power < 0, base / _POWERS[np.maximum(-power, 0)], base * _POWERS[np.maximum(power, 0)]
    )
    return values, readable.all(axis=1)


Teacher = Callable[[bytes], Lesson | None]


@dataclass(slots=True)
class Found:
    """Lines that one layout read: their indices, and the values (lines, fields)."""

    lesson: Lesson
    lines: Ints
    values: Floats


class LayoutReader:
    """Keeps the layouts learnt so far, by length of line, and reads blocks with them."""

    def __init__(self, teacher: Teacher) -> None:
        """teacher: what one line says of its layout; None if it must go the slow way."""
        self._teacher = teacher
        self._layouts: dict[int, list[Layout]] = {}

    def read(self, data: Bytes, starts: Ints, ends: Ints, candidates: Ints) -> list[Found]:
        """Read the candidate lines (indices into starts, ends) of a block that have a layout.

        data: the block's bytes, with at least 8 bytes of padding behind the last line.
        """
        found: list[Found] = []
        lengths = (ends - starts)[candidates]
        for length in np.unique(lengths).tolist():
            if length > 0:
                lines = candidates[lengths == length]
                found.extend(self._one_length(data, starts, lines, int(length)))
        return found

    def _one_length(self, data: Bytes, starts: Ints, lines: Ints, length: int) -> list[Found]:
        width = -(-length // 8) * 8
        windows = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
        rows = windows[starts[lines]].view(np.uint8).reshape(len(lines), width)
        layouts = self._layouts.setdefault(length, [])
        found: list[Found] = []
        for layout in layouts:
            lines, rows = self._apply(layout, lines, rows, found)
        failures = 0
        while len(lines) and len(layouts) < _MAX_LAYOUTS and failures < _MAX_FAILURES:
            lesson = self._teacher(rows[0, :length].tobytes())
            if lesson is None:
                failures += 1
                lines, rows = lines[1:], rows[1:]
                continue
            layout = layout_of(rows[0, :length].tobytes(), lesson)
            before = len(lines)
            lines, rows = self._apply(layout, lines, rows, found)
            if len(lines) == before:  # the layout does not read its own teacher
                failures += 1
                lines, rows = lines[1:], rows[1:]
            else:
                layouts.append(layout)
        layouts.sort(key=lambda one: -sum(len(f.lines) for f in found if f.lesson is one.lesson))
        return found

    def _apply(
        self, layout: Layout, lines: Ints, rows: Bytes, found: list[Found]
    ) -> tuple[Ints, Bytes]:
        if not len(lines):
            return lines, rows
        fits, values = read_rows(rows, layout)
        if fits.any():
            found.append(Found(layout.lesson, lines[fits], values))
            return lines[~fits], rows[~fits]
        return lines, rows
