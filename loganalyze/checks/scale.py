"""Checks on the number format and on fp16's loss scale: where it fell, how far and how."""

from __future__ import annotations

import numpy as np

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    at_point,
    at_step,
    detail,
    event_evidence,
    median,
    missing,
    rows_of,
    seen,
    truth,
    yes_or_no,
)
from loganalyze.model import CheckResult
from loganalyze.tracks import longest_row

_LOSSES = ("loss_spike", "loss_divergence", "loss_nonfinite")


def is_fp16(context: CheckContext) -> CheckResult:
    """The run computes in float16 (a loss scale above 1, or the configuration says so)."""
    said = truth(context.config("fp16", "fp16_enabled"))
    scale = context.track("loss_scale")
    if said is None and scale is None and not len(context.events("overflow")):
        return missing("is_fp16", "setting_precision")
    scaled = scale is not None and bool((scale.values > 1).any())
    scaled |= len(context.events("overflow")) > 0
    text = "fp16" if said or scaled else "not fp16"
    return yes_or_no("is_fp16", bool(said) or scaled, seen("precision", text))


def is_bf16(context: CheckContext) -> CheckResult:
    """The run computes in bfloat16: its range is float32's, so overflow is no likely cause."""
    said = truth(context.config("bf16", "use_bf16", "bf16_enabled", "bfloat16_enabled"))
    scale = context.track("loss_scale")
    if scale is not None and bool((scale.values > 1).any()):
        return yes_or_no("is_bf16", False, seen("precision", "fp16"))
    if said is None:
        return missing("is_bf16", "setting_precision")
    return yes_or_no("is_bf16", said, seen("precision", "bf16" if said else "not bf16"))


def scale_halves(context: CheckContext) -> CheckResult:
    """The loss scale fell at the incident: float16 overflowed."""
    rows = rows_of(context.events("overflow", margin=20), 1)
    if rows:
        return yes_or_no("scale_halves", True, event_evidence("overflow_line", rows[0]))
    track = context.track("loss_scale")
    if track is None or context.first is None:
        return missing("scale_halves", "loss_scale")
    at = np.flatnonzero(np.abs(track.steps - context.first) <= 10 * track.interval)
    falls = [i for i in at[1:] if track.values[i] <= track.values[i - 1] / 2]
    if not falls:
        place = at_step(context, "loss_scale", context.first, "scale")
        return yes_or_no("scale_halves", False, place)
    return yes_or_no("scale_halves", True, at_point(context, track, int(falls[0]), "scale"))


def scale_falls_first(context: CheckContext) -> CheckResult:
    """The loss scale fell before the gradient norm or the loss moved."""
    track, start = context.track("loss_scale"), context.first
    moved = [
        f.step_first for f in context.of_kind("grad_explosion", *_LOSSES)
        if f.step_first is not None
    ]  # fmt: skip
    if track is None or start is None:
        return missing("scale_falls_first", "loss_scale")
    if not moved:
        return yes_or_no("scale_falls_first", False)
    window = (track.steps < min(moved)) & (track.steps >= min(moved) - 50 * track.interval)
    if int(track.steps[0]) <= 10 * track.interval:  # the search for the scale at the start
        window &= track.steps > track.steps[0] + 50 * track.interval
    at = np.flatnonzero(window)
    falls = [i for i in at[1:] if track.values[i] <= track.values[i - 1] / 2]
    if not falls:
        return yes_or_no("scale_falls_first", False)
    return yes_or_no("scale_falls_first", True, at_point(context, track, int(falls[0]), "scale"))


def scale_at_floor(context: CheckContext) -> CheckResult:
    """The loss scale reached its floor (1 or less), or steps overflow one after the other."""
    values = context.all_of("loss_scale")
    overflows = context.events("overflow")
    if not len(values) and not len(overflows):
        return missing("scale_at_floor", "loss_scale")
    if len(values) and bool((values > 1).any()) and float(values.min()) <= 1.0:
        return yes_or_no("scale_at_floor", True, seen("scale", float(values.min()), "", "> 1"))
    steps = overflows["step"].drop_nulls().to_numpy()
    longest = longest_row(steps, np.ones(len(steps)), max(1, context.run.meta.log_interval))
    evidence = seen("overflows_in_a_row", longest, "", ">= 12")
    return yes_or_no("scale_at_floor", longest >= 12, evidence)


def _scales(context: CheckContext) -> Floats:
    """The loss scale line by line; where only overflows tell of it, after each of them."""
    values = context.all_of("loss_scale")
    if len(values):
        return values
    told = [detail(row) for row in rows_of(context.events("overflow"), 10_000)]
    scales = [float(d["new_scale"]) for d in told if d.get("new_scale", -1) >= 0]
    first = [float(d["old_scale"]) for d in told[:1] if d.get("old_scale", -1) >= 0]
    return np.array([*first, *scales], dtype=np.float64)


def scale_sinks(context: CheckContext) -> CheckResult:
    """The loss scale's level sank over the run though it grew back at times, before any collapse.

    A fall to the floor in one go, halving after halving, is no sinking and is left out.
    """
    values = context.all_of("loss_scale")
    if not bool((values > 1).any()):
        return missing("scale_sinks", "loss_scale" if not len(values) else "later_steps")
    values = values[: _collapse_begin(values)]
    if len(values) < 100:
        return missing("scale_sinks", "later_steps")
    third = len(values) // 3
    fall = float(np.log2(max(median(values[:third]), 1e-9) / max(median(values[-third:]), 1e-9)))
    return yes_or_no("scale_sinks", fall >= 2, seen("halvings", fall, "", ">= 2"))


def scale_falls_in_one_go(context: CheckContext) -> CheckResult:
    """The loss scale fell by a factor of 64 or more, halving after halving without a recovery.

    A scale that is only somewhat too high halves once or twice and holds (PyTorch's and Apex's
    scaler grow back after 1000 or 2000 good steps); this many overflows in a row mean that no
    scale helps.
    """
    values = _scales(context)
    if not bool((values > 1).any()):
        return missing("scale_falls_in_one_go", "loss_scale")
    begin = _collapse_begin(values)
    fall = float(np.log2(max(values[max(begin - 1, 0)] / max(float(values.min()), 1e-9), 1.0)))
    deep = begin < len(values)
    return yes_or_no("scale_falls_in_one_go", deep, seen("halvings", fall, "", ">= 6"))


def _collapse_begin(values: np.ndarray) -> int:
    """Place of the first halving of a fall by 64 or more in one go; the length without one."""
    falls = np.flatnonzero(values[1:] < 0.75 * values[:-1]) + 1
    begin = None
    for place, at in enumerate(falls):
        if begin is None or at - falls[place - 1] > 5 or values[at - 1] > values[falls[place - 1]]:
            begin = int(at)
        if values[begin - 1] / max(float(values[at]), 1e-9) >= 64:
            return begin
    return len(values)


SCALE: dict[str, Check] = {
    check.__name__: check
    for check in (
        is_fp16, is_bf16, scale_halves, scale_falls_first, scale_at_floor, scale_sinks,
        scale_falls_in_one_go,
    )
}  # fmt: skip
