"""Columns that grow row by row, or many rows at once, for sources of one JSON object a row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from loganalyze.model import Problem
from loganalyze_parsers.digits import Ints
from loganalyze_parsers.history import Table
from loganalyze_parsers.spans import Floats
from loganalyze_parsers.tracker_frames import scattered_columns


class _Many(Struct, frozen=True):
    """Rows with the same names: places, and values (names, rows)."""

    places: Ints  # (3, rows): line, offset, length
    names: Sequence[str]
    values: Floats


class Grown:
    """Rows under construction: start() one, then put() its numbers; or many() at once.

    Rows come out in the order in which they were started; with many(), in that of their lines.
    """

    def __init__(self) -> None:
        self._line = array("q")
        self._offset = array("q")
        self._length = array("q")
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._many: list[_Many] = []

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._line) + sum(len(one.places[0]) for one in self._many)

    def many(self, places: Ints, names: Sequence[str], values: Floats) -> None:
        """Rows with the same names. places: (3, rows) of line, offset and length."""
        self._many.append(_Many(places, names, values))

    def start(self, line: int, offset: int, length: int) -> None:
        """A new row and where it stands."""
        self._line.append(line)
        self._offset.append(offset)
        self._length.append(length)

    def put(self, name: str, value: float | None) -> None:
        """A number of the row that was started last."""
        if value is None:
            return
        pair = self._columns.get(name)
        if pair is None:
            pair = self._columns[name] = (array("q"), array("d"))
        pair[0].append(len(self._line) - 1)
        pair[1].append(value)

    def table(self, *, lines: int, unknown: int = 0, blank: int = 0) -> Table:
        """The rows as columns."""
        places = np.stack(
            [np.asarray(a, np.int64) for a in (self._line, self._offset, self._length)]
        )
        places = np.hstack([places, *(one.places for one in self._many)])
        order = np.arange(places.shape[1])
        if self._many:
            order = np.argsort(places[0], kind="stable")
        row = np.empty(len(order), dtype=np.int64)  # of each place
        row[order] = np.arange(len(order))
        found = self._found(row)
        line, offset, length = places[:, order]
        problems: list[Problem] = []
        return Table(
            columns=scattered_columns(found, len(order), problems, "the history"),
            problems=problems,
            line=line,
            offset=offset,
            length=length,
            lines=lines,
            ignored={"blank line": blank},
            unknown=unknown,
        )

    def _found(self, row: Ints) -> dict[str, tuple[Ints, Floats]]:
        """Rows and values by name, names in the order in which they first occur."""
        parts: dict[str, list[tuple[Ints, Floats]]] = {}
        first: dict[str, tuple[int, int]] = {}  # row, place in the row
        for place, (name, (rows, values)) in enumerate(self._columns.items()):
            at = row[np.asarray(rows)]
            parts[name] = [(at, np.asarray(values))]
            first[name] = (int(at[0]), place)
        begin = len(self._line)
        for one in self._many:
            at = row[begin : begin + len(one.places[0])]
            begin += len(at)
            if not len(at):  # every row of the block went the slow way
                continue
            for place, name in enumerate(one.names):
                parts.setdefault(name, []).append((at, one.values[place]))
                first[name] = min(first.get(name, (len(row), 0)), (int(at[0]), place))
        return {
            name: (np.concatenate([p[0] for p in found]), np.concatenate([p[1] for p in found]))
            for name, found in sorted(parts.items(), key=lambda item: first[item[0]])
        }
