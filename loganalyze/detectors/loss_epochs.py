"""loss_too_low at epoch edges: the loss steps down whenever the data begins again."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.model import Finding
from loganalyze.series import Ints, block_test


def run(context: Context) -> list[Finding]:
    """A note where most edges of epochs are steps down: repeated data is being memorised."""
    found = []
    for curve in curves(context):
        edges = _edges(context, curve)
        drops = [(edge, *_drop(curve, edge)) for edge in edges]
        real = [
            (edge, share) for edge, share, z in drops
            if share > context.value("loss_epochs.share") and z < -context.value("loss_epochs.z")
        ]  # fmt: skip
        if real and len(real) > 0.6 * len(drops):
            found.append(_finding(context, curve, real, len(drops)))
    return found


def _edges(context: Context, curve: Curve) -> Ints:
    """Points at which a whole new epoch begins (the first epoch's start is none)."""
    for track in context.tracks("epoch"):
        if track.segment == curve.track.segment and track.rank == curve.track.rank:
            place = np.searchsorted(track.steps, curve.steps, side="right") - 1
            epoch = np.where(place >= 0, track.values[np.maximum(place, 0)], 0.0)
            whole = np.floor(np.nan_to_num(epoch) + 1e-6)
            edges = np.flatnonzero((np.diff(whole) > 0) & (whole[:-1] >= 0)) + 1
            return np.asarray(edges[epoch[edges] >= 1.0 - 1e-6], dtype=np.int64)
    return np.zeros(0, dtype=np.int64)


def _drop(curve: Curve, edge: int) -> tuple[float, float]:
    """Share by which the loss is lower after an edge, and its z (negative: lower)."""
    before, after = curve.values[max(0, edge - 60) : edge], curve.values[edge : edge + 60]
    if len(before) < 15 or len(after) < 15:
        return 0.0, 0.0
    share = 1.0 - float(np.median(after)) / max(float(np.median(before)), 1e-9)
    within = before[len(before) // 2 :].mean() - before[: len(before) // 2].mean()
    test = block_test(before, after)
    falling = min(within, 0.0)  # what the curve falls by within the epoch is no step
    return share, (test.difference - 2.0 * falling) / test.error if test.error > 0 else 0.0


def _finding(context: Context, curve: Curve, real: list[tuple[int, float]], edges: int) -> Finding:
    first, last = real[0][0], real[-1][0]
    return finding(
        "loss_too_low",
        "info",
        track=curve.track,
        first=int(curve.steps[first]),
        last=int(curve.steps[-1]),
        peak=int(curve.steps[last]),
        statistics={
            "epoch_edges": edges,
            "steps_down": len(real),
            "fall_share": float(np.median([share for _, share in real])),
        },
        threshold=context.thresholds["loss_epochs.share"],
        evidence=(
            point(context, curve.track, int(curve.at[first - 1]), "loss_before", unit="nat"),
            point(context, curve.track, int(curve.at[first]), "loss_after", unit="nat"),
        ),
    )


DETECTOR = Detector(
    name="loss_epochs", kinds=("loss_too_low",), needs=(("loss",), ("epoch",)), run=run
)
