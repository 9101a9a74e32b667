"""Rows of progress bars, which are drawn again and again: the last drawing of a step counts.

A bar moves on before its numbers are renewed, so the first drawing of a step often shows those of
the step before. A row is held until the bar of its rank says another step.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze.model import Reading
from loganalyze_parsers.api import Line

#: The elapsed time of a bar has a resolution of one second: shorter spans are too coarse.
_MIN_SPAN_S = 30.0


class Pace(Struct):
    """Seconds per step, from the elapsed time that a bar shows."""

    _anchor: tuple[int, float] | None = None

    def step_time(self, step: int, elapsed_s: float | None) -> float | None:
        """Mean since the last call that gave one; None while the span is short, or began anew."""
        anchor = self._anchor
        if elapsed_s is None or anchor is None or step <= anchor[0] or elapsed_s < anchor[1]:
            self._anchor = None if elapsed_s is None else (step, elapsed_s)
            return None
        if elapsed_s - anchor[1] < _MIN_SPAN_S:
            return None
        self._anchor = (step, elapsed_s)
        return (elapsed_s - anchor[1]) / (step - anchor[0])


class HeldRows(Struct):
    """The newest row of each rank."""

    _held: dict[int | None, Reading] = field(default_factory=dict)

    def push(self, line: Line, step: int, values: Mapping[str, float]) -> list[Reading]:
        """The row that is complete now: none while the same step is drawn again."""
        row = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        before = self._held.get(line.rank)
        if before is not None and before.step == step:
            self._held[line.rank] = replace(row, values={**before.values, **values})
            return []
        self._held[line.rank] = row
        return [] if before is None else [before]

    def flush(self) -> list[Reading]:
        """All rows that are still held."""
        rows = list(self._held.values())
        self._held.clear()
        return rows
