"""Runs with known truth: curves with planted events, and RunLogs made of arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.signal import lfilter

from loganalyze.model import Account, RunLog, RunMeta, Segment, Source

Floats = npt.NDArray[np.float64]
_EVENT_SCHEMA = {
    "kind": pl.String(), "step": pl.Int64(), "segment": pl.Int32(), "rank": pl.Int32(),
    "wall_s": pl.Float64(), "source": pl.Int32(), "line": pl.Int64(), "offset": pl.Int64(),
    "length": pl.Int64(), "text": pl.String(), "detail": pl.String(),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One planted spike: points [first, last], height as a share of the value below."""

    first: int
    last: int
    height: float


def noise(
    rng: np.random.Generator, n: int, share: float, *, freedom: float = 5.0, memory: float = 0.3
) -> Floats:
    """Autocorrelated heavy-tailed noise (Student's t through AR(1)) of standard deviation share."""
    shock = rng.standard_t(freedom, n + 200) * np.sqrt((freedom - 2) / freedom)
    out = lfilter([1.0], [1.0, -memory], shock)
    return np.asarray(share * np.sqrt(1 - memory**2) * out[200:])


def power_law(n: int, *, floor: float = 1.8, height: float = 8.0, power: float = 0.35) -> Floats:
    """A pre-training loss without noise: floor + height * step**-power, steps from 1."""
    return floor + height * np.arange(1, n + 1, dtype=np.float64) ** -power


def plant(values: Floats, spikes: Sequence[Planted]) -> Floats:
    """The values with every spike multiplied in."""
    out = values.copy()
    for spike in spikes:
        out[spike.first : spike.last + 1] *= 1.0 + spike.height
    return out


def make_run(
    metrics: Mapping[str, Sequence[float | None] | Floats],
    *,
    steps: Sequence[int] | npt.NDArray[np.int64] | None = None,
    segments: Sequence[int] | None = None,
    ranks: Sequence[int | None] | None = None,
    relations: Sequence[str] = ("start",),
    events: Sequence[Mapping[str, object]] = (),
    config: Mapping[str, str] | None = None,
) -> RunLog:
    """A run of arrays of one length; None is an absent number. Steps count from 1 by default.

    Every row is line `row + 1` of one source, 100 bytes a line. relations: of the segments.
    """
    n = len(next(iter(metrics.values())))
    step = np.arange(1, n + 1) if steps is None else np.asarray(steps)
    segment = np.zeros(n, dtype=np.int64) if segments is None else np.asarray(segments)
    frame = pl.DataFrame(
        {
            "step": pl.Series(step, dtype=pl.Int64),
            "segment": pl.Series(segment, dtype=pl.Int32),
            "rank": pl.Series([None] * n if ranks is None else list(ranks), dtype=pl.Int32),
            "wall_s": pl.Series(np.arange(n, dtype=np.float64)),
            "source": pl.Series(np.zeros(n, dtype=np.int64), dtype=pl.Int32),
            "line": pl.Series(np.arange(1, n + 1), dtype=pl.Int64),
            "offset": pl.Series(100 * np.arange(n), dtype=pl.Int64),
            "length": pl.Series(np.full(n, 99), dtype=pl.Int64),
            **{name: pl.Series(list(v), dtype=pl.Float64) for name, v in metrics.items()},
        }
    )
    gaps = np.diff(step)
    interval = int(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1
    return RunLog(
        meta=RunMeta(
            id="synth",
            framework="synth",
            segments=_segments(step, segment, relations),
            config=dict(config or {}),
            log_interval=interval,
        ),
        readings=frame,
        events=_events(events),
        problems=(),
        sources=(_source(n),),
    )


def _segments(
    step: npt.NDArray[np.int64], label: npt.NDArray[np.int64], relations: Sequence[str]
) -> tuple[Segment, ...]:
    made = []
    for index in np.unique(label):
        part = step[label == index]
        relation = relations[min(int(index), len(relations) - 1)]
        made.append(
            Segment(
                index=int(index),
                first=int(part.min()),
                last=int(part.max()),
                count=len(part),
                relation=relation,  # type: ignore[arg-type]
            )
        )
    return tuple(made)


def _events(events: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    rows = []
    for number, event in enumerate(events):
        detail = event.get("detail", {})
        rows.append(
            {
                "kind": event["kind"],
                "step": event.get("step"),
                "segment": event.get("segment", 0),
                "rank": event.get("rank"),
                "wall_s": event.get("wall_s"),
                "source": 0,
                "line": 1_000_000 + number,
                "offset": 0,
                "length": 10,
                "text": event.get("text", ""),
                "detail": json.dumps(detail),
            }
        )
    return pl.DataFrame(rows, schema=_EVENT_SCHEMA)


def _source(lines: int) -> Source:
    return Source(
        path="synth.log",
        sha256="0" * 64,
        bytes=100 * lines,
        parser="synth",
        encoding="utf-8",
        account=Account(lines=lines, read=lines),
    )
