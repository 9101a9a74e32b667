"""Batches of one run -> RunLog: rows joined, placeholders out, steps and segments set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.model import (
    EVENT_COLUMNS,
    READING_COLUMNS,
    Event,
    Problem,
    RunLog,
    RunMeta,
    Source,
)
from loganalyze.segments import cut_segments

_KEYS: Mapping[str, pl.DataType] = {
    "step": pl.Int64(), "segment": pl.Int32(), "rank": pl.Int32(), "wall_s": pl.Float64(),
    "source": pl.Int32(), "line": pl.Int64(), "offset": pl.Int64(), "length": pl.Int64(),
}  # fmt: skip
EVENT_SCHEMA: Mapping[str, pl.DataType] = {
    "kind": pl.String(), **_KEYS, "text": pl.String(), "detail": pl.String(),
}  # fmt: skip
#: A step beyond this is none: a double, as trackers use, holds no larger integer.
MOST_STEP = 2**53
#: Metrics that some set-ups print as a constant zero because nothing is wired to them.
_PLACEHOLDER_ZERO = ("grad_norm", "params_norm")
#: A row with none of these is not a training step's record (validation, memory, timers).
TRAINING_METRICS = (
    "loss", "grad_norm", "lr", "samples_seen", "reward", "step_time_s", "kl", "response_length",
)  # fmt: skip


def empty_readings() -> pl.DataFrame:
    """A readings frame without rows and metrics."""
    return pl.DataFrame(schema=dict(_KEYS))


def assemble(
    run_id: str,
    frames: Sequence[pl.DataFrame],
    events: Sequence[Event],
    problems: Sequence[Problem],
    sources: Sequence[Source],
    *,
    framework: str,
    grouping: str,
) -> RunLog:
    """One run of its parts. frames: in the order of the sources, rows in the order written."""
    readings = _joined(frames)
    found = list(problems)
    readings = _without_placeholders(readings, found)
    ordered = sorted(map(_bounded, events), key=lambda event: (event.ref.source, event.ref.offset))
    loads = _loads(ordered)
    cut = cut_segments(readings, loads, _is_training(readings))
    readings = readings.with_columns(segment=pl.Series(np.maximum(cut.labels, 0)).cast(pl.Int32))
    metrics = sorted(set(readings.columns) - set(READING_COLUMNS))
    readings = readings.select(*READING_COLUMNS, *metrics)
    meta = RunMeta(
        id=run_id,
        framework=framework,
        segments=cut.segments,
        config=_config(ordered),
        log_interval=_interval(readings),
        grouping=grouping,
    )
    return RunLog(
        meta=meta,
        readings=readings,
        events=_events_frame(ordered, readings),
        problems=tuple(found),
        sources=tuple(sources),
    )


def _bounded(event: Event) -> Event:
    """The event without a step or rank that no run has."""
    step = event.step if event.step is None or abs(event.step) <= MOST_STEP else None
    rank = event.rank if event.rank is None or abs(event.rank) < 2**31 else None
    if step is event.step and rank is event.rank:
        return event
    return replace(event, step=step, rank=rank)


def training_rows(readings: pl.DataFrame) -> pl.DataFrame:
    """The rows that are a training step's record: a step, and a number of the step itself.

    Where the log has a loss (or a reward), rows without it count only if they are plainly the
    trainer's own line (a skipped step): an engine's progress line beside it is no second record.
    """
    return readings.filter(_record(readings.columns))


def _is_training(readings: pl.DataFrame) -> npt.NDArray[np.bool_]:
    return readings.select(_record(readings.columns)).to_series().to_numpy()


def _record(columns: Sequence[str]) -> pl.Expr:
    known = [name for name in TRAINING_METRICS if name in columns]
    if not known:
        return pl.col("step").is_null() & pl.col("step").is_not_null()  # no row at all
    held = {name: pl.col(name).is_not_null() for name in known}
    main = next((held[name] for name in ("loss", "reward") if name in held), None)
    if main is None:
        record = pl.any_horizontal(list(held.values()))
    else:
        own = [held[name] for name in ("grad_norm", "samples_seen") if name in held]
        if "lr" in held and "step_time_s" in held:
            own.append(held["lr"] & held["step_time_s"])
        record = pl.any_horizontal([main, *own])
    return pl.col("step").is_not_null() & record


def _joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    parts = [frame for frame in frames if len(frame)]
    if not parts:
        return empty_readings()
    joined = pl.concat(parts, how="diagonal")
    step = pl.col("step").cast(pl.Int64, strict=False)
    joined = joined.with_columns(step=pl.when(step.is_between(-MOST_STEP, MOST_STEP)).then(step))
    missing = [name for name in _KEYS if name not in joined.columns]
    return joined.with_columns(
        *(pl.lit(None, dtype=_KEYS[name]).alias(name) for name in missing),
    ).with_columns(pl.col(name).cast(kind, strict=False) for name, kind in _KEYS.items())


def _without_placeholders(readings: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """A metric that is 0 on every line says nothing: nobody wired it."""
    for name in _PLACEHOLDER_ZERO:
        if name not in readings.columns:
            continue
        values = readings[name].drop_nulls()
        if len(values) and bool((values == 0.0).all()):
            readings = readings.drop(name)
            problems.append(
                Problem(
                    rule="placeholder_metric",
                    message=f"{name} is 0 on all {len(values)} lines: a placeholder, not data",
                )
            )
    return readings


def _loads(events: Sequence[Event]) -> pl.DataFrame:
    rows = [event for event in events if event.kind in ("checkpoint_load", "start_fresh")]
    return pl.DataFrame(
        {
            "source": [event.ref.source for event in rows],
            "offset": [event.ref.offset for event in rows],
            "step": [event.step if event.kind == "checkpoint_load" else 0 for event in rows],
        },
        schema={"source": pl.Int64, "offset": pl.Int64, "step": pl.Int64},
    )


def _config(events: Sequence[Event]) -> dict[str, str]:
    config: dict[str, str] = {}
    for event in events:
        if event.kind == "config":
            config.update({name: str(value) for name, value in event.detail.items()})
    return dict(sorted(config.items()))


def _interval(readings: pl.DataFrame) -> int:
    """Steps between two readings of the loss (median over all segments), at least 1."""
    rows = training_rows(readings)
    gaps = rows["step"].diff().drop_nulls() if len(rows) else pl.Series([], dtype=pl.Int64)
    gaps = gaps.filter(gaps > 0)
    return int(gaps.median() or 1) if len(gaps) else 1  # type: ignore[arg-type]


def _events_frame(events: Sequence[Event], readings: pl.DataFrame) -> pl.DataFrame:
    """Events with the step and segment of the last row before them in the same input."""
    columns: dict[str, list[object]] = {name: [] for name in EVENT_COLUMNS}
    places = _Places(readings)
    for event in events:
        step, segment = places.before(event.ref.source, event.ref.offset)
        ref = event.ref
        row = (
            event.kind, step if event.step is None else event.step, segment, event.rank,
            event.wall_s, ref.source, ref.line, ref.offset, ref.length, event.text,
            json.dumps(dict(event.detail), ensure_ascii=False, sort_keys=True),
        )  # fmt: skip
        for name, value in zip(EVENT_COLUMNS, row, strict=True):
            columns[name].append(value)
    return pl.DataFrame(columns, schema=dict(EVENT_SCHEMA))


class _Places:
    """Looks up the row that stands last before a place in an input."""

    def __init__(self, readings: pl.DataFrame) -> None:
        rows = readings.filter(pl.col("step").is_not_null()).sort("source", "offset")
        self._sources = rows["source"].to_numpy()
        self._offsets = rows["offset"].to_numpy()
        self._steps = rows["step"].to_list()
        self._segments = rows["segment"].to_list()

    def before(self, source: int, offset: int) -> tuple[int | None, int]:
        """Step and segment of that row; (None, 0) before the first."""
        low = int(np.searchsorted(self._sources, source))
        high = int(np.searchsorted(self._sources, source, side="right"))
        at = low + int(np.searchsorted(self._offsets[low:high], offset, side="right")) - 1
        if at < low:
            return None, int(self._segments[low]) if low < high else 0
        return int(self._steps[at]), int(self._segments[at])
