"""A block of a text log, and the lines of it that bulk ways took."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.digits import Bools, Ints


class Prepared(Struct, frozen=True):
    """A block, and what the bulk ways took of it.

    taken: which lines. steps: their steps. last: for each dialect that took some, the last of its
    lines at or before each line (-1 before the first).
    """

    block: Block
    frames: list[pl.DataFrame]
    taken: Bools
    steps: Ints
    last: dict[int, Ints]

    def free(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of lines that nobody took yet."""
        taken = self.taken[self._places(frame)]
        return frame.filter(~taken) if taken.any() else frame

    def take(self, dialect: int, frame: pl.DataFrame) -> None:
        """Take all lines of a frame."""
        at = self._places(frame)
        last = np.full(len(self.taken), -1)
        last[at] = at
        self.frames.append(frame)
        self.taken[at] = True
        steps = frame["step"]
        self.steps[at] = (steps.fill_null(-1) if steps.null_count() else steps).to_numpy()
        self.last[dialect] = np.maximum.accumulate(last)

    def is_of(self, dialect: int, line: int) -> bool:
        """Whether a dialect took a line."""
        return dialect in self.last and int(self.last[dialect][line]) == line

    def passed(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Dialects that took some of the lines [first, end), with the step of the last of each.

        In the order of those lines.
        """
        lasts = {dialect: int(last[end - 1]) for dialect, last in self.last.items()} if end else {}
        for dialect, last in sorted(lasts.items(), key=lambda one: one[1]):
            if last >= first:
                yield dialect, int(self.steps[last])

    def _places(self, frame: pl.DataFrame) -> Ints:
        places: Ints = frame["line"].to_numpy() - self.block.first_line
        return places


def prepared(block: Block) -> Prepared:
    """Nothing is taken yet."""
    count = len(block.bounds[0])
    return Prepared(block, [], np.zeros(count, bool), np.zeros(count, np.int64), {})
