"""Reads lines of one layout all at once: columns of bytes instead of one line after the other.

Trainers print millions of lines that differ in nothing but digits. Lines of equal length are laid
under each other as a byte matrix; a layout, learnt from one of them, says which bytes must be
equal to its own and which are digits of which number. The digits give every number's mantissa as
an integer; one division or multiplication by a power of ten gives the number that float() would
give, to the last bit, because mantissas stay below 2**53 and powers at or below 10**22 (both
exact in a double).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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

_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(?:[eE]([+-])(\d\d))?")
_MAX_DIGITS = 15
_MAX_POWER = 22
_POWERS: Floats = np.array([float(10**k) for k in range(_MAX_POWER + 1)])
#: Layouts learnt for one length of line; lines beyond that go the slow way.
_MAX_LAYOUTS = 200
#: Lines in a row that teach nothing before a length is given up.
_MAX_FAILURES = 20
#: Rows read at once: their words and numbers stay in a core's own cache.
_ROWS = 2048
#: Words that are compared before whole rows are, where a length has several layouts.
_PROBES = 4


@dataclass(frozen=True, slots=True)
class Slot:
    """One number in a layout, from column `start` on."""

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
    """Exponents of some fields: the fields' indices, and the columns of the signs."""

    fields: Ints
    signs: Ints


@dataclass(frozen=True, slots=True)
class Layout:
    """A lesson in the form that reads many lines.

    pieces: the last piece of each field, then pieces before those (`more`: index, field and
    place value), then one for each exponent.
    """

    lesson: Lesson
    width: int  # bytes of a row: the line and a word more
    expected: Words  # the constant bytes, packed in words
    mask: Words  # which bits of them must be equal
    probes: tuple[int, ...]
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


def layout_of(line: bytes, lesson: Lesson) -> Layout:
    """The layout that a teaching line and its lesson describe."""
    constant = np.full(len(line), 255, dtype=np.uint8)
    last: list[Piece] = []
    before: list[tuple[Piece, int, int]] = []
    exponents: list[tuple[int, int]] = []  # field, column of the sign
    decimals: list[int] = []
    for index, slot in enumerate(lesson.slots):
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
    mask = _words(constant)
    factors = np.array([slot.factor for slot in lesson.slots]).reshape(-1, 1)
    ends = [Piece(sign + 1, "00") for _, sign in exponents]
    return Layout(
        lesson=lesson,
        width=row_width(len(line)),
        expected=_words(np.frombuffer(line, dtype=np.uint8)) & mask,
        mask=mask,
        probes=_probes(mask),
        pieces=pieces_of([*last, *(piece for piece, _, _ in before), *ends]),
        more=tuple((len(last) + k, index, place) for k, (_, index, place) in enumerate(before)),
        scale=_POWERS[decimals].reshape(-1, 1),
        decimals=np.array(decimals, dtype=np.int64),
        exponents=Exponents(*(np.array([e[k] for e in exponents], dtype=np.int64) for k in (0, 1))),
        factors=None if bool((factors == 1.0).all()) else factors,
    )


