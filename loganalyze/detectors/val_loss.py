"""val_loss_rising: evaluations get worse while training gets better."""

from __future__ import annotations

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import Curve, curves
from loganalyze.model import Finding, Severity
from loganalyze.running import median
from loganalyze.series import mad_sigma


def run(context: Context) -> list[Finding]:
    """One finding for each segment whose evaluations end above their best for good."""
    found = []
    for curve in curves(context, "val_loss"):
        found += _judge(context, curve)
    return found


def _judge(context: Context, curve: Curve) -> list[Finding]:
    values = curve.values
    n = len(values)
    low = int(np.argmin(values))
    worse = n - 1 - low
    best, end = float(values[low]), median(values[-min(3, max(worse, 1)) :])
    if worse < 1 or best <= 0 or (low == 0 and n > 3 and values[1] > 2 * best):
        return []
    share = end / best - 1.0
    severity = _severity(context, share, worse, _noise(values, low) / best)
    train = _training_falls(context, curve, low)
    if severity is None or train is False:
        return []
    if train is None and severity == "critical":
        severity = "warning"
    return [
        finding(
            "val_loss_rising",
            severity,
            track=curve.track,
            first=int(curve.steps[low]),
            last=int(curve.steps[-1]),
            peak=int(curve.steps[low + int(np.argmax(values[low:]))]),
            statistics={
                "best": best, "end": end, "rise_share": share, "evaluations_since_best": worse,
                "training_falls": {True: "yes", None: "unknown"}[train],
            },
            threshold=context.thresholds["val_loss_rising.share_warning"],
            evidence=(
                point(context, curve.track, int(curve.at[low]), "val_best", unit="nat"),
                point(
                    context, curve.track, int(curve.at[-1]), "val_end", unit="nat",
                    expected=f"{best:.4g}",
                ),
            ),
        )
    ]  # fmt: skip


def _noise(values: np.ndarray, low: int) -> float:
    """Noise of one evaluation, from how neighbouring differences differ."""
    steps = np.diff(values)
    return mad_sigma(np.diff(steps)) / np.sqrt(6.0) if len(steps) >= 4 else 0.0


def _severity(context: Context, share: float, worse: int, noise: float) -> Severity | None:
    value = context.value
    if share < value("val_loss_rising.share_info") or share < 3.0 * noise:
        return None
    evaluations = value("val_loss_rising.evaluations")
    if share >= value("val_loss_rising.share_critical") and worse > evaluations:
        return "critical"
    if share >= value("val_loss_rising.share_warning") and worse >= evaluations:
        return "warning"
    return "info"


def _training_falls(context: Context, curve: Curve, low: int) -> bool | None:
    """Whether the training loss is lower at the end than around the best evaluation."""
    same = [c for c in curves(context) if c.track.segment == curve.track.segment]
    if not same:
        return None
    train = same[0]
    place = int(np.searchsorted(train.steps, curve.steps[low], side="right"))
    width = max(1, min(50, len(train.values) // 10))
    around = train.values[max(0, place - width) : place + width]
    end = train.values[-2 * width :]
    if not len(around) or place + width >= len(train.values):
        return None
    return bool(median(end) < median(around) * 1.005)


DETECTOR = Detector(
    name="val_loss_rising", kinds=("val_loss_rising",), needs=(("val_loss",),), run=run
)
