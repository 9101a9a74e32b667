"""The fast way through a console that holds nothing but rows: no bar, no header, no rank.

There a row's step is its number (the last of the sources in huggingface_steps.py), so a block's
rows can be read by the column. At the first thing that could tell the step better, or the first
row that is not plain (NaN, torn, repeated, the epoch going back), it gives up for good and leaves
the rest to the reader; a test holds the numbers of both ways equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import PLAIN, Lines, framed, lines_of
from loganalyze_parsers.huggingface_keys import column_of, kind_of

#: Words on other lines after which a row's number is not its step.
_TELLS_STEPS = [
    "%|", "*****", "Num Epochs", "Total steps", "logging_steps", "checkpoint", "global step",
    "Total optimization steps", "\r", "\x1b",
]  # fmt: skip
_MARK = "'loss'"
_PAIR = re.compile(rf"""'([^'"{{}}\r\n]{{1,120}})': ('?)({PLAIN})\2""")
#: Sets of keys that a run's rows have (with and without an auxiliary metric).
_MAX_LAYOUTS = 4


@dataclass(frozen=True, slots=True)
class _Layout:
    """One set of keys in one order: the line's pattern, and what each number is."""

    pattern: str
    columns: tuple[tuple[str, float], ...]  # name and factor; epoch among them


class HuggingFaceBulk:
    """Reads blocks of one input; keeps the number of rows and the layouts."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._on = True
        self._rows = 0
        self._epoch = -1.0
        self._layouts: list[_Layout] = []

    def __call__(self, block: Block, source: int, ranks_per_node: int) -> pl.DataFrame | None:
        """The frame of all training rows of the block, or None from some block on."""
        if not self._rows and _MARK.encode() not in block.data:
            self._on = False  # another sort of log: not worth a look at every line
        lines = lines_of(block) if self._on else None
        frame = None if lines is None else self._frame(lines, source)
        self._on = frame is not None
        return frame

    def _frame(self, lines: Lines, source: int) -> pl.DataFrame | None:
        is_row = lines.text.str.contains(_MARK, literal=True)
        if bool(lines.text.filter(~is_row).str.contains_any(_TELLS_STEPS).any()):
            return None
        marked = np.flatnonzero(is_row.to_numpy())
        text = lines.text.gather(marked) if len(marked) < len(is_row) else lines.text
        if len(text) and bool((text == text.shift(1)).any()):
            return None
        frames: list[pl.DataFrame] = []
        while len(marked):
            found = self._one_layout(text)
            if found is None:
                return None
            layout, values, fits = found
            columns = _columns(layout, values, fits)
            columns["step"] = pl.Series(marked[fits])  # numbered when all are together
            frames.append(framed(lines, marked[fits], source, columns))
            marked, text = marked[~fits], text.filter(pl.Series(~fits))
        if not frames:
            return pl.DataFrame()
        return self._numbered(pl.concat(frames, how="diagonal").sort("offset"))

    def _numbered(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Steps are row numbers; None where the epoch goes back (another run begins)."""
        epochs = np.concatenate(([self._epoch], frame["epoch"].to_numpy()))
        if not bool((np.diff(epochs) >= 0).all()):
            return None
        steps = np.arange(self._rows + 1, self._rows + 1 + len(frame), dtype=np.int64)
        self._rows += len(frame)
        self._epoch = float(epochs[-1])
        return frame.with_columns(step=pl.Series(steps))

    def _one_layout(
        self, text: pl.Series
    ) -> tuple[_Layout, pl.Series, npt.NDArray[np.bool_]] | None:
        """The first layout that some of the lines have, learnt from the first of them if new."""
        for layout in self._layouts:
            values = text.str.extract_groups(layout.pattern)
            fits = values.struct.field("1").is_not_null().to_numpy()
            if fits.any():
                return layout, values, fits
        learnt = _learn(text[0]) if len(self._layouts) < _MAX_LAYOUTS else None
        if learnt is None:
            return None
        self._layouts.append(learnt)
        values = text.str.extract_groups(learnt.pattern)
        return learnt, values, values.struct.field("1").is_not_null().to_numpy()


def _learn(line: str) -> _Layout | None:
    """The layout of a line that is one plain dictionary; None if the reader must see it."""
    text = line.strip()
    pairs = list(_PAIR.finditer(text))
    if "{" + ", ".join(pair.group() for pair in pairs) + "}" != text:
        return None
    keys = [pair[1] for pair in pairs]
    columns = [column_of(key) for key in keys]
    known = [column for column in columns if column is not None]
    names = {name for name, _ in known}
    if len(known) < len(keys) or len(names) < len(keys) or "epoch" not in names:
        return None
    if kind_of(frozenset(keys)) != "train":
        return None
    body = ", ".join(f"'{re.escape(key)}': '?({PLAIN})'?" for key in keys)
    return _Layout(rf"^\{{{body}\}}\s*$", tuple(known))


def _columns(
    layout: _Layout, values: pl.Series, fits: npt.NDArray[np.bool_]
) -> dict[str, pl.Series]:
    chosen = values.filter(pl.Series(fits))
    columns: dict[str, pl.Series] = {}
    for group, (name, factor) in enumerate(layout.columns, 1):
        column = chosen.struct.field(str(group)).cast(pl.Float64)
        columns[name] = column if factor == 1.0 else column * factor
    return columns