def row_width(length: int) -> int:
    """Bytes of a row for lines of that length: whole words, and a word beyond the last digit."""
    return -(-length // WORD) * WORD + WORD


def _words(row: Bytes) -> Words:
    padded = np.zeros(row_width(len(row)), dtype=np.uint8)
    padded[: len(row)] = row
    return padded.view(np.uint64)


def _probes(mask: Words) -> tuple[int, ...]:
    """Words, evenly spread, that hold constant bytes."""
    held = np.flatnonzero(mask)
    chosen = held[np.linspace(0, len(held) - 1, _PROBES).astype(np.int64)] if len(held) else held
    return tuple(sorted(set(chosen.tolist())))


def read_rows(rows: Bytes, layout: Layout) -> tuple[Bools, Floats]:
    """Which rows have the layout, and the numbers of those that have: (fields, rows).

    rows: (n, layout.width) contiguous bytes.
    """
    words = rows.view(np.uint64) & layout.mask
    words ^= layout.expected
    fits: Bools = np.bitwise_or.reduce(words, axis=1) == 0
    if not fits.any():
        return fits, np.empty((len(layout.decimals), 0))
    if not fits.all():
        rows = rows[fits]
    integers, fine = read_pieces(rows, layout.pieces)
    values, powers_fine = _scaled(integers, rows, layout)
    fine &= powers_fine
    if not fine.all():
        fits[np.flatnonzero(fits)[~fine]] = False
        values = values[:, fine]
    return fits, values


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


Teacher = Callable[[bytes], Lesson | None]


@dataclass(frozen=True, slots=True)
class Found:
    """Lines that one layout read: their indices, growing, and the values (fields, lines)."""

    lesson: Lesson
    lines: Ints
    values: Floats


class LayoutReader:
    """Keeps the layouts learnt so far, by length of line, and reads blocks with them."""

    def __init__(self, may_teach: Callable[[bytes], bool], teacher: Teacher) -> None:
        """may_teach: a quick look at a line; teacher: its layout, None if it must go slowly."""
        self._may_teach = may_teach
        self._teacher = teacher
        self._layouts: dict[int, list[Layout]] = {}

    def read(self, data: Bytes, starts: Ints, ends: Ints) -> list[Found]:
        """Read those lines of a block that have a layout.

        data: the block's bytes, with at least PADDING bytes behind the last line.
        """
        lengths = ends - starts
        order = np.argsort(lengths.astype(np.uint16), kind="stable")
        order = order[(lengths[order] > 0) & (lengths[order] < MAX_LENGTH)]
        borders = np.flatnonzero(np.diff(lengths[order])) + 1
        found: list[Found] = []
        for lines in np.split(order, borders):
            if len(lines):
                found.extend(self._one_length(data, starts, lines, int(lengths[lines[0]])))
        return found

    def _one_length(self, data: Bytes, starts: Ints, lines: Ints, length: int) -> list[Found]:
        layouts = self._layouts.setdefault(length, [])
        found: list[Found] = []
        for layout in layouts:
            lines = _apply(layout, data, starts, lines, found, probe=len(layouts) > 1)
        failures = 0
        at = 0
        while at < len(lines) and len(layouts) < _MAX_LAYOUTS and failures < _MAX_FAILURES:
            start = int(starts[lines[at]])
            line = data[start : start + length].tobytes()
            at += 1
            if not self._may_teach(line):
                continue
            failures += 1
            lesson = self._teacher(line)
            if lesson is None:
                continue
            layout = layout_of(line, lesson)
            left = _apply(layout, data, starts, lines[at - 1 :], found, probe=bool(layouts))
            if len(left) < len(lines) - at + 1:  # else it does not read its own teacher
                layouts.append(layout)
                lines, at, failures = left, 0, 0
        counts = {id(one.lesson): len(one.lines) for one in found}
        layouts.sort(key=lambda one: -counts.get(id(one.lesson), 0))
        return found


#: Lines from this length on are left to the slow way.
MAX_LENGTH = 1 << 16
#: Bytes that a block needs behind its last line.
PADDING = row_width(MAX_LENGTH)


def _apply(
    layout: Layout, data: Bytes, starts: Ints, lines: Ints, found: list[Found], *, probe: bool
) -> Ints:
    """Read the lines that have the layout; returns those that have not."""
    if not len(lines):
        return lines
    likely = _probed(layout, data, starts[lines]) if probe else np.ones(len(lines), dtype=bool)
    candidates = lines if likely.all() else lines[likely]
    width = layout.width
    places = np.ndarray((len(data) - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    taken: list[Bools] = []
    values: list[Floats] = []
    for first in range(0, len(candidates), _ROWS):
        part = starts[candidates[first : first + _ROWS]]
        rows = places[part].view(np.uint8).reshape(len(part), width)
        fits, numbers = read_rows(rows, layout)
        taken.append(fits)
        values.append(numbers)
    if not taken:
        return lines
    fits = np.concatenate(taken)
    if not fits.any():
        return lines
    found.append(Found(layout.lesson, candidates[fits], np.concatenate(values, axis=1)))
    likely[np.flatnonzero(likely)[~fits]] = False
    return lines[~likely]


def _probed(layout: Layout, data: Bytes, starts: Ints) -> Bools:
    """Which lines agree with a layout in a few words."""
    words = np.ndarray((len(data) - WORD + 1,), dtype="<u8", buffer=data, strides=(1,))
    likely = np.ones(len(starts), dtype=bool)
    for index in layout.probes:
        word = words[starts + WORD * index] & layout.mask[index]
        likely &= word == layout.expected[index]
    return likely
