"""Templates of lines: constant text and numbers in turn, learnt from one line, read from many.

A template is cut behind every number of free length: up to there all columns are constant, so
rows are laid under each other and read as templates.py and spans.py do. Lines that a template
does not fit to the last byte are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze_parsers.digits import WORD, Bools, Bytes, Ints
from loganalyze_parsers.kernel import Program, program_of
from loganalyze_parsers.spans import (
    Floats,
    Free,
    any_number,
    free_number,
    lengths_of,
    text_values,
    values_of,
)
from loganalyze_parsers.templates import Layout, Slot, agrees, fixed_values, layout_of

#: One digit, a point and an exponent: always as long.
_SCIENTIFIC = lazy.pattern(r"\d\.\d+[eE][+-]\d\d")
#: Rows read at once: their words and numbers stay in a core's own cache.
_ROWS = 8192
#: Lines from this length on are not read by templates.
MAX_LENGTH = 1 << 15
#: Bytes that a block needs behind its last line: a row of the longest, misread at its end.
PADDING = 1 << 17


class Formula(Struct, frozen=True):
    """A value that more than one slot tells: parts * factor / (by * share).

    parts: slots whose digits follow each other, three at a time (12,345). by: a slot, or none.
    """

    name: str
    parts: tuple[str, ...]
    factor: float = 1.0
    by: str = ""
    share: float = 1.0


class Lesson(Struct, frozen=True):
    """What a teaching line says: the numbers in it in order, and what is constant."""

    slots: tuple[Slot, ...]
    constants: dict[str, int | None] = field(default_factory=dict)  # e.g. the rank in the prefix
    formulas: tuple[Formula, ...] = ()


class Segment(Struct, frozen=True):
    """Constant text with numbers of fixed length, and a number of free length behind it.

    length: bytes of the text. free: None behind the last. factor: of the free number.
    """

    layout: Layout
    length: int
    fixed: bool  # whether it has numbers of fixed length
    free: Free | None
    factor: float


class Columns(Struct, frozen=True):
    """A template in the form that numpy reads by.

    order: place of each number, as read, among the lesson's slots. probes: words of the first
    segment that tell templates apart.
    """

    segments: tuple[Segment, ...]
    order: Ints
    probes: tuple[int, ...]


class Template(Struct, frozen=True, dict=True):
    """A lesson in the form that reads many lines.

    line: the teaching one. frees: its numbers of free length, None for the others. program: the
    form that the kernel reads by.
    """

    lesson: Lesson
    line: bytes
    frees: tuple[Free | None, ...]
    program: Program

    @cached_property
    def columns(self) -> Columns:
        """Made when it is asked for: where the kernel reads, it seldom is."""
        return _columns_of(self)


class Found(Struct, frozen=True):
    """Lines that templates read: their indices, growing, and their values (names, lines).

    which: of each line, the lesson that its template was taught. A value is unset where that
    lesson has no such name.
    """

    lessons: tuple[Lesson, ...]
    which: npt.NDArray[np.int32]
    names: tuple[str, ...]
    lines: Ints
    values: Floats

    def apart(self) -> Iterator[tuple[Lesson, Ints, Floats]]:
        """For each lesson its lines, and their values (slots, lines)."""
        places = {name: place for place, name in enumerate(self.names)}
        for number, lesson in enumerate(self.lessons):
            own = [places[slot.name] for slot in lesson.slots]
            if len(self.lessons) == 1:
                yield lesson, self.lines, self.values[own]
            else:
                mine = np.flatnonzero(self.which == number)
                yield lesson, self.lines[mine], self.values[own][:, mine]


class Text(Struct, frozen=True, dict=True):
    """A block's bytes and the bounds of its lines."""

    raw: bytes
    starts: Ints
    ends: Ints

    @cached_property
    def padded(self) -> Bytes:
        """The bytes with PADDING behind them."""
        return np.frombuffer(self.raw + bytes(PADDING), dtype=np.uint8)

    @cached_property
    def data(self) -> Bytes:
        """The bytes as they are."""
        return np.frombuffer(self.raw, dtype=np.uint8)


def template_of(line: bytes, lesson: Lesson) -> Template:
    """The template of a teaching line."""
    frees = tuple(_free_of(line, slot) for slot in lesson.slots)
    return Template(lesson, line, frees, program_of(line, lesson.slots, frees))


def _columns_of(template: Template) -> Columns:
    line, slots = template.line, template.lesson.slots
    segments: list[Segment] = []
    fixed: list[Slot] = []
    order: list[int] = []
    waiting: list[int] = []
    texts: list[int] = []
    begin = 0
    for index, (slot, free) in enumerate(zip(slots, template.frees, strict=True)):
        if free is None:
            fixed.append(replace(slot, start=slot.start - begin))
            waiting.append(index)
            continue
        segments.append(_segment(line[begin : slot.start], fixed, free, slot.factor))
        order += waiting
        (texts if free.decimals < 0 else order).append(index)
        fixed, waiting, begin = [], [], slot.start + len(slot.text)
    segments.append(_segment(line[begin:], fixed, None, 1.0))
    held = np.flatnonzero(segments[0].layout.mask)
    probes = {int(held[0]), int(held[-1])} if len(held) else set()
    return Columns(tuple(segments), np.array([*order, *waiting, *texts]), tuple(sorted(probes)))


