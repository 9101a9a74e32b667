"""Lines that several layouts read, as columns in the order of the lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from loganalyze_parsers.digits import Bools, Ints
from loganalyze_parsers.lessons import Found
from loganalyze_parsers.spans import Floats


class Rows:
    """The rows of a block: `lines` are their indices, growing; `names` all slots that occur."""

    def __init__(self, found: Sequence[Found]) -> None:
        """found: at least one; no line twice."""
        lines = np.concatenate([one.lines for one in found])
        order = np.argsort(lines, kind="stable")
        self.lines: Ints = lines[order]
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        ends = np.cumsum([len(one.lines) for one in found])
        self._parts: list[tuple[Found, Ints, dict[str, int]]] = []
        for one, end in zip(found, ends.tolist(), strict=True):
            slots = {slot.name: index for index, slot in enumerate(one.lesson.slots)}
            self._parts.append((one, places[end - len(one.lines) : end], slots))
        self.names = tuple(dict.fromkeys(name for _, _, slots in self._parts for name in slots))

    def column(self, name: str) -> Floats:
        """Values of a slot; unset where held() is false."""
        values = np.zeros(len(self.lines))
        for one, places, slots in self._parts:
            if name in slots:
                values[places] = one.values[slots[name]]
        return values

    def held(self, name: str) -> Bools:
        """Which rows have the slot."""
        if all(name in slots for _, _, slots in self._parts):
            return np.ones(len(self.lines), dtype=bool)
        held = np.zeros(len(self.lines), dtype=bool)
        for _, places, slots in self._parts:
            held[places] = name in slots
        return held

    def constant(self, name: str) -> pl.Series | pl.Expr:
        """What the lessons say of `name`, row by row; a null literal where none says anything."""
        said = {one.lesson.constants[name] for one, _, _ in self._parts}
        if said == {None}:
            return pl.lit(None)
        values = np.full(len(self.lines), -1, dtype=np.int64)
        for one, places, _ in self._parts:
            value = one.lesson.constants[name]
            values[places] = -1 if value is None else value
        series = pl.Series(values, dtype=pl.Int64)
        return series.set(series < 0, None) if None in said else series
