"""grad_clip_rate, grad_concentration, update_ratio, hard_samples: shares and ratios."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding, point
from loganalyze.detectors.grad_common import clip_value, norms
from loganalyze.model import Finding, Severity
from loganalyze.series import Floats, Ints, stretches
from loganalyze.tracks import Track


def clip_rate(context: Context) -> list[Finding]:
    """How often gradients are clipped after the warm-up; rising rates are a warning."""
    found = []
    for track, at, clipped, level in _clipping(context):
        window = int(context.value("grad_clip_rate.window"))
        after = int(np.searchsorted(track.steps[at], track.steps[0] + 2 * window))
        rest = clipped[after:]
        if len(rest) < context.value("grad_clip_rate.points"):
            continue
        rate = float(rest[-window:].mean())
        rule = context.thresholds["seed.clip_share_high"]
        if rate <= rule.value:
            continue
        earlier = rest[:-window][-5 * window :]
        rising = len(earlier) >= window and rate > 2.0 * float(earlier.mean()) > 0.0
        found.append(
            finding(
                "grad_clip_rate",
                "warning" if rising else "info",
                track=track,
                first=int(track.steps[at[max(after, len(at) - window)]]),
                last=int(track.steps[at[-1]]),
                peak=int(track.steps[at[-1]]),
                statistics={
                    "rate": rate,
                    "rate_before": float(earlier.mean()) if len(earlier) else None,
                    "clip": level,
                },
                threshold=rule,
                rules=(context.thresholds["seed.clip_share_usual"], rule),
                evidence=(point(context, track, int(at[-1]), "norm_end"),),
            )
        )
    return found


def _clipping(context: Context) -> list[tuple[Track, Ints, Floats, float | None]]:
    """Track, places, share of clipped steps at each place, clipping threshold (if known)."""
    told = [
        (track, np.flatnonzero(np.isfinite(track.values)))
        for track in context.tracks("grad_clip_share")
    ]
    if told:
        return [(track, at, track.values[at], None) for track, at in told if len(at)]
    clip = clip_value(context)
    if clip is None:
        return []
    return [
        (norm.track, norm.at, (norm.values > clip).astype(np.float64), clip)
        for norm in norms(context)
        if len(norm.at) and norm.track.interval == 1
    ]


def concentration(context: Context) -> list[Finding]:
    """The largest norm of a parameter over the median one: above 100 and above its own past."""
    rule = context.thresholds["seed.grad_concentration_high"]
    found = []
    for track in context.tracks("grad_concentration"):
        values = track.values
        high = values > rule.value
        if not high.any():
            continue
        early = values[: max(20, len(values) // 10)]
        usual = float(np.median(early[np.isfinite(early)])) if np.isfinite(early).any() else 0.0
        first, last = stretches(high, gap=5)[0]
        beyond = values[first : last + 1].max() > 3.0 * usual
        found.append(
            _simple(
                context, track, "grad_concentration", "warning" if beyond else "info",
                rule.name, first, last, usual=usual,
            )
        )  # fmt: skip
    return found


def update_ratio(context: Context) -> list[Finding]:
    """Weight updates that destroy (above 0.1), are large for long, or move nothing."""
    value = context.value
    found = []
    for track in context.tracks("update_ratio"):
        good = np.nan_to_num(track.values, nan=1e-3)
        rules: tuple[tuple[str, Severity, np.ndarray, int], ...] = (
            ("seed.update_ratio_high", "critical", good > value("seed.update_ratio_high"), 1),
            ("update_ratio.large", "warning", good > value("update_ratio.large"), 100),
            ("update_ratio.none", "warning", good < value("update_ratio.none"), 100),
            ("seed.update_ratio_low", "info", good < value("seed.update_ratio_low"), 100),
        )
        for name, severity, mask, steps in rules:
            parts = [
                (a, b) for a, b in stretches(mask, gap=2)
                if track.steps[b] - track.steps[a] + track.interval >= steps
                and track.steps[a] > track.steps[0] + value("start.burst_steps")
            ]  # fmt: skip
            if parts:
                found.append(_simple(context, track, "update_ratio", severity, name, *parts[0]))
                break
    return found


def hard_samples(context: Context) -> list[Finding]:
    """Few samples that carry the loss: a note, with where it is worst."""
    share, ratio = "seed.hard_sample_share", "seed.sample_difficulty_ratio"
    found = [_hard(context, share, t, t) for t in context.tracks("hard_sample_share")]
    found += [_hard(context, ratio, *pair) for pair in difficulty(context)]
    return [one for one in found if one is not None]


def difficulty(context: Context) -> list[tuple[Track, Track]]:
    """Loss of the 95th sample in a hundred over the median one's (seed C); the former as logged.

    Points of both tracks are the steps for which both losses are logged.
    """
    medians = {(t.segment, t.rank): t for t in context.tracks("sample_loss_p50")}
    found = []
    for high in context.tracks("sample_loss_p95"):
        usual = medians.get((high.segment, high.rank))
        if usual is None:
            continue
        _, ours, theirs = np.intersect1d(high.steps, usual.steps, return_indices=True)
        logged = replace(
            high, steps=high.steps[ours], values=high.values[ours], rows=high.rows[ours]
        )
        ratio = logged.values / np.maximum(usual.values[theirs], 1e-8)
        found.append((replace(logged, values=ratio), logged))
    return found


def _hard(context: Context, name: str, judged: Track, logged: Track) -> Finding | None:
    high = stretches(judged.values >= context.value(name), gap=5)
    if not high:
        return None
    said = _simple(context, judged, "hard_samples", "info", name, high[0][0], high[-1][1])
    if judged is logged or said.step_peak is None:
        return said
    at = int(np.searchsorted(logged.steps, said.step_peak))
    return replace(said, evidence=(point(context, logged, at, "sample_loss_p95_there"),))


def _simple(
    context: Context, track: Track, kind: str, severity: Severity, name: str, first: int,
    last: int, **more: float,
) -> Finding:  # fmt: skip
    part = track.values[first : last + 1]
    lowest = kind == "update_ratio" and name == "update_ratio.none"
    peak = first + int(np.nanargmin(part) if lowest else np.nanargmax(part))
    rule = context.thresholds[name]
    return finding(
        kind,
        severity,
        track=track,
        first=int(track.steps[first]),
        last=int(track.steps[last]),
        peak=int(track.steps[peak]),
        statistics={"worst": float(track.values[peak]), **more},
        threshold=rule,
        rules=(rule,) if name.startswith("seed.") else (),
        evidence=(point(context, track, peak, f"{kind}_worst", expected=f"{rule.value:g}"),),
    )


CLIP_RATE = Detector(
    name="grad_clip_rate",
    kinds=("grad_clip_rate",),
    needs=(("grad_clip_share", "grad_norm"),),
    run=clip_rate,
)
CONCENTRATION = Detector(
    name="grad_concentration",
    kinds=("grad_concentration",),
    needs=(("grad_concentration",),),
    run=concentration,
)
UPDATE_RATIO = Detector(
    name="update_ratio", kinds=("update_ratio",), needs=(("update_ratio",),), run=update_ratio
)
HARD_SAMPLES = Detector(
    name="hard_samples",
    kinds=("hard_samples",),
    needs=(("hard_sample_share", "sample_loss_p95"),),
    run=hard_samples,
)
