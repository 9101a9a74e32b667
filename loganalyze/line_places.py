"""Where rows stand in their inputs, and which checkpoint loads stand before them.

Piece by piece: a run has millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.spill import slices

IntArray = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
_PIECE = 1 << 18  # rows looked at together


def borders(readings: pl.DataFrame, loads: pl.DataFrame) -> IntArray:
    """How many loads stand before each row; a change marks a possible start of a segment."""
    if not len(loads):
        return all_alike(0, len(readings))
    at = np.sort(line_places(loads))
    made: IntArray = np.empty(len(readings), np.int16 if len(loads) < 2**15 else np.int32)
    for first, piece in _pieces(readings):
        made[first : first + len(piece)] = np.searchsorted(at, line_places(piece))
    return made


def _pieces(readings: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Where rows stand in their inputs, piece by piece, with the number of the first row."""
    first = 0
    for piece in slices(readings.select("source", "offset"), _PIECE):
        yield first, piece
        first += len(piece)


def line_places(frame: pl.DataFrame) -> Floats:
    """Source and offset in one sortable number (offsets stay below 2**40)."""
    source, offset = (frame[name].to_numpy().astype(np.float64) for name in ("source", "offset"))
    return source * float(2**40) + offset


def all_alike(value: int, size: int) -> IntArray:
    """One value many times, in the memory of one; not to be written to."""
    return np.broadcast_to(np.int8(value), (size,))


def first_behind(readings: pl.DataFrame, labels: IntArray, places: Floats) -> list[int]:
    """For each place the first row at or behind it that has a label; -1 where there is none."""
    found = np.full(len(places), -1)
    open_ones = np.argsort(places)
    for first, piece in _pieces(readings):
        held = np.flatnonzero(labels[first : first + len(piece)] >= 0)
        at = line_places(piece)[held]
        highest = np.maximum.accumulate(at)
        end = np.searchsorted(places[open_ones], highest[-1:].max(initial=-1), side="right")
        found[open_ones[:end]] = first + held[np.searchsorted(highest, places[open_ones[:end]])]
        open_ones = open_ones[end:]
        if not len(open_ones):
            break
    return found.tolist()
