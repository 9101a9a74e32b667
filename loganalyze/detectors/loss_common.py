"""The loss as the detectors judge it: finite points, in logarithms, with what is not judged."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from loganalyze.detectors.base import Context
from loganalyze.running import median
from loganalyze.series import Floats, Ints, mad_sigma
from loganalyze.series_events import Excursion
from loganalyze.series_levels import Search
from loganalyze.series_stretches import all_excursions
from loganalyze.tracks import Track

_AT_THE_START = 20  # records


class Curve(Struct, frozen=True, kw_only=True):
    """The finite points of a track. at: their places in the track.

    y: natural logarithm of the values where all are positive (log), else the values. skip: first
    points that are not judged: the burst at the start of a run.
    """

    track: Track
    at: Ints
    values: Floats
    y: Floats
    log: bool
    skip: int

    @property
    def steps(self) -> Ints:
        """Steps of the points."""
        steps = self.track.steps
        return steps if len(self.at) == len(steps) else steps[self.at]


def curves(context: Context, metric: str = "loss") -> tuple[Curve, ...]:
    """The curves of a metric, one for each segment and rank that has at least two points."""
    made = (_curve(context, track) for track in context.tracks(metric))
    return context.once(
        f"curves {metric}", lambda: tuple(curve for curve in made if len(curve.at) >= 2)
    )


def _curve(context: Context, track: Track) -> Curve:
    at = np.flatnonzero(np.isfinite(track.values))
    values = track.values if len(at) == len(track) else track.values[at]
    log = bool(len(values)) and bool(np.all(values > 0))
    return Curve(
        track=track,
        at=at,
        values=values,
        y=np.log(values) if log else values,
        log=log,
        skip=unjudged(context, track, at),
    )


def unjudged(context: Context, track: Track, at: Ints) -> int:
    """How many points (of the places `at`) stand in the burst at the start of a run; at least 1.

    An excerpt, which begins in the middle of a run, has no such burst.
    """
    if is_excerpt(context, track) or not len(at):
        return 1
    steps = track.steps[at]
    burst = int(context.value("start.burst_steps"))
    return max(1, int(np.searchsorted(steps, steps[0] + burst, side="left")))


def falls(context: Context, segment: int, first: int, last: int) -> bool | None:
    """Whether the loss of a segment falls from step `first` to `last` by more than its noise.

    None where fewer than three finite losses stand there.
    """
    curve = next((c for c in curves(context) if c.track.segment == segment), None)
    if curve is None:
        return None
    start, stop = np.searchsorted(curve.steps, (first, last + 1))
    y = curve.y[start:stop]
    if len(y) < 3:
        return None
    part = max(1, len(y) // 3)
    drop = median(y[:part]) - median(y[-part:])
    noise = mad_sigma(np.diff(y)) / np.sqrt(part)
    return bool(drop > 0 and drop > context.value("loss_falls.deviations") * noise)


def is_excerpt(context: Context, track: Track) -> bool:
    """Whether the log begins in the middle of a run: first segment, and not at the first steps.

    Where a log has no steps of its own but epochs, those tell.
    """
    segments = context.run.meta.segments
    started = next((s for s in segments if s.index == track.segment), None)
    if track.segment > 0 or (started is not None and started.relation == "resume"):
        return False
    if not len(track):
        return False
    late = int(track.steps[0]) > _AT_THE_START * track.interval + 20
    return late or _late_epoch(context, track)


def _late_epoch(context: Context, track: Track) -> bool:
    """Whether the first epoch is that of a record beyond the first ones, as epochs grow here."""
    frame = context.run.readings
    if "epoch" not in frame.columns:
        return False
    told = frame["epoch"].gather(track.rows[:_AT_THE_START]).drop_nulls().to_numpy()
    if len(told) < 3:
        return False
    growth = float(told[-1] - told[0]) / (len(told) - 1)  # two decimals hide that of one record
    return growth > 0 and float(told[0]) > _AT_THE_START * growth


def loss_events(context: Context) -> tuple[tuple[Curve, tuple[Excursion, ...]], ...]:
    """Curves of the loss with their upward excursions; worked out once for a run."""
    return context.once(
        "loss_events",
        lambda: tuple(
            (curve, tuple(all_excursions(curve.y, loss_search(context, curve))))
            for curve in curves(context)
        ),
    )


def loss_search(context: Context, curve: Curve) -> Search:
    """What counts as an excursion of the loss."""
    floor = context.value("loss_spike.floor_nat")
    return Search(
        z=context.value("loss_spike.z_info"),
        coarse_z=context.value("loss_spike.z_coarse"),
        chance=context.value("loss_spike.chance_info"),
        floor=0.002 if curve.log else floor,
        floor_of_exp=floor if curve.log else 0.0,
        skip=curve.skip,
        pairs=curve.log,
    )


def beyond_noise(context: Context, curve: Curve, event: Excursion) -> bool:
    """Whether noise of this run would not reach it, not once in a thousand such runs."""
    least = "loss_spike.z_warning" if event.span == 1 else "loss_spike.z_coarse_warning"
    rare = max(
        context.value("loss_spike.chance_warning"),
        context.value("loss_spike.false_per_run") / len(curve.y),
    )
    return event.z >= context.value(least) and event.chance <= rare
