"""Columns that grow row by row, for sources that give one JSON object a row."""

from __future__ import annotations

from array import array

import numpy as np

from loganalyze.model import Problem
from loganalyze_parsers.history import Table
from loganalyze_parsers.tracker_frames import scattered_columns


class Grown:
    """Rows under construction: start() one, then put() its numbers."""

    def __init__(self) -> None:
        self._line = array("q")
        self._offset = array("q")
        self._length = array("q")
        self._columns: dict[str, tuple[array[int], array[float]]] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._line)

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
        found = {
            name: (np.asarray(rows), np.asarray(values))
            for name, (rows, values) in self._columns.items()
        }
        problems: list[Problem] = []
        return Table(
            columns=scattered_columns(found, len(self._line), problems, "the history"),
            problems=problems,
            line=np.asarray(self._line, dtype=np.int64),
            offset=np.asarray(self._offset, dtype=np.int64),
            length=np.asarray(self._length, dtype=np.int64),
            lines=lines,
            ignored={"blank line": blank},
            unknown=unknown,
        )
