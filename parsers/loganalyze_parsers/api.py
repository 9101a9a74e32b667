"""What a parser is: the few types that every format module is written against.

Two sorts of modules exist. A *dialect* recognises lines of text; all dialects look at the same
lines, so one file may mix trainers, launchers and crash messages. A *parser* owns a whole file
of another make (JSON, CSV, event files, ...). Both are listed by hand in `__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import polars as pl
from msgspec import Struct, field

from loganalyze.model import Batch, Event, LineRef, Problem, Reading
from loganalyze_parsers.blocks import Block


class Head(Struct, frozen=True, kw_only=True):
    """The beginning of an input, enough to tell its format."""

    path: Path
    data: bytes  # the first 64 KiB, decompressed
    size: int  # bytes on disk


class Parser(Struct, frozen=True, kw_only=True):
    """A format of whole files.

    sniff: 0.0 (not mine) to 1.0 (certainly mine); the highest wins, ties by order of the list.
    parse: yields batches; `source` is the index that goes into every LineRef. It never raises on
    bad content: what it cannot read becomes a Problem or an unknown line.
    onward: optional, makes a parse that is called once for each part of a rotated log and
    remembers what the parts before said (rows counted, the last step).
    """

    name: str
    sniff: Callable[[Head], float]
    parse: Callable[[Path, int], Iterator[Batch]]
    onward: Callable[[], Callable[[Path, int], Iterator[Batch]]] | None = None


class Line(Struct, frozen=True, kw_only=True):
    """One line of text, cleaned: no ANSI codes, no launcher prefix, no trailing white space.

    rank, host and wall_s come from the prefix, where there was one. `ref` spans the raw bytes.
    """

    text: str
    ref: LineRef
    rank: int | None = None
    host: str | None = None
    wall_s: float | None = None


#: Of a line that begins like one of a dialect's own, but has none of its numbers: it may be
#: another's (see Dialect.follows).
NO_NUMBER = "line without number"


class Taken(Struct, kw_only=True):
    """What a dialect made of a line. With neither readings nor events, `ignored` names the rule.

    `problems` tells what could not be taken at face value. `held`: the line's numbers are read,
    and come with a later line.
    """

    readings: list[Reading] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: str = ""
    held: bool = False


#: What a bulk way saw in a block: its own affair.
Look = Any


class Bulk(Protocol):
    """The fast way through one input: a block's lines by the column, in two steps."""

    def look(self, block: Block, source: int, ranks_per_node: int) -> Look | None:
        """All that can be said of a block by itself; called from threads, in any order."""

    def rows(self, look: Look | None) -> pl.DataFrame | None:
        """The lines of its own in what look() saw, each `line` once; None without any."""

    def settle(self, look: Look) -> pl.DataFrame | None:
        """The frame of all lines taken (each `line` once), by what came before.

        Called in the order of the blocks, for those whose look was not None.
        """


class Reader(Protocol):
    """The state of one dialect over one input; lines come in order.

    `open` is true while it waits for the rest of something that spans lines (a wrapped row, a
    block): it is then offered every line first, markers or not.

    A reader with a state may have more, so that lines can be learnt (learnt_lines.py):
    `alone(line)`, the place (generic_steps.py) that a line tells without regard to those before,
    None where these decide it; `count`, by which such places become steps of the run; `steady`,
    whether nothing else before makes a difference to such lines; and `went(step)`, which tells it
    of the last of them that went by.
    """

    @property
    def open(self) -> bool:
        """Whether the next line may belong to what began above."""

    def feed(self, line: Line) -> Taken | None:
        """What the line holds; None if it is not of this dialect."""

    def finish(self) -> Taken:
        """What was still open at the end of the input."""

    def passed(self, step: int) -> None:
        """A record of that step was read by the dialect's bulk way, or by another dialect.

        Only called if the dialect has a bulk way, or follows others.
        """


class Dialect(Struct, frozen=True, kw_only=True):
    """A family of text lines. A line is offered to the reader if it has one of the markers.

    bulk: optional, makes the fast way for one input: it gives the frame of all lines of a block
    that it is certain of; the rest is left to the reader, which is told by passed() what went by.
    """

    name: str
    markers: tuple[str, ...]
    reader: Callable[[], Reader]
    bulk: Callable[[], Bulk] | None = None
    once: frozenset[str] = frozenset()  # markers that say all they have to say the first time
    follows: bool = False  # it reads what nobody knows; passed() tells of the others' rows
    stateless: bool = False  # whether feed() never depends on earlier lines
    commas: str = ""  # of numbers: "words", it reads them as they stand, or "thousands" (commas.py)
    about: str = ""  # what it reads, where the module's docstring speaks of several formats
