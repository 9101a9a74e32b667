"""Which dialects want to see which lines: literal markers, searched in all lines at once."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from loganalyze_parsers.api import Dialect

_ESCAPE = "\x1b"


class MarkerIndex:
    """The markers of a list of dialects."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        """One bit a dialect, in the order of the list."""
        self._bits: dict[str, int] = {_ESCAPE: (1 << len(dialects)) - 1}
        for index, dialect in enumerate(dialects):
            for marker in dialect.markers:
                self._bits[marker] = self._bits.get(marker, 0) | 1 << index
        self._patterns = list(self._bits)
        self._once = {m: 1 << i for i, dialect in enumerate(dialects) for m in dialect.once}

    def wanted(self, lines: Sequence[bytes]) -> list[int]:
        """For each line the bits of the dialects with a marker in it.

        A line with ANSI codes is wanted by all: a code may stand inside a marker. One automaton
        finds all markers, so their number hardly matters.
        """
        wanted = [0] * len(lines)
        decoded = [line.decode("utf-8", "replace") for line in lines]
        texts = pl.Series("line", decoded, dtype=pl.String)
        found = texts.to_frame().select(
            pl.col("line").str.extract_many(self._patterns, overlapping=True)
        )["line"]
        marked = (found.list.len() > 0).arg_true()
        for index, markers in zip(marked.to_list(), found.gather(marked).to_list(), strict=True):
            for marker in markers:
                wanted[index] |= self._bits[marker]
                if marker in self._once:
                    self._bits[marker] &= ~self._once.pop(marker)
        return wanted


def holds(text: str, words: Sequence[str]) -> bool:
    """Whether one of the words stands in the text.

    >>> holds("step=3, loss=1", ("loss", "lr")), holds("step=3", ("loss",))
    (True, False)
    """
    for word in words:  # noqa: SIM110 (any() with a generator takes three times as long)
        if word in text:
            return True
    return False
