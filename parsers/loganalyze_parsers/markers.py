"""Which dialects want to see which lines: literal markers, searched in all lines at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import polars as pl

from loganalyze_parsers.api import Dialect
from loganalyze_parsers.kernel import kernel, texts_of

_ESCAPE = "\x1b"
#: Lines of fewer characters together are searched marker by marker: making an automaton of all
#: markers takes as long as that.
_FEW = 8192


class MarkerIndex:
    """The markers of a list of dialects."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        """One bit a dialect, in the order of the list."""
        self._bits: dict[str, int] = {_ESCAPE: (1 << len(dialects)) - 1}
        for index, dialect in enumerate(dialects):
            for marker in dialect.markers:
                self._bits[marker] = self._bits.get(marker, 0) | 1 << index
        self._patterns = list(self._bits)
        self._encoded = texts_of([marker.encode() for marker in self._patterns])
        self._once = {m: 1 << i for i, dialect in enumerate(dialects) for m in dialect.once}

    def wanted(self, lines: Sequence[bytes]) -> list[int]:
        """For each line the bits of the dialects with a marker in it.

        A line with ANSI codes is wanted by all: a code may stand inside a marker.
        """
        wanted = [0] * len(lines)
        decoded = [line.decode("utf-8", "replace") for line in lines]
        few = sum(map(len, decoded)) < _FEW
        likely = self._likely(b"\n".join(lines)) if few else []
        for index, markers in self._these(decoded, likely) if few else self._at_once(decoded):
            for marker in markers:
                wanted[index] |= self._bits[marker]
                if marker in self._once:
                    self._bits[marker] &= ~self._once.pop(marker)
        return wanted

    def _likely(self, data: bytes) -> list[str]:
        """The markers in lines that are looked at together."""
        compiled = kernel() if data else None
        if compiled is None:
            text = data.decode("utf-8", "replace")
            return [marker for marker in self._patterns if marker in text] if text else []
        return [self._patterns[place] for place in compiled.words(data, self._encoded)]

    def _these(
        self, lines: Sequence[str], likely: Sequence[str]
    ) -> Iterator[tuple[int, Iterable[str]]]:
        """Lines with markers, and those."""
        for index, line in enumerate(lines if likely else ()):
            yield index, [marker for marker in likely if marker in line]

    def _at_once(self, lines: Sequence[str]) -> Iterator[tuple[int, Iterable[str]]]:
        """The same by one automaton for all markers, so that their number hardly matters."""
        texts = pl.Series("line", lines, dtype=pl.String)
        found = texts.to_frame().select(
            pl.col("line").str.extract_many(self._patterns, overlapping=True)
        )["line"]
        marked = (found.list.len() > 0).arg_true()
        yield from zip(marked.to_list(), found.gather(marked).to_list(), strict=True)


def holds(text: str, words: Sequence[str]) -> bool:
    """Whether one of the words stands in the text.

    >>> holds("step=3, loss=1", ("loss", "lr")), holds("step=3", ("loss",))
    (True, False)
    """
    for word in words:  # noqa: SIM110 (any() with a generator takes three times as long)
        if word in text:
            return True
    return False


@lru_cache(maxsize=4096)
def bits_of(bits: int) -> tuple[int, ...]:
    """Which bits are set, from the lowest.

    >>> bits_of(0b1101)
    (0, 2, 3)
    """
    return tuple(index for index in range(bits.bit_length()) if bits >> index & 1)
