"""Sparklines: a metric in one line of text, extremes kept, NaN as an exclamation mark."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from loganalyze.model import Finding
from loganalyze.report.model import RunView
from loganalyze.running import median
from loganalyze.tracks import FloatArray, Track, tracks

BARS = "▁▂▃▄▅▆▇█"


class Spark(Struct, frozen=True, kw_only=True):
    """Bars over steps [first, last]; low and high are the values of the lowest and highest bar."""

    bars: str
    first: int
    last: int
    low: float
    high: float


def spark(run: RunView, metric: str | None, finding: Finding | None, columns: int) -> Spark | None:
    """A metric over the whole run, or around a finding (its length on each side, 50 at least)."""
    if metric is None:
        return None
    wanted = None if finding is None else finding.segment
    rank = None if finding is None else finding.rank
    made = [t for t in tracks(run.diagnosis.run, metric) if wanted is None or t.segment == wanted]
    near = [track for track in made if rank is None or track.rank in (rank, None)] or made
    track = max(near, key=len, default=None)
    if track is None:
        return None
    keep = np.ones(len(track), dtype=bool) if finding is None else _window(track, finding)
    steps, values = track.steps[keep], track.values[keep]
    if len(values) < 2:
        return None
    return _drawn(steps, values, columns)


def _window(track: Track, finding: Finding) -> np.ndarray:
    if finding.step_first is None:
        return np.ones(len(track), dtype=bool)
    last = finding.step_last if finding.step_last is not None else finding.step_first
    side = max(50 * track.interval, last - finding.step_first)
    return (track.steps >= finding.step_first - side) & (track.steps <= last + side)


def _drawn(steps: np.ndarray, values: FloatArray, columns: int) -> Spark | None:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high, middle = float(finite.min()), float(finite.max()), 2 * median(finite / 2)
    edges = np.unique(np.linspace(0, len(values), min(columns, len(values)) + 1).astype(int))
    bars = "".join(_bar(values[a:b], low, high, middle) for a, b in pairwise(edges.tolist()))
    return Spark(bars=bars, first=int(steps[0]), last=int(steps[-1]), low=low, high=high)


def _bar(part: FloatArray, low: float, high: float, middle: float) -> str:
    """The value farthest from the median of all; ! where the log said NaN or Inf."""
    if not np.isfinite(part).all():
        return "!"
    if high <= low:
        return BARS[0]
    value = float(part[np.argmax(np.abs(part / 2 - middle / 2))])  # halves never overflow
    if not np.isfinite(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return BARS[min(7, int(8 * ((value - low) / (high - low))))]
