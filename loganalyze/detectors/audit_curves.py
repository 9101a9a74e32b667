"""The configuration held against the curves: what was set, and what the log shows of it."""

from __future__ import annotations

import math

import numpy as np

from loganalyze.detectors.audit_settings import optimizer, settings
from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.loss_common import is_excerpt
from loganalyze.model import Finding, Severity
from loganalyze.running import median
from loganalyze.tracks import Track

#: Optimizers whose rates are not of Adam's kind.
_OTHER = ("sgd", "muon", "adafactor", "lion", "shampoo", "prodigy", "d-adapt", "dadapt")


def detect_contradictions(context: Context) -> list[Finding]:
    """config_audit: curves that no sound configuration gives, or that contradict it."""
    if context.profile == "rl":
        return []
    found = settings(context.run.meta.config)
    return [
        *_wild_rate(context),
        *_first_loss(context),
        *_other_peak(context, found),
        *_capped_norm(context, found),
    ]


def _start(context: Context, metric: str) -> Track | None:
    """The longest track of the first segment, if the log begins where the run does."""
    own = [t for t in context.tracks(metric) if t.segment == 0]
    track = max(own, key=len, default=None)
    return None if track is None or is_excerpt(context, track) else track


def _wild_rate(context: Context) -> list[Finding]:
    """A logged rate that no model trains with under Adam, however small it is."""
    track = max((t for t in context.tracks("lr") if len(t)), key=len, default=None)
    name = optimizer(context.run.meta.config)
    if track is None or any(word in name for word in _OTHER):
        return []
    values = np.where(np.isfinite(track.values), track.values, 0.0)
    at = int(np.argmax(values))
    cold = values[0] > 0.9 * values[at] and int(track.steps[0]) <= 2 * track.interval
    rule = "lr_cold_most" if cold and values[-1] < 0.9 * values[at] else "lr_adam_most"
    if not values[at] >= context.value(f"config_audit.{rule}"):
        return []
    sure = "adam" in name or _stuck(context)
    severity: Severity = "warning" if sure else "info"
    return [_remark(context, "lr", track, at, rule, "above", severity, "learning_rate")]


def _stuck(context: Context) -> bool:
    """Whether the loss leapt or stood still early on, as it does where the rate is far too high."""
    track = _start(context, "loss")
    if track is None or len(track) < 50:
        return False
    values = track.values[np.isfinite(track.values)]
    early = values[: max(20, len(values) // 5)]
    leapt = float(np.max(early[1:] - np.minimum.accumulate(early)[:-1])) > 1.0
    begun, best = float(early[0]), float(np.min(values))
    first, then = median(early[4:9]), median(early[11:18])
    fell, rest = begun - first, begun - best
    return leapt or bool(fell > 0.4 * rest and first - then < 0.05 * rest and fell < 0.85 * rest)


def _first_loss(context: Context) -> list[Finding]:
    """A first loss above chance by a nat: weights that begin too wide (or a loss that is a sum)."""
    track = _start(context, "loss")
    if track is None or context.profile != "pretrain" or not math.isfinite(float(track.values[0])):
        return []
    if int(track.steps[0]) > 2 * track.interval:
        return []
    size = _vocabulary(context)
    chance = math.log(size or context.value("check.largest_vocabulary"))
    first = float(track.values[0])
    if not chance + context.value("config_audit.first_loss_nat") < first < 6 * chance:
        return []
    if _is_multiple(context, first, chance, known=size is not None):
        return []  # loss_misscaled tells it
    # An output layer that starts too wide alone is mended by the first updates.
    early = track.values[: int(context.value("config_audit.first_loss_records"))]
    lasting = float(np.min(early)) > chance + context.value("config_audit.first_loss_wild")
    known = size is not None and len(early) == context.value("config_audit.first_loss_records")
    severity: Severity = "warning" if lasting and known else "info"
    return [_remark(context, "init_std", track, 0, "first_loss_nat", "above", severity,
                    "first_loss", f"<= {chance + 1:.3g}")]  # fmt: skip


def _vocabulary(context: Context) -> float | None:
    for name, text in context.run.meta.config.items():
        if name.rsplit(".", 1)[-1] in ("padded_vocab_size", "vocab_size", "n_vocab"):
            try:
                return float(text) if float(text) > 1 else None
            except ValueError:
                continue
    return None


def _is_multiple(context: Context, first: float, chance: float, *, known: bool) -> bool:
    """Whether a sum over micro-batches explains a first loss; exactly, where chance is known."""
    found = settings(context.run.meta.config)
    times = found.get("batch", 0.0) / max(found.get("micro_batch", 1.0), 1e-9)
    counts = (found.get("accumulation", 1.0), times / max(found.get("world", 1.0), 1.0))
    tolerance = context.value("loss_misscaled.tolerance")
    if not known:
        return any(c > 1 and first / c < chance for c in counts)
    return any(c > 1 and abs(first / (chance * c) - 1) < tolerance for c in counts)


def _other_peak(context: Context, found: dict[str, float]) -> list[Finding]:
    """The highest rate of the log is not the one that was configured."""
    track, set_to = _start(context, "lr"), found.get("lr")
    if track is None or not set_to or set_to <= 0 or len(track) < 50:
        return []
    values = np.where(np.isfinite(track.values), track.values, 0.0)
    at = int(np.argmax(values))
    if at >= len(values) - 5:  # still warming up
        return []
    ratio = float(values[at]) / set_to
    share = context.value("config_audit.peak_share")
    if ratio <= 0 or abs(ratio - 1) <= share:
        return []
    side = "above" if ratio > 1 else "below"
    return [_remark(context, "lr", track, at, "peak_share", side, "info", "learning_rate",
                    f"{set_to:g}")]  # fmt: skip


def _capped_norm(context: Context, found: dict[str, float]) -> list[Finding]:
    """The logged norm never passes the clipping limit and often stands at it: norms after it."""
    track, limit = _start(context, "grad_norm"), found.get("clip")
    if track is None or not limit or limit <= 0 or len(track) < 100:
        return []
    values = track.values[np.isfinite(track.values)]
    at_limit = float(np.mean(np.abs(values / limit - 1) < 1e-3)) if len(values) else 0.0
    if not len(values) or values.max() > 1.002 * limit or at_limit < 0.05:
        return []
    at = int(np.nanargmax(track.values))
    return [_remark(context, "clip", track, at, "clip_at_limit", "above", "info", "norm",
                    f"> {limit:g}")]  # fmt: skip


def _remark(
    context: Context, setting: str, track: Track, at: int, rule: str, side: str,
    severity: Severity, label: str, expected: str = "",
) -> Finding:  # fmt: skip
    threshold = context.thresholds[f"config_audit.{rule}"]
    usual = f"{'<=' if side == 'above' else '>='} {threshold.value:g}"
    evidence = point(context, track, at, label, expected=expected or usual)
    return finding(
        "config_audit",
        severity,
        metric=track.metric,
        statistics={
            "setting": setting, "value": float(track.values[at]), "limit": threshold.value,
            "side": side, "rule": rule, "task": context.profile,
        },
        threshold=threshold,
        evidence=(evidence,),
    )  # fmt: skip


CONTRADICTIONS = Detector(
    name="config_contradictions",
    kinds=("config_audit",),
    needs=(("lr", "loss", "grad_norm"),),
    run=detect_contradictions,
)
