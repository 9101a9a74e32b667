"""Inputs that grow but cannot be read on from where they stopped: read again when they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from loganalyze.errors import LoganalyzeError
from loganalyze.grouping import plan
from loganalyze.ingest import ingest
from loganalyze.model import RunLog

Marks = frozenset[tuple[str, int, int]]


class Reread:
    """Folders, tables, trackers' files, several logs at once: all of it at every look."""

    rows = 0  # no part of it can be looked at alone

    def __init__(
        self,
        paths: Sequence[str],
        named: Sequence[str] = (),
        mapped: Mapping[str, str] | None = None,
    ) -> None:
        """The arguments of ingest."""
        self._paths, self._named, self._mapped = paths, named, mapped
        self._marks: Marks = frozenset()

    def poll(self) -> tuple[bool, bool]:
        """Whether any file came, went or changed; nothing here is known to be urgent."""
        marks = self._look()
        changed, self._marks = marks != self._marks, marks
        return changed, False

    def _look(self) -> Marks:
        marks = set()
        with suppress(LoganalyzeError):
            for group in plan(self._paths, self._named).groups:
                for path in (*group.paths, *group.texts):
                    with suppress(OSError):
                        stat = path.stat()
                        marks.add((str(path), stat.st_size, stat.st_mtime_ns))
        return frozenset(marks)

    def close(self) -> None:
        """Nothing is held open."""

    def runs(self, last_rows: int | None = None) -> tuple[RunLog, ...]:
        """Every run behind the paths; () while there is none."""
        try:
            return ingest(self._paths, named=self._named, mapped=self._mapped).runs
        except LoganalyzeError:
            return ()
