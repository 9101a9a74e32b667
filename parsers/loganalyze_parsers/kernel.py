"""The compiled inner loops of text logs: used where the installation could build them.

It reads the same lines as the numpy way and gives the same numbers, only faster.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze import compiled
from loganalyze_parsers.digits import WORD, Ints
from loganalyze_parsers.spans import Floats, Free
from loganalyze_parsers.templates import Slot

#: Room for places of line feeds is made for lines of this length; a text of shorter ones is
#: looked at twice.
_BYTES_A_LINE = 64
_TEXT, _FIXED, _FREE, _ANY = range(4)
_LONG = 1 << 16  # bytes


#: Templates of one job; as in kernel.c.
MOST_TEMPLATES = 64


class _Template(ctypes.Structure):
    """As in kernel.c."""

    _fields_ = (
        ("steps", ctypes.c_void_p), ("step_count", ctypes.c_int64),
        ("text", ctypes.c_char_p), ("factors", ctypes.c_void_p), ("columns", ctypes.c_void_p),
    )  # fmt: skip


class _Job(ctypes.Structure):
    """As in kernel.c."""

    _fields_ = (
        ("data", ctypes.c_char_p), ("size", ctypes.c_int64),
        ("starts", ctypes.c_void_p), ("ends", ctypes.c_void_p),
        ("lines", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("templates", ctypes.c_void_p), ("template_count", ctypes.c_int64),
        ("read", ctypes.c_void_p), ("which", ctypes.c_void_p), ("values", ctypes.c_void_p),
        ("later", ctypes.c_void_p), ("later_count", ctypes.c_int64),
    )  # fmt: skip


class Program(Struct, frozen=True):
    """A template as kernel.c takes it: steps (n, 6), their constant text, factors by slot."""

    steps: npt.NDArray[np.int32]
    text: bytes
    factors: Floats


def program_of(line: bytes, slots: Sequence[Slot], frees: Sequence[Free | None]) -> Program:
    """frees: for each slot the number of free length that it is; None where its length is fixed."""
    steps: list[tuple[int, int, int, int, int, int]] = []
    at = 0
    for index, (slot, free) in enumerate(zip(slots, frees, strict=True)):
        steps.append((_TEXT, slot.start - at, at, 0, 0, 0))
        at = slot.start + len(slot.text)
        if free is None:
            mantissa, letter, _ = slot.text.replace("E", "e").partition("e")
            decimals = len(mantissa.partition(".")[2])
            byte = ord(slot.text[len(mantissa)]) if letter else 0
            steps.append((_FIXED, len(slot.text), index, decimals, bool(letter), byte))
        else:
            kind = _ANY if free.decimals < 0 else _FREE
            steps.append((kind, WORD * free.words, index, free.decimals, 0, free.terminator))
    steps.append((_TEXT, len(line) - at, at, 0, 0, 0))
    factors = np.array([slot.factor for slot in slots], dtype=np.float64)
    return Program(np.array(steps, dtype=np.int32), line, factors)


class Programs(Struct, frozen=True):
    """Up to MOST_TEMPLATES programs that are tried in turn, and the columns that they fill."""

    width: int  # columns
    templates: ctypes.Array[_Template]
    kept: tuple[object, ...]  # what `templates` points to


def programs_of(programs: Sequence[Program], columns: Sequence[Sequence[int]]) -> Programs:
    """columns: for each program, the column of each of its slots."""
    places = [np.array(one, dtype=np.int32) for one in columns]
    templates = (_Template * len(programs))(
        *(
            _Template(
                program.steps.ctypes.data, len(program.steps), program.text,
                program.factors.ctypes.data, place.ctypes.data,
            )
            for program, place in zip(programs, places, strict=True)
        )
    )  # fmt: skip
    width = 1 + max((max(one) for one in columns if one), default=-1)
    return Programs(width, templates, (*programs, *places))


class Seen(Struct, frozen=True):
    """Lines read, which program read each, and their values (columns, lines).

    A value is unset where the line's program has no such slot. later: lines for the numpy way.
    """

    lines: Ints
    which: npt.NDArray[np.int32]
    values: Floats
    later: Ints


class _Lines(ctypes.Structure):
    """As in lines.c."""

    _fields_ = (
        ("text", ctypes.c_char_p), ("bounds", ctypes.c_void_p), ("count", ctypes.c_int64),
        ("slots", ctypes.c_void_p), ("size", ctypes.c_int64),
    )  # fmt: skip


class Texts(Struct, frozen=True):
    """Many texts in one; text k is raw[bounds[k] : bounds[k + 1]]."""

    raw: bytes
    bounds: Ints


def texts_of(texts: Sequence[bytes]) -> Texts:
    """Those texts in one."""
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return Texts(b"".join(texts), np.concatenate(([0], np.cumsum(lengths))))


class Known(Struct, frozen=True):
    """Lines that seen() finds again."""

    lines: _Lines
    kept: tuple[object, ...]  # what `lines` points to


class Kernel:
    """A loaded library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """library: built of kernel.c."""
        self._read = library.loganalyze_read
        self._read.argtypes = (ctypes.POINTER(_Job),)
        self._read.restype = ctypes.c_int64
        self._breaks = library.loganalyze_breaks
        self._breaks.argtypes = (
            ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
        )  # fmt: skip
        self._breaks.restype = ctypes.c_int64
        self._holds = library.loganalyze_holds
        self._holds.argtypes = (
            ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
        )  # fmt: skip
        self._holds.restype = ctypes.c_int64
        self._words = library.loganalyze_words
        self._words.argtypes = (
            ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64,
            ctypes.c_void_p,
        )  # fmt: skip
        self._words.restype = ctypes.c_int64
        self._see = library.loganalyze_see
        self._see.argtypes = (ctypes.POINTER(_Lines),)
        self._see.restype = None
        self._seen = library.loganalyze_seen
        self._seen.argtypes = (
            ctypes.POINTER(_Lines), ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
            ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
        )  # fmt: skip
        self._seen.restype = None

    def holds(self, data: bytes, word: bytes) -> bool:
        """`word in data`, while other threads run."""
        return bool(self._holds(data, len(data), word, len(word)))

    def words(self, data: bytes, words: Texts) -> list[int]:
        """Which of the words stand in the data: their places, in order."""
        places = np.empty(len(words.bounds) - 1, dtype=np.int64)
        count = self._words(
            data, len(data), words.raw, words.bounds.ctypes.data, len(places), places.ctypes.data
        )
        return [int(place) for place in places[:count]]

    def known(self, lines: Sequence[bytes]) -> Known:
        """Lines, none of them twice, that seen() shall find."""
        texts = texts_of(lines)
        slots = np.full(1 << (2 * len(lines) + 1).bit_length(), -1, dtype=np.int32)
        made = _Lines(
            texts.raw, texts.bounds.ctypes.data, len(lines), slots.ctypes.data, len(slots)
        )
        self._see(ctypes.byref(made))
        return Known(made, (texts, slots))

    def seen(
        self, known: Known, data: bytes, starts: Ints, ends: Ints, lines: Ints
    ) -> npt.NDArray[np.int32]:
        """The known line that each of those lines of a text is; -1 for none. One that is known
        may be missed, so seldom that it matters to the time only."""
        starts, ends, lines = (np.ascontiguousarray(a, np.int64) for a in (starts, ends, lines))
        places = np.empty(len(lines), dtype=np.int32)
        self._seen(
            ctypes.byref(known.lines), data, starts.ctypes.data, ends.ctypes.data,
            lines.ctypes.data, len(lines), places.ctypes.data,
        )  # fmt: skip
        return places

    def breaks(self, data: bytes) -> Ints:
        """Where the line feeds of a text are."""
        room = len(data) // _BYTES_A_LINE + 1
        while True:
            places = np.empty(room, dtype=np.int64)
            count = int(self._breaks(data, len(data), places.ctypes.data, room))
            if count <= room:
                return places[:count]
            room = count

    def read(self, programs: Programs, raw: bytes, starts: Ints, ends: Ints, lines: Ints) -> Seen:
        """What the first program that fits each of those lines of a text reads of it.

        Other threads run meanwhile.
        """
        count = len(lines)
        starts, ends, lines = (np.ascontiguousarray(a, np.int64) for a in (starts, ends, lines))
        read, later = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        which, values = np.empty(count, dtype=np.int32), np.empty((programs.width, count))
        job = _Job(
            raw, len(raw), starts.ctypes.data, ends.ctypes.data, lines.ctypes.data, count,
            ctypes.addressof(programs.templates), len(programs.templates), read.ctypes.data,
            which.ctypes.data, values.ctypes.data, later.ctypes.data, 0,
        )  # fmt: skip
        done = self._read(ctypes.byref(job))
        return Seen(read[:done], which[:done], values[:, :done], later[: job.later_count])


def load(path: Path) -> Kernel | None:
    """The kernel in a library; None if there is none, or one built of other sources."""
    library = compiled.load(path)
    return None if library is None else Kernel(library)


@cache
def _installed() -> Kernel | None:
    library = compiled.library()
    return None if library is None else Kernel(library)


def holds(data: bytes, word: bytes) -> bool:
    """`word in data`; of long data in a fraction of the time."""
    compiled_one = kernel() if len(data) > _LONG else None
    return word in data if compiled_one is None else compiled_one.holds(data, word)


def kernel() -> Kernel | None:
    """The kernel of this installation; None where there is none or the user wants none."""
    return None if os.environ.get(compiled.PURE) else _installed()
