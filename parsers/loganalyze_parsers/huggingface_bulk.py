"""The fast way through a console that holds nothing but rows: no bar, no header, no rank.

There a row's step is its number (the last of the sources in huggingface_steps.py), so a block's
rows can be read by the column. At the first thing that could tell the step better, or the first
row that is not plain (NaN, torn, repeated, the epoch going back), it gives up for good and leaves
the rest to the reader; a test holds the numbers of both ways equal.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import PLAIN, begins_with, framed, holds_any, others, text_of
from loganalyze_parsers.commas import has_commas
from loganalyze_parsers.huggingface_keys import column_of, kind_of
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot

_MARK = b"'loss'"
#: Words on other lines after which a row's number is not its step; and a row that is not plain.
_TELLS_STEPS = (
    _MARK, b"%|", b"it/s", b"s/it", b"*****", b"Num Epochs", b"Total steps", b"logging_steps",
    b"checkpoint", b"global step", b"Total optimization steps", b"\r", b"\x1b",
)  # fmt: skip
_PAIR = lazy.pattern(rf"""'([^'"{{}}\r\n]{{1,120}})': ('?)({PLAIN})\2""")
#: Sets of keys that a run's rows have (with and without an auxiliary metric).
_MAX_LAYOUTS = 4


class _Look(Struct, frozen=True):
    """rows: without their steps, None if there are none. plain: whether all rows were."""

    rows: pl.DataFrame | None
    plain: bool


class HuggingFaceBulk:
    """Reads blocks of one input; keeps the number of rows and the templates."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._on = True
        self._begun = False
        self._rows = 0
        self._epoch = -1.0
        self._lessons = 0
        self._templates = TemplateReader(lambda line: line.startswith(b"{'"), self._teach)

    def look(self, block: Block, source: int, ranks_per_node: int) -> _Look | None:
        """The block's training rows, and whether they can be numbered by counting."""
        if not self._on:
            return None
        begun, self._begun = self._begun, True
        if not holds_any(block.data, (_MARK,)):
            if not begun:  # the first block is looked at before all others: no such log
                self._on = False
                return None
            return _Look(None, not holds_any(block.data, _TELLS_STEPS))
        text = text_of(block)
        found = self._templates.read(text, begins_with(text, "{"))
        if not found or holds_any(others(text, found), _TELLS_STEPS):
            return _Look(None, False)
        rows = Rows(found)
        if _repeats(text, rows):
            return _Look(None, False)
        columns = {name: rows.series(name) for name in rows.names}
        return _Look(framed(text, block, rows.lines, source, columns), True)

    def rows(self, look: _Look | None) -> pl.DataFrame | None:
        """The training rows."""
        return None if look is None else look.rows

    def settle(self, look: _Look) -> pl.DataFrame | None:
        """The rows with their steps, or None from some block on."""
        frame = None
        if self._on and look.plain:
            frame = look.rows if look.rows is None else self._numbered(look.rows)
        if frame is None and (look.rows is not None or not look.plain or not self._rows):
            self._on = False  # another sort of log: not worth a look at every line
        return frame

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Steps are row numbers; None where the epoch goes back (another run begins)."""
        epochs = np.concatenate(([self._epoch], frame["epoch"].to_numpy()))
        if not bool((np.diff(epochs) >= 0).all()):
            return None
        steps = np.arange(self._rows + 1, self._rows + 1 + len(frame), dtype=np.int64)
        self._rows += len(frame)
        self._epoch = float(epochs[-1])
        return frame.with_columns(step=pl.Series(steps))

    def _teach(self, raw: bytes) -> Lesson | None:
        """What a line says that is one plain dictionary; None if the reader must see it."""
        text = raw.decode("utf-8", "replace")
        pairs = list(_PAIR.finditer(text))
        whole = "{" + ", ".join(pair.group() for pair in pairs) + "}" == text
        if not whole or has_commas(text) or not text.isascii() or self._lessons >= _MAX_LAYOUTS:
            return None
        keys = [pair[1] for pair in pairs]
        columns = [column_of(key) for key in keys]
        known = [column for column in columns if column is not None]
        names = {name for name, _ in known}
        if len(known) < len(keys) or len(names) < len(keys) or "epoch" not in names:
            return None
        if kind_of(frozenset(keys)) != "train":
            return None
        self._lessons += 1
        slots = [
            Slot(name, factor, pair.start(3), pair[3], varies=True)
            for pair, (name, factor) in zip(pairs, known, strict=True)
        ]
        return Lesson(tuple(slots))


def _repeats(text: Text, rows: Rows) -> bool:
    """Whether a row stands there twice, one after the other."""
    same = np.ones(max(len(rows.lines) - 1, 0), dtype=bool)
    for name in rows.names:
        same &= np.diff(rows.column(name)) == 0
    for index in np.flatnonzero(same).tolist():
        first, second = rows.lines[index : index + 2].tolist()
        one = text.raw[text.starts[first] : text.ends[first]]
        if one == text.raw[text.starts[second] : text.ends[second]]:
            return True
    return False
