"""Lines whose fate is remembered, found again in a block: noise repeats itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.digits import Ints
from loganalyze_parsers.kernel import Known, kernel

#: Of fewer lines each is looked up by itself.
_FEW = 64
#: The compiled loops learn of new lines when there are so many, as a share of those they know.
_NEW_SHARE = 0.125
#: Of longer lines each is looked up by itself: the loops hold a copy of those that they know.
_MOST_BYTES = 512

Kinds = npt.NDArray[np.int32]


class SeenLines:
    """Finds remembered lines; holds nothing that the memory itself does not say."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.rules: list[str | None] = []  # by kind
        self._kinds: dict[str | None, int] = {}
        self._known: Known | None = None
        self._count = 0  # lines that were remembered then
        self._kind_of_known = np.zeros(0, dtype=np.int32)

    def look(
        self, block: Block, lines: Ints, seen: Mapping[bytes, str | None]
    ) -> tuple[Kinds, dict[int, bytes]]:
        """The kind of each of those lines of a block, and by place those that were never seen (-1).

        seen: what is remembered; it only grows from call to call.
        """
        kinds = self._by_kernel(block, lines, seen)
        fresh = np.flatnonzero(kinds < 0)
        starts, ends = (bounds[lines[fresh]].tolist() for bounds in block.bounds)
        unseen: dict[int, bytes] = {}
        for place, start, end in zip(fresh.tolist(), starts, ends, strict=True):
            line = block.data[start:end]
            if line in seen:
                kinds[place] = self.kind(seen[line])
            else:
                unseen[place] = line
        return kinds, unseen

    def kind(self, rule: str | None) -> int:
        """The number of a rule."""
        if rule not in self._kinds:
            self._kinds[rule] = len(self.rules)
            self.rules.append(rule)
        return self._kinds[rule]

    def counted(self, kinds: Kinds) -> Counter[str | None]:
        """How many lines were of each rule."""
        counts = np.bincount(kinds, minlength=len(self.rules)).tolist()
        return Counter({rule: n for rule, n in zip(self.rules, counts, strict=True) if n})

    def _by_kernel(self, block: Block, lines: Ints, seen: Mapping[bytes, str | None]) -> Kinds:
        """As look(), of the lines that the compiled loops know; -1 for all others."""
        compiled = kernel() if len(lines) >= _FEW and seen else None
        if compiled is None:
            return np.full(len(lines), -1, dtype=np.int32)
        if self._known is None or len(seen) - self._count > _NEW_SHARE * self._count:
            short = {line: rule for line, rule in seen.items() if len(line) <= _MOST_BYTES}
            self._known, self._count = compiled.known(list(short)), len(seen)
            self._kind_of_known = np.array([*map(self.kind, short.values()), -1], dtype=np.int32)
        places = compiled.seen(self._known, block.data, *block.bounds, lines)
        return self._kind_of_known[places]  # that of -1 is the last
