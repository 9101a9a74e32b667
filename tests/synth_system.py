"""Makes runs with known truth about speed, memory, ranks and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.assemble import assemble
from loganalyze.config import load_thresholds
from loganalyze.detectors.base import Context
from loganalyze.model import Account, Event, Finding, LineRef, RunLog, Source

FloatArray = npt.NDArray[np.float64]
_LINE_BYTES = 100


def make_run(
    values: Mapping[str, Sequence[float] | FloatArray],
    *,
    steps: Sequence[int] | npt.NDArray[np.int64] | None = None,
    rank: Sequence[int] | npt.NDArray[np.int64] | None = None,
    wall_s: FloatArray | None = None,
    events: Sequence[Event] = (),
    lines: int | None = None,
    unknown: int = 0,
) -> RunLog:
    """A run of one source; row i stands in line 2 i + 2, so that events fit between rows.

    values: metric to one number a row (NaN stands for nan). lines: total lines of the source.
    """
    count = len(next(iter(values.values()))) if values else 0
    at = np.arange(count, dtype=np.int64)
    line = 2 * at + 2
    frame = pl.DataFrame(
        {
            "step": at + 1 if steps is None else np.asarray(steps, dtype=np.int64),
            "rank": pl.Series([None] * count if rank is None else rank, dtype=pl.Int32),
            "wall_s": pl.Series([None] * count if wall_s is None else wall_s, dtype=pl.Float64),
            "source": np.zeros(count, dtype=np.int32),
            "line": line,
            "offset": line * _LINE_BYTES,
            "length": np.full(count, _LINE_BYTES - 1, dtype=np.int64),
            **{name: np.asarray(column, dtype=np.float64) for name, column in values.items()},
        }
    )
    total = 2 * count + 2 if lines is None else lines
    account = Account(lines=total, read=total - unknown, unknown=unknown)
    source = Source(
        path="train.log", sha256="0" * 64, bytes=total * _LINE_BYTES, parser="text",
        encoding="utf-8", account=account,
    )  # fmt: skip
    return assemble(
        "synthetic", [frame] if count else [], events, [], [source], framework="", grouping=""
    )


def event(
    kind: str,
    after_row: int,
    *,
    text: str = "",
    step: int | None = None,
    rank: int | None = None,
    wall_s: float | None = None,
    **detail: str | int | float,
) -> Event:
    """An event in the line after row `after_row` (-1: before the first row)."""
    line = 2 * after_row + 3
    return Event(
        kind=kind,
        ref=LineRef(source=0, line=line, offset=line * _LINE_BYTES, length=_LINE_BYTES - 1),
        text=text or kind,
        step=step,
        rank=rank,
        wall_s=wall_s,
        detail=detail,
    )


def context(run: RunLog, profile: str = "pretrain") -> Context:
    """The context that a detector gets for a run, with the packaged thresholds."""
    return Context(run=run, thresholds=load_thresholds(profile), profile=profile)


def by_kind(found: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Findings by their kind."""
    out: dict[str, list[Finding]] = {}
    for item in found:
        out.setdefault(item.kind, []).append(item)
    return out


def worst(found: Sequence[Finding], kind: str) -> str | None:
    """The worst severity of a kind among findings; None where there is none."""
    order = ("info", "warning", "critical")
    return max((f.severity for f in found if f.kind == kind), key=order.index, default=None)


def step_time(count: int, seed: int, *, usual: float = 2.0, spread: float = 0.02) -> FloatArray:
    """Healthy step times: log-normal jitter, and a slow first step (compilation)."""
    rng = np.random.default_rng(seed)
    time = usual * np.exp(spread * rng.standard_normal(count))
    time[0] *= 15.0
    time[1] *= 2.0
    return time
