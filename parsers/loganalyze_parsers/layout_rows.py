"""Lines that several layouts read, as columns in the order of the lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from loganalyze_parsers.digits import Bools, Ints
from loganalyze_parsers.frames import masked_column
from loganalyze_parsers.lessons import Formula, Found
from loganalyze_parsers.spans import Floats


class Rows:
    """The rows of a block: `lines` are their indices, growing; `names` all slots that occur."""

    def __init__(self, found: Sequence[Found]) -> None:
        """found: at least one; no line twice."""
        self._all = found[0] if len(found) == 1 else _merged(found)
        self.lines: Ints = self._all.lines
        self.names = tuple(sorted(self._all.names))  # whatever was read before
        own = [{slot.name for slot in lesson.slots} for lesson in self._all.lessons]
        self._held = {name: np.array([name in names for names in own]) for name in self.names}
        self._places = {name: place for place, name in enumerate(self._all.names)}

    def column(self, name: str) -> Floats:
        """Values of a slot; 0.0 where held() is false."""
        values = self._all.values[self._places[name]]
        return values if self._held[name].all() else np.where(self.held(name), values, 0.0)

    def series(self, name: str, factor: float = 1.0) -> pl.Series:
        """Values of a slot times a factor, null where held() is false."""
        values = self.column(name)
        values = values if factor == 1.0 else values * factor
        whole = self._held[name].all()
        return pl.Series(name, values) if whole else masked_column(values, ~self.held(name))

    def held(self, name: str) -> Bools:
        """Which rows have the slot."""
        held = self._held.get(name, np.zeros(1, dtype=bool))
        if held.all() or not held.any():
            return np.full(len(self.lines), held.all())
        return np.asarray(held[self._all.which])

    def formulas(self, name: str) -> tuple[Floats, Bools]:
        """Values that formulas give for a name, 0.0 where none does; and where one does."""
        values, told = np.zeros(len(self.lines)), np.zeros(len(self.lines), dtype=bool)
        for number, lesson in enumerate(self._all.lessons):
            for formula in (one for one in lesson.formulas if one.name == name):
                mine = self._all.which == number
                values[mine], told[mine] = self._computed(formula, mine), True
        return values, told

    def _computed(self, formula: Formula, mine: Bools) -> Floats:
        value = np.zeros(int(mine.sum()))
        for part in formula.parts:
            value = value * 1000.0 + self.column(part)[mine]
        value = value * formula.factor
        if formula.by:
            with np.errstate(all="ignore"):  # a share of nothing
                value = value / (self.column(formula.by)[mine] * formula.share)
        return value

    @property
    def divisors(self) -> frozenset[str]:
        """Slots by which formulas divide."""
        return frozenset(formula.by for one in self._all.lessons for formula in one.formulas)

    @property
    def computed(self) -> tuple[str, ...]:
        """Names that formulas give, in order."""
        return tuple(sorted({f.name for one in self._all.lessons for f in one.formulas}))

    def constant(self, name: str) -> pl.Series:
        """What the lessons say of `name`, row by row; null where one says nothing."""
        said = [lesson.constants[name] for lesson in self._all.lessons]
        if len(set(said)) == 1:
            return pl.Series([said[0]], dtype=pl.Int32).new_from_index(0, len(self.lines))
        return pl.Series(said, dtype=pl.Int32)[self._all.which]


def _merged(found: Sequence[Found]) -> Found:
    """All of them as one, in the order of the lines."""
    lines = np.concatenate([one.lines for one in found])
    order = np.argsort(lines, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    names = {name: n for n, name in enumerate(dict.fromkeys(n for one in found for n in one.names))}
    values = np.zeros((len(names), len(lines)))
    which = np.empty(len(lines), dtype=np.int32)
    first = lessons = 0
    for one in found:
        at = places[first : first + len(one.lines)]
        which[at] = one.which + lessons
        for name, row in zip(one.names, one.values, strict=True):
            values[names[name], at] = row
        first, lessons = first + len(at), lessons + len(one.lessons)
    told = tuple(lesson for one in found for lesson in one.lessons)
    return Found(told, which, tuple(names), lines[order], values)
