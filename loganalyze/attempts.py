"""A console that holds several attempts of one run, taken apart where its steps go back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.model import Event
from loganalyze.parts import Parts

IntArray = npt.NDArray[np.int64]

#: Source and offset in one number that grows along a run's inputs.
_SOURCE = 1 << 44
_BEGIN, _END = -1, 2**62
#: What a trainer says before the first row of an attempt.
_OPENINGS = frozenset({"config", "checkpoint_load", "start_fresh"})


def places_of(frame: pl.DataFrame) -> IntArray:
    """Where each row of a readings frame stands, as one growing number."""
    place = pl.col("source").cast(pl.Int64) * _SOURCE + pl.col("offset")
    return frame.select(place).to_series().to_numpy()


def attempts(parts: Parts, steps: IntArray, places: IntArray) -> list[tuple[Parts, slice]]:
    """The parts of each attempt, and which of the records are its own.

    steps and places: of a console's records, in order. An attempt begins with what the trainer
    says before its first row, where it says something.
    """
    first = [0, *(np.flatnonzero(np.diff(steps) < 0) + 1).tolist(), len(steps)]
    if len(first) == 2:
        return [(parts, slice(0, len(steps)))]
    edges = [_BEGIN]
    for record in first[1:-1]:
        edges.append(_opening(parts.events, int(places[record - 1]), int(places[record])))
    edges.append(_END)
    cut = [_between(parts, *edge) for edge in pairwise(edges)]
    cut[0].problems.extend(parts.problems)
    return [(part, slice(*own)) for part, own in zip(cut, pairwise(first), strict=True)]


def _place(event: Event) -> int:
    return event.ref.source * _SOURCE + event.ref.offset


def _opening(events: Sequence[Event], before: int, record: int) -> int:
    """Where the attempt begins whose first record that is."""
    said = (_place(event) for event in events if event.kind in _OPENINGS)
    return min((place for place in said if before < place < record), default=record)


def _between(parts: Parts, begin: int, end: int) -> Parts:
    """Frames and events from one place to another."""
    frames = []
    for frame in parts.frames:
        places = places_of(frame)
        own = frame.filter(pl.Series((places >= begin) & (places < end)))
        if len(own):
            frames.append(own)
    events = [event for event in parts.events if begin <= _place(event) < end]
    return Parts(frames=frames, events=events, frameworks=Counter(parts.frameworks))
