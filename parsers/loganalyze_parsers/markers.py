"""Which dialects want to see which lines: literal markers, searched in all lines at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from loganalyze_parsers.api import Dialect


class MarkerIndex:
    """The markers of a list of dialects, as bytes."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        """One bit a dialect, in the order of the list."""
        self._bits: dict[bytes, int] = {}
        for index, dialect in enumerate(dialects):
            for marker in dialect.markers:
                raw = marker.encode()
                self._bits[raw] = self._bits.get(raw, 0) | 1 << index
        self._all = (1 << len(dialects)) - 1

    def wanted(self, lines: Sequence[bytes]) -> list[int]:
        """For each line the bits of the dialects with a marker in it.

        A line with ANSI codes is wanted by all: a code may stand inside a marker.
        """
        wanted = [0] * len(lines)
        joined = b"\n".join(lines)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        for marker, bits in [*self._bits.items(), (b"\x1b", self._all)]:
            at = joined.find(marker)
            while at >= 0:
                line = bisect_right(starts, at) - 1
                wanted[line] |= bits
                at = joined.find(marker, starts[line + 1])
        return wanted
