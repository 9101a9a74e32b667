"""Batches of one run -> RunLog: rows joined, placeholders out, steps and segments set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from loganalyze.event_rows import KEYS, events_frame, parts_before, segment_at
from loganalyze.long_runs import LONGEST
from loganalyze.masking import mask, masked_event, masked_problem
from loganalyze.memory_rows import memory_beside
from loganalyze.model import (
    READING_COLUMNS,
    Event,
    Problem,
    RunLog,
    RunMeta,
    Source,
)
from loganalyze.rank_column import with_told_ranks
from loganalyze.segments import IntArray, cut_segments, integers, middle
from loganalyze.spill import mapped, release, slices, trim

#: A step beyond this is none: a double, as trackers use, holds no larger integer.
MOST_STEP = 2**53
#: Metrics that some set-ups print as a constant zero because nothing is wired to them.
PLACEHOLDER_ZERO = ("grad_norm", "params_norm")
#: What counts where a log has none of the metrics below: an engine's throughput lines alone.
THROUGHPUT = ("samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu", "raw/SamplesPerSec")
#: A row with none of these is not a training step's record (validation, memory, timers).
TRAINING_METRICS = (
    "loss", "grad_norm", "lr", "samples_seen", "reward", "step_time_s", "kl", "response_length",
)  # fmt: skip


def empty_readings() -> pl.DataFrame:
    """A readings frame without rows and metrics."""
    return pl.DataFrame(schema=dict(KEYS))


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
    rows = with_told_ranks(memory_beside(joined(frames), parts_before(sources)))
    readings = masked_names(rows)
    found = [masked_problem(problem) for problem in problems]
    readings = _without_placeholders(readings, found)
    (trim if len(readings) > LONGEST else release)()  # what reading had is not needed beside it
    ordered = ordered_events(events)
    loads = loads_of(ordered)
    training = _is_training(readings)
    release()
    cut = cut_segments(readings, loads, training)
    readings = _labelled(readings, cut.labels)
    metrics = sorted(set(readings.columns) - set(READING_COLUMNS))
    readings = readings.select(*READING_COLUMNS, *metrics)
    (trim if len(readings) > LONGEST else release)()
    meta = RunMeta(
        id=run_id,
        framework=framework,
        segments=cut.segments,
        config=config_of(ordered),
        log_interval=_interval(readings, training),
        grouping=mask(grouping),
    )
    return RunLog(
        meta=meta,
        readings=readings,
        events=events_frame(
            ordered, readings, partial(segment_at, cut.segments), parts_before(sources)
        ),
        problems=tuple(found),
        sources=tuple(sources),
    )


def masked_names(readings: pl.DataFrame) -> pl.DataFrame:
    """Columns whose names hold a secret under masked names, each its own."""
    fresh: dict[str, str] = {}
    for name in readings.columns:
        if name.startswith("raw/") and (masked := mask(name)) != name:
            taken = {*readings.columns, *fresh.values()}
            numbered = (masked, *(f"{masked}-{number}" for number in range(2, len(taken) + 3)))
            fresh[name] = next(one for one in numbered if one not in taken)
    return readings.rename(fresh) if fresh else readings


def _labelled(readings: pl.DataFrame, labels: IntArray) -> pl.DataFrame:
    """With the column `segment`, chunk by chunk: a whole column would copy all others.

    labels: -1 where a row has none; it is then of the first.
    """
    told = pl.DataFrame({"segment": np.maximum(labels, 0).astype(np.int32)})
    told = mapped(told) if len(told) > LONGEST else told
    parts: list[pl.DataFrame] = []
    place, first = readings.get_column_index("segment"), 0
    for size in readings["line"].chunk_lengths():
        part = readings.slice(first, size)
        part.replace_column(place, told["segment"].slice(first, size))
        parts.append(part)
        first += size
    return pl.concat(parts)


def ordered_events(events: Sequence[Event]) -> list[Event]:
    """Events as they are stored, in the order of the inputs."""
    return sorted(map(_kept, events), key=lambda event: (event.ref.source, event.ref.offset))


def _kept(event: Event) -> Event:
    """The event as it is stored: secrets masked, no step or rank that no run has."""
    event = masked_event(event)
    step = event.step if event.step is None or abs(event.step) <= MOST_STEP else None
    rank = event.rank if event.rank is None or abs(event.rank) < 2**31 else None
    if step is event.step and rank is event.rank:
        return event
    return replace(event, step=step, rank=rank)


def training_rows(readings: pl.DataFrame) -> pl.DataFrame:
    """The rows that are a training step's record: a step, and a number of the step itself.

    Where the log has a loss (or a reward), rows without it count only if they are plainly the
    trainer's own line (a skipped step): an engine's progress line beside it is no second record.
    Where it has neither, the line with the learning rate is the record, timers beside it are not.
    """
    return readings.filter(record(readings.columns))


def _is_training(readings: pl.DataFrame) -> npt.NDArray[np.bool_]:
    told = record(readings.columns)
    parts = [piece.select(told).to_series().to_numpy() for piece in slices(readings, LONGEST)]
    return np.concatenate([np.zeros(0, dtype=bool), *parts])


def record(columns: Collection[str]) -> pl.Expr:
    """Whether a row is a training step's record, where a log has these columns."""
    known = [name for name in TRAINING_METRICS if name in columns]
    known = known or [name for name in THROUGHPUT if name in columns]
    if not known:
        return pl.col("step").is_null() & pl.col("step").is_not_null()  # no row at all
    held = {name: pl.col(name).is_not_null() for name in known}
    main = next((held[name] for name in ("loss", "reward", "lr") if name in held), None)
    if main is None:
        record = pl.any_horizontal(list(held.values()))
    else:
        own = [held[name] for name in ("grad_norm", "samples_seen") if name in held]
        if "lr" in held and "step_time_s" in held:
            own.append(held["lr"] & held["step_time_s"])
        record = pl.any_horizontal([main, *own])
    return pl.col("step").is_not_null() & record


