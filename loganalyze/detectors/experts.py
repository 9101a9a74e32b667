"""expert_imbalance: the router of a mixture of experts leaves some of them without work."""

from __future__ import annotations

import re

import numpy as np

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.model import Finding, Severity
from loganalyze.running import median
from loganalyze.series import block_medians, mad_sigma
from loganalyze.tracks import FloatArray, Track

#: What tells it, best first: the balancing loss is smooth, the fullest expert's share is not.
_BALANCE = re.compile(r"load_balanc|aux_loss|balance_loss", re.IGNORECASE)
_LOAD = re.compile(r"(?:moe|expert|router)\w{0,80}(?:max_?load|load_?max|imbalance)", re.IGNORECASE)


def detect(context: Context) -> list[Finding]:
    """At most one finding: the first metric whose level rose and stayed."""
    for pattern in (_BALANCE, _LOAD):
        for name in context.run.readings.columns:
            if pattern.search(name):
                found = [f for t in context.tracks(name) if (f := _risen(context, t)) is not None]
                if found:
                    return found[:1]
    return []


def _risen(context: Context, track: Track) -> Finding | None:
    """A level to the end of the log well above the best one before it."""
    th = context.thresholds
    good = np.isfinite(track.values) & (track.values > 0)
    values, at = track.values[good], np.flatnonzero(good)
    block = int(th.value("expert_imbalance.block_records"))
    if len(values) < 5 * block:
        return None
    level = block_medians(values, block)[: (len(values) - 1) // block]  # all before the last
    best = int(np.argmin(level))
    end = median(values[-block:])
    ratio, rule = end / float(level[best]), th["expert_imbalance.ratio_warning"]
    if ratio < th.value("expert_imbalance.ratio_info"):
        return None
    error = 1.2533 * mad_sigma(np.diff(values)) / np.sqrt(2.0) * np.sqrt(2.0 / block)
    if end - level[best] < th.value("expert_imbalance.z") * error:
        return None
    first = _onset(values, float(level[best]), end, best * block)
    worst = int(np.argmax(values[first:])) + first
    severity: Severity = "warning" if ratio >= rule.value else "info"
    return finding(
        "expert_imbalance",
        severity,
        track=track,
        first=int(track.steps[at[first]]),
        last=int(track.steps[-1]),
        peak=int(track.steps[at[worst]]),
        statistics={"best": float(level[best]), "end": end, "ratio": ratio},
        threshold=rule,
        evidence=(
            point(
                context, track, int(at[first]), "expert_load_onset",
                expected=f"{level[best]:.4g}",
            ),
            point(context, track, int(at[worst]), "expert_load_peak"),
        ),
    )  # fmt: skip


def _onset(values: FloatArray, low: float, high: float, start: int) -> int:
    """First record behind the best block after which two thirds stand in the upper half."""
    up = values > 0.5 * (low + high)
    share = np.cumsum(up[::-1])[::-1] / np.arange(len(up), 0, -1)
    hits = np.flatnonzero(up[start:] & (share[start:] >= 2 / 3))
    return start + int(hits[0]) if len(hits) else len(values) - 1


EXPERTS = Detector(name="experts", kinds=("expert_imbalance",), needs=(), run=detect)
