"""The gradient norm as the detectors judge it: loss scale taken off, stale values left out."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze.detectors.base import Context
from loganalyze.detectors.loss_common import unjudged
from loganalyze.running import median
from loganalyze.series import Bools, Floats, Ints, repeats
from loganalyze.tracks import Track

_CLIP_KEYS = ("clip_grad", "max_grad_norm", "gradient_clipping", "gradient_clip_val", "grad_clip")


class Norms(Struct, frozen=True, kw_only=True):
    """The believed points of a gradient norm.

    at: their places in the track; values: positive, without the loss scale; scaled: whether it
    was taken off; skip: first points that are not judged.
    """

    track: Track
    at: Ints
    values: Floats
    scaled: bool
    skip: int

    @property
    def steps(self) -> Ints:
        """Steps of the points."""
        steps = self.track.steps
        return steps if len(self.at) == len(steps) else steps[self.at]


def norms(context: Context) -> tuple[Norms, ...]:
    """Gradient norms of every segment and rank; worked out once for a run."""
    made = context.once(
        "norms", lambda: tuple(_norms(context, t) for t in context.tracks("grad_norm"))
    )
    return made


def _norms(context: Context, track: Track) -> Norms:
    scale = loss_scale_at(context, track)
    values = track.values
    scaled = scale is not None and _looks_scaled(context, values, scale)
    if scaled and scale is not None:
        values = values / scale
    keep = np.isfinite(values) & (values > 0) & ~_stale(track.values, scale)
    at = np.flatnonzero(keep)
    return Norms(
        track=track,
        at=at,
        values=values if len(at) == len(values) else values[at],
        scaled=scaled,
        skip=unjudged(context, track, at),
    )


def loss_scale_at(context: Context, track: Track) -> Floats | None:
    """The loss scale of each point of a track (of its own line, else the last one before)."""
    frame = context.run.readings
    if "loss_scale" not in frame.columns:
        return None
    column = frame.get_column("loss_scale").fill_null(strategy="forward")
    scale = column.gather(pl.Series(track.rows)).to_numpy().astype(np.float64)
    known = scale[np.isfinite(scale) & (scale > 0)]
    if not len(known):
        return None
    return np.where(np.isfinite(scale) & (scale > 0), scale, median(known))


def _looks_scaled(context: Context, values: Floats, scale: Floats) -> bool:
    """Whether the norm was printed times the loss scale: far too large, and usual without it."""
    good = np.isfinite(values)
    if not good.any() or median(scale) <= 1.0:
        return False
    raw = median(values[good])
    bare = median(values[good] / scale[good])
    low, high = context.value("grad_scale.low"), context.value("grad_scale.high")
    return raw > context.value("grad_scale.raw_median") and low <= bare <= high


def _stale(values: Floats, scale: Floats | None) -> Bools:
    """Points that repeat the number before: a skipped step prints the norm of the last real one.

    Only numbers with many digits count; three-digit ones repeat by themselves.
    """
    again = repeats(values) > 1
    thousand = 1e3 * np.where(np.isfinite(values), values, 0.0)
    fine = np.abs(thousand - np.round(thousand)) > 1e-6
    changed = np.zeros(len(values), dtype=bool)
    if scale is not None:
        changed[1:] = scale[1:] != scale[:-1]
    return again & (fine | (np.abs(values) >= 100) | changed)


def clip_value(context: Context) -> float | None:
    """The clipping threshold of the run's configuration; None where it is not told or off."""
    config = {key.rsplit(".", 1)[-1].lower(): v for key, v in context.run.meta.config.items()}
    for key in _CLIP_KEYS:
        try:
            value = float(config.get(key, ""))
        except ValueError:
            continue
        if value > 0:
            return value
    return None
