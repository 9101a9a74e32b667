"""The pace of a run: seconds per step over whole chains of resumed segments, ready to judge."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.detectors.base import Context
from loganalyze.model import Evidence
from loganalyze.running import median
from loganalyze.segments import distinct
from loganalyze.tracks import FloatArray, IntArray, Track, row_ref, within

BoolArray = npt.NDArray[np.bool_]

#: What tells the speed, best first; all but the first are turned into time per unit of work.
SPEED_METRICS = (
    "step_time_s",
    "tokens_per_s",
    "samples_per_s",
    "tokens_per_s_per_gpu",
    "tflops_per_gpu",
)
#: Times (s) and rates outside of these are misprints, whatever the machine.
_POSSIBLE = (1e-9, 1e15)
#: What a step holds, where it changes during the run (batch ramps, growing sequences).
WORK_METRICS = ("global_batch_size", "seq_len")


class Pace(Struct, frozen=True, kw_only=True):
    """Time per step (or per constant amount of work) of one chain of segments, as logged.

    seconds: time of a record, warm-up of each segment removed; a metric other than step_time_s
    gives relative time (median 1). clock: told by the wall clock, with all that happens between
    steps. marked: the interval of the record holds an evaluation;
    saved: it holds a checkpoint save. `total`: records before the warm-up was removed.
    """

    metric: str
    unit: str
    steps: IntArray
    seconds: FloatArray
    rows: IntArray
    segments: IntArray
    marked: BoolArray
    saved: BoolArray
    interval: int
    total: int
    clock: bool = False

    def __len__(self) -> int:
        """Number of records."""
        return len(self.steps)

    def only(self, keep: BoolArray | IntArray) -> Pace:
        """The pace at chosen records."""
        if keep.dtype == np.bool_ and keep.all():
            return self
        names = ("steps", "seconds", "rows", "segments", "marked", "saved")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Lowest and highest step of records [start, stop), which may hold a resume."""
        part = self.steps[start:stop]
        return int(part.min()), int(part.max())

    def calm(self) -> Pace:
        """Without records that hold an evaluation, unless that leaves less than half."""
        kept = ~self.marked
        return self.only(kept) if kept.sum() * 2 > len(self) else self


def paces(context: Context) -> tuple[Pace, ...]:
    """One pace for each chain: a start or fresh segment and the resumes after it. Made once."""
    return context.once("paces", lambda: _paces(context))


def _paces(context: Context) -> tuple[Pace, ...]:
    metric = speed_metric(context)
    tracks = _joined(context.tracks(metric)) if metric else _wall_tracks(context)
    relation = {segment.index: segment.relation for segment in context.run.meta.segments}
    chains: list[list[Track]] = []
    for track in tracks:
        if chains and relation.get(track.segment, "start") == "resume":
            chains[-1].append(track)
        else:
            chains.append([track])
    return tuple(pace for chain in chains if (pace := _pace(context, chain)) is not None)


def speed_metric(context: Context) -> str | None:
    """The best metric that covers at least half as many records as the fullest; or None."""
    frame = context.run.readings
    counts = {
        name: frame.height - frame[name].null_count()
        for name in SPEED_METRICS
        if name in frame.columns
    }
    enough = max(counts.values(), default=0) / 2
    return next((name for name, count in counts.items() if count and count >= enough), None)


def _joined(tracks: Iterable[Track]) -> list[Track]:
    """One track a segment: where several ranks report, the median over ranks of each step."""
    by_segment: dict[int, list[Track]] = {}
    for track in tracks:
        by_segment.setdefault(track.segment, []).append(track)
    return [own[0] if len(own) == 1 else _over_ranks(own) for own in by_segment.values()]


def _over_ranks(own: list[Track]) -> Track:
    if (alone := _taking_turns(own)) is not None:
        return alone
    frame = pl.DataFrame(
        {
            name: np.concatenate([getattr(track, name) for track in own])
            for name in ("steps", "values", "rows")
        }
    )
    frame = (
        frame.group_by("steps")
        .agg(pl.col("values").drop_nans().median(), pl.col("rows").first())
        .drop_nulls()
        .sort("steps")
    )
    return replace(
        own[0],
        rank=None,
        steps=frame["steps"].to_numpy(),
        values=frame["values"].to_numpy(),
        rows=frame["rows"].to_numpy(),
    )


def _taking_turns(own: list[Track]) -> Track | None:
    """All points in the order of their steps; None where two ranks report the same step."""
    steps = np.concatenate([track.steps for track in own])
    order = np.argsort(steps, kind="stable")
    steps = steps[order]
    if bool((steps[1:] == steps[:-1]).any()):
        return None
    values = np.concatenate([track.values for track in own])[order]
    rows = np.concatenate([track.rows for track in own])[order]
    known = ~np.isnan(values)
    if not known.all():
        steps, values, rows = steps[known], values[known], rows[known]
    return replace(own[0], rank=None, steps=steps, values=values, rows=rows)