def _free_of(line: bytes, slot: Slot) -> Free | None:
    """The number of free length that a slot is; None where its length is fixed."""
    if _is_fixed(line, slot):
        return None
    end = slot.start + len(slot.text)
    byte = line[end] if end < len(line) else 10
    return any_number(byte) if slot.varies else free_number(slot.text, byte)


def _is_fixed(line: bytes, slot: Slot) -> bool:
    if slot.fixed or slot.varies:
        return slot.fixed
    if _SCIENTIFIC.fullmatch(slot.text):
        return True
    return line[max(slot.start - 2, 0) : slot.start] == b"  "  # padded to a width


def _segment(text: bytes, fixed: Sequence[Slot], free: Free | None, factor: float) -> Segment:
    room = WORD * (1 + (free.words if free else 0))
    return Segment(layout_of(text, fixed, room), len(text), bool(fixed), free, factor)


class _Rows:
    """Some lines under a template: what was read of them, and which of them still fit."""

    def __init__(self, text: Text, lines: Ints) -> None:
        self._data = text.padded
        self.lines = lines
        self._at = text.starts[lines]
        self._ends = text.ends[lines]
        self._values: list[Floats] = []
        self.spans: list[Ints] = []  # starts and ends of numbers left as texts

    def read(self, template: Template) -> bool:
        """Read all segments; false where no line is left."""
        for segment in template.columns.segments:
            if not len(self.lines):
                return False
            self._segment(segment)
        self._keep(self._at == self._ends)
        return bool(len(self.lines))

    def values(self) -> Floats:
        """(numbers, lines)."""
        return np.concatenate(self._values) if self._values else np.empty((0, len(self.lines)))

    def _segment(self, segment: Segment) -> None:
        layout, free = segment.layout, segment.free
        rows = self._rows(layout.width)
        rows = self._keep(agrees(rows, layout), rows)
        if segment.fixed and len(rows):
            values, fine = fixed_values(rows, layout)
            self._values.append(values)
            rows = self._keep(fine, rows)
        self._at = self._at + segment.length
        if free is None or not len(rows):
            return
        lengths = lengths_of(rows, segment.length, free)
        if free.decimals < 0:
            self.spans += [self._at, self._at + lengths]
            fine = (lengths > 0) & (lengths < WORD * free.words)
        else:
            numbers, fine = values_of(rows, segment.length, lengths, free)
            self._values.append((numbers * segment.factor)[None])
        self._at = self._at + lengths
        self._keep(fine, rows)

    def _rows(self, width: int) -> Bytes:
        places = np.ndarray((len(self._data) - width + 1,), f"V{width}", self._data, 0, (1,))
        return places[self._at].view(np.uint8).reshape(-1, width)

    def _keep(self, fits: Bools, rows: Bytes | None = None) -> Bytes:
        """Go on with the lines that fit; returns their rows."""
        kept = rows if rows is not None else np.empty((0, 0), dtype=np.uint8)
        if fits.all():
            return kept
        self.lines, self._at, self._ends = self.lines[fits], self._at[fits], self._ends[fits]
        self._values = [values[:, fits] for values in self._values]
        self.spans = [places[fits] for places in self.spans]
        return kept[fits] if rows is not None else kept


def numpy_found(template: Template, text: Text, lines: Ints, *, probe: bool) -> Found | None:
    """What the template reads of the lines, by numpy.

    probe: whether most lines may be of another template.
    """
    likely = _probed(template, text, lines) if probe else np.ones(len(lines), dtype=bool)
    candidates = lines if likely.all() else lines[likely]
    taken, values, spans = [], [], []
    for first in range(0, len(candidates), _ROWS):
        rows = _Rows(text, candidates[first : first + _ROWS])
        if rows.read(template):
            taken.append(rows.lines)
            values.append(rows.values())
            spans.append(
                np.stack(rows.spans) if rows.spans else np.empty((0, len(rows.lines)), int)
            )
    if not taken:
        return None
    return _found(template, text, np.concatenate(taken), np.hstack(values), np.hstack(spans))


def _found(template: Template, text: Text, lines: Ints, values: Floats, spans: Ints) -> Found:
    """With the numbers that were left as texts, all in the order of the slots."""
    slots = template.lesson.slots
    if len(spans):
        numbers, fine = text_values(text.raw, spans[0::2].T, spans[1::2].T)
        texts = template.columns.order[len(slots) - numbers.shape[1] :]
        factors = np.array([slots[index].factor for index in texts])
        with np.errstate(over="ignore"):  # 1e308 GB are infinitely many bytes
            numbers = numbers.T * factors[:, None]
        values = np.concatenate([values, numbers])
        if not fine.all():
            lines, values = lines[fine], values[:, fine]
    ordered = np.empty_like(values)
    ordered[template.columns.order] = values
    names = tuple(slot.name for slot in slots)
    return Found((template.lesson,), np.zeros(len(lines), np.int32), names, lines, ordered)


def _probed(template: Template, text: Text, lines: Ints) -> Bools:
    """Which lines agree with a template in a word or two."""
    words = np.ndarray((len(text.padded) - WORD + 1,), "<u8", text.padded, 0, (1,))
    layout = template.columns.segments[0].layout
    likely = np.ones(len(lines), dtype=bool)
    for index in template.columns.probes:
        word = words[text.starts[lines] + WORD * index] & layout.mask[index]
        likely &= word == layout.expected[index]
    return likely