def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The frames as one with all key columns; a step beyond MOST_STEP is none."""
    parts = [frame for frame in frames if len(frame)]
    if not parts:
        return empty_readings()
    joined = pl.concat(parts, how="diagonal")
    if not _are_steps(joined["step"]):
        step = pl.col("step").cast(pl.Int64, strict=False)
        step = pl.when(step.is_between(-MOST_STEP, MOST_STEP)).then(step)
        joined = joined.with_columns(step=step)
    missing = [name for name in KEYS if name not in joined.columns]
    return joined.with_columns(
        *(pl.lit(None, dtype=KEYS[name]).alias(name) for name in missing),
    ).with_columns(pl.col(name).cast(kind, strict=False) for name, kind in KEYS.items())


def _are_steps(column: pl.Series) -> bool:
    """Whether all are steps that a run may have; then the column stays where it is."""
    if column.dtype != pl.Int64:
        return False
    for chunk in column.get_chunks():
        ends = [end for end in (chunk.min(), chunk.max()) if isinstance(end, int)]
        if any(abs(end) > MOST_STEP for end in ends):
            return False
        release()
    return True


def _without_placeholders(readings: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """A metric that is 0 on every line says nothing: nobody wired it."""
    for name in PLACEHOLDER_ZERO:
        if name not in readings.columns:
            continue
        said = len(readings) - readings[name].null_count()
        if said and _is_zero(readings[name]):
            readings = readings.drop(name)
            problems.append(placeholder(name, said))
    return readings


def placeholder(name: str, lines: int) -> Problem:
    """What is told of a metric that is 0 on every line that says it."""
    message = f"{name} is 0 on all {lines} lines: a placeholder, not data"
    return Problem(rule="placeholder_metric", message=message)


def _is_zero(values: pl.Series) -> bool:
    """Whether nothing but zeros is said; chunk by chunk, as most need only the first."""
    return all(bool((chunk.drop_nulls() == 0.0).all()) for chunk in values.get_chunks())


def loads_of(events: Sequence[Event]) -> pl.DataFrame:
    """Source, offset and step of every check-point that was loaded and every fresh start."""
    rows = [event for event in events if event.kind in ("checkpoint_load", "start_fresh")]
    return pl.DataFrame(
        {
            "source": [event.ref.source for event in rows],
            "offset": [event.ref.offset for event in rows],
            "step": [event.step if event.kind == "checkpoint_load" else 0 for event in rows],
        },
        schema={"source": pl.Int64, "offset": pl.Int64, "step": pl.Int64},
    )


def config_of(events: Sequence[Event]) -> dict[str, str]:
    """The settings that the events tell, the last word of each."""
    config: dict[str, str] = {}
    for event in events:
        if event.kind == "config":
            told = event.detail.items()
            config.update({name: str(value) for name, value in told if not name.startswith("@")})
    return dict(sorted(config.items()))


def _interval(readings: pl.DataFrame, training: npt.NDArray[np.bool_]) -> int:
    """Steps between two readings of the loss (median over all segments), at least 1.

    Of a very long run the first rows tell.
    """
    training = training[:LONGEST]
    steps = integers(readings["step"].head(len(training)))
    gaps = np.diff(steps if training.all() else steps[training])
    del steps
    gaps = gaps[gaps > 0]
    return max(middle(gaps), 1) if len(gaps) else 1