def _wall_tracks(context: Context) -> list[Track]:
    """Time per step from the wall clock of the loss lines, where nothing better was logged."""
    made = []
    for track in context.tracks("loss"):
        wall = context.run.readings["wall_s"].to_numpy()[track.rows].astype(np.float64)
        steps = np.diff(track.steps)
        gap = np.diff(wall) / np.maximum(steps, 1)
        good = (steps > 0) & np.isfinite(gap) & (gap > 0)
        if good.sum() * 2 > len(track):
            at = np.flatnonzero(good) + 1
            steps_at, rows_at = track.steps[at], track.rows[at]
            made.append(replace(track, steps=steps_at, rows=rows_at, values=gap[good]))
    return _joined(replace(track, metric="wall_s") for track in made)


def _pace(context: Context, chain: list[Track]) -> Pace | None:
    parts = [_cleaned(context, track) for track in chain]
    steps, seconds, rows, segments = (np.concatenate([part[i] for part in parts]) for i in range(4))
    if not len(steps):
        return None
    metric = chain[0].metric
    direct = metric in ("step_time_s", "wall_s")
    if not direct:
        seconds = seconds / median(seconds)
    interval = max(track.interval for track in chain)
    return Pace(
        metric="step_time_s" if direct else metric,
        unit="s" if direct else "1",
        steps=steps,
        seconds=seconds,
        rows=rows,
        segments=segments,
        marked=_touched(steps, interval, _evaluations(context)),
        saved=_touched(steps, interval, _saves(context)),
        interval=interval,
        total=sum(len(track) for track in chain),
        clock=metric == "wall_s",
    )


def _cleaned(context: Context, track: Track) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Steps, time, rows and segment of a track without useless numbers and without warm-up."""
    track = within(track, *_POSSIBLE)
    direct = track.metric in ("step_time_s", "wall_s")
    time = _per_work(context, track.rows, track.values) if direct else 1.0 / track.values
    begin = _warm_up(context, time)
    steps, rows = track.steps[begin:], track.rows[begin:]
    return steps, time[begin:], rows, np.full(len(steps), track.segment, dtype=np.int32)


def _warm_up(context: Context, time: FloatArray) -> int:
    """Leading records to leave out: compilation, first allocations, slow first batches."""
    if len(time) < 2:
        return 0
    limit = context.value("throughput.warm_up_ratio") * median(time)
    most = min(int(context.value("throughput.warm_up_records")), len(time) // 4)
    slow = np.flatnonzero(time[:most] > limit)
    return max(1, int(slow[-1]) + 1 if len(slow) else 1)


def _per_work(context: Context, rows: IntArray, time: FloatArray) -> FloatArray:
    """Time scaled to a constant batch and sequence, where these change during the run."""
    frame = context.run.readings
    for name in WORK_METRICS:
        if name in frame.columns and frame[name].min() != frame[name].max():
            work = frame[name].fill_nan(None).forward_fill().to_numpy()[rows].astype(np.float64)
            known = np.isfinite(work) & (work > 0)
            if known.all() and len(work) and work.min() < work.max():
                time = time * (float(work[-1]) / work)
    return time


def _evaluations(context: Context) -> IntArray:
    events = context.events("evaluation")["step"].drop_nulls()
    found = [events.to_numpy().astype(np.int64)]
    frame = context.run.readings
    if "val_loss" in frame.columns:
        rows = frame.filter(pl.col("val_loss").is_not_null())["step"].drop_nulls()
        found.append(rows.to_numpy().astype(np.int64))
    return distinct(np.concatenate(found)).astype(np.int64, copy=False)


def _saves(context: Context) -> IntArray:
    events = context.events("checkpoint_save_begin", "checkpoint_save_end")["step"].drop_nulls()
    return distinct(events.to_numpy()).astype(np.int64, copy=False)


def _touched(steps: IntArray, interval: int, at: IntArray) -> BoolArray:
    """Records of which the interval, or the one right before, holds one of the steps.

    Work done after step n is printed is timed with the next record, so both count.
    """
    if not len(at):
        return np.zeros(len(steps), dtype=np.bool_)
    if len(at) < len(steps) // 8 and bool((steps[1:] >= steps[:-1]).all()):  # a resume goes back
        edges = np.zeros(len(steps) + 1, dtype=np.int32)
        np.add.at(edges, np.searchsorted(steps, at), 1)
        np.add.at(edges, np.searchsorted(steps, at + 2 * interval), -1)
        return np.asarray(np.cumsum(edges[:-1]) > 0, dtype=np.bool_)
    before = np.searchsorted(at, steps - 2 * interval, side="right")
    upto = np.searchsorted(at, steps, side="right")
    return np.asarray(upto > before, dtype=np.bool_)


def pace_point(
    context: Context, pace: Pace, at: int, label: str, *, expected: str = ""
) -> Evidence:
    """The time of record `at`, with its log line."""
    return Evidence(
        label=label,
        step=int(pace.steps[at]),
        value=float(pace.seconds[at]),
        unit=pace.unit,
        expected=expected,
        ref=row_ref(context.run, int(pace.rows[at])),
    )
