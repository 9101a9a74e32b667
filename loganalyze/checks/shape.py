"""Checks on the shape of a rise of the loss: a block of foreign steps, one line, or a decay."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    at_step,
    median,
    missing,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult


class Rise(Struct, frozen=True, kw_only=True):
    """The lines of one spike as shares of its height over the level before it.

    inside: from its first line to its last; after: the next lines. `height` and `level` in nat.
    coarse: a line is a mean over several steps, so that the first and the last hold a part only.
    """

    inside: Floats
    after: Floats
    level: float
    height: float
    coarse: bool


def rise_of(context: CheckContext) -> Rise | None:
    """The highest spike of the incident; None without one, or with too little before it."""
    track = context.track("loss")
    spikes = context.of_kind("loss_spike", "loss_divergence")
    before = context.before("loss", 50)
    if track is None or not spikes or len(before) < 5:
        return None
    spike = next((f for f in spikes if f.kind == "loss_spike"), spikes[0])
    inside = (track.steps >= (spike.step_first or 0)) & (track.steps <= (spike.step_last or 0))
    values = track.values[inside]
    later = track.values[track.steps > (spike.step_last or 0)][:20]
    if not len(values) or not np.isfinite(values).all():
        return None
    level = median(before)
    height = float(values.max()) - level
    if height <= 0:
        return None
    rest = later[np.isfinite(later)]
    return Rise(inside=(values - level) / height, after=(rest - level) / height,
                level=level, height=height, coarse=track.interval > 1)  # fmt: skip


def _full(rise: Rise) -> Floats:
    """The lines that lie wholly inside: without the mixed ones at the edges of a coarse log."""
    return rise.inside[1:-1] if rise.coarse and len(rise.inside) > 3 else rise.inside


def ends_at_once(context: CheckContext) -> CheckResult:
    """The loss is back at its level on the lines right after: no weight was harmed by it.

    A finding's last line may lie far down a slow decay: from half of the height on it must be fast.
    """
    rise = rise_of(context)
    if rise is None or len(rise.after) < 2:
        return missing("ends_at_once", "later_steps")
    skip = 1 if rise.coarse and len(rise.after) > 2 else 0
    left = float(np.mean(rise.after[skip : skip + 2]))
    limit = context.value("rest_share")
    falling = len(rise.inside) - 1 - int(np.flatnonzero(rise.inside > 0.5)[-1])
    evidence = (seen("rest_share", left, "share", f"< {limit}"),
                seen("lines_to_level", falling, "", "<= 3"))  # fmt: skip
    return yes_or_no("ends_at_once", left < limit and falling <= 3, *evidence)


def block_of_steps(context: CheckContext) -> CheckResult:
    """Several steps in a row stand at one height, and the rise is over at once: foreign input.

    A broken update decays from its peak; what a stretch of other data brings stays while it lasts.
    """
    rise, over = rise_of(context), ends_at_once(context)
    if rise is None or over.state == "not_checkable":
        return missing("block_of_steps", "later_steps")
    full = _full(rise)
    lowest = float(full.min())
    block = len(full) >= 2 and lowest > 0.5 and over.state == "supported"
    evidence = (seen("lines_high", len(full), "", ">= 2"),
                seen("lowest_share", lowest, "share", "> 0.5"))  # fmt: skip
    return yes_or_no("block_of_steps", block, *evidence, *over.evidence)


def decays_from_peak(context: CheckContext) -> CheckResult:
    """The loss comes back line by line from its peak: the weights were moved and recover."""
    rise = rise_of(context)
    if rise is None:
        return missing("decays_from_peak", "loss")
    peak = int(np.argmax(rise.inside))
    tail = np.concatenate((rise.inside[peak:], rise.after))
    low = np.flatnonzero(tail < 0.2)
    lines = int(low[0]) if len(low) else len(tail)
    middle = tail[1:lines]
    decays = lines >= 4 and len(middle) > 0 and float(np.median(middle)) < 0.8
    return yes_or_no("decays_from_peak", decays, seen("lines_to_level", lines, "", ">= 4"))


def steps_took_longer(context: CheckContext) -> CheckResult:
    """The steps of the spike took longer than those before: their batch held more work."""
    spikes = context.of_kind("loss_spike")
    track = context.track("step_time_s")
    if track is None or not spikes or spikes[0].step_first is None:
        return missing("steps_took_longer", "step_time_s")
    first = spikes[0].step_first
    last = spikes[0].step_last or first
    inside = track.values[(track.steps >= first) & (track.steps <= last)]
    before = track.values[track.steps < first][-50:]
    inside, before = inside[np.isfinite(inside)], before[np.isfinite(before)]
    if not len(inside) or len(before) < 10:
        return missing("steps_took_longer", "step_time_s")
    ratio, usual = median(inside) / max(median(before), 1e-12), float(np.percentile(before, 95))
    limit = context.value("time_rise")
    place = at_step(context, "step_time_s", first, "step_time_s")
    longer = ratio > limit and median(inside) > usual
    return yes_or_no("steps_took_longer", longer, seen("change_ratio", ratio, "", f"> {limit}"),
                     place)  # fmt: skip


def norm_fell_as_loss_rose(context: CheckContext) -> CheckResult:
    """The gradient norm fell while the loss stood higher: a part of the model takes no part.

    Whatever makes the model wrong makes its gradient larger; only what is cut off does not.
    """
    before, during = context.before("grad_norm", 50), context.during("grad_norm")
    if len(before) < 5 or len(during) < 3:
        return missing("norm_fell_as_loss_rose", "grad_norm")
    loss, risen = context.before("loss", 50), context.during("loss")
    if len(loss) < 5 or len(risen) < 3:
        return missing("norm_fell_as_loss_rose", "loss")
    ratio = median(during) / max(median(before), 1e-12)
    higher = median(risen) > float(np.percentile(loss, 90))
    limit = context.value("norm_fall")
    place = at_step(context, "grad_norm", context.first, "norm")
    return yes_or_no("norm_fell_as_loss_rose", higher and ratio < limit,
                     seen("change_ratio", ratio, "", f"< {limit}"), place)  # fmt: skip


def stays_high(context: CheckContext) -> CheckResult:
    """Thirty lines later the loss still stands at most of its rise: nothing relearns it."""
    rise = rise_of(context)
    if rise is None:
        return missing("stays_high", "loss")
    later = np.concatenate((rise.inside, rise.after))
    if len(later) < 30:
        return missing("stays_high", "later_steps")
    left = median(later[-max(10, len(later) // 10) :])
    return yes_or_no("stays_high", left > 0.5, seen("rest_share", left, "share", "> 0.5"))


def long_not_back(context: CheckContext) -> CheckResult:
    """A hundred lines after its peak the loss still stands a tenth above the level before.

    What a broken update takes away is relearnt from the same data; other data keeps its own level.
    """
    track, before = context.track("loss"), context.before("loss", 50)
    spikes = context.of_kind("loss_spike", "loss_divergence", "loss_discontinuity")
    peaks = [f.step_peak for f in spikes if f.step_peak is not None]
    if track is None or not peaks or len(before) < 5:
        return missing("long_not_back", "loss")
    later = track.values[track.steps > min(peaks) + 100 * track.interval]
    later = later[np.isfinite(later)][:100]
    if len(later) < 10:
        return missing("long_not_back", "later_steps")
    level, back = median(before), median(later)
    limit = level + max(context.value("not_back") * abs(level), 2 * spread(before))
    evidence = seen("level_after", back, "nat", f"<= {limit:.4g}")
    return yes_or_no("long_not_back", back > limit, evidence)


def norm_calm_at_spike(context: CheckContext) -> CheckResult:
    """At the spike's highest line the gradient norm is no higher than usual.

    Data that the model does not expect makes gradients that are as large as its errors. Where only
    the loss leaps, this step's forward pass, or the number itself, was wrong. Needs every step:
    trainers print the norm of the last step beside the mean loss of several.
    """
    loss, norm = context.track("loss"), context.track("grad_norm")
    spikes = context.of_kind("loss_spike")
    if norm is None or loss is None or not spikes or spikes[0].step_peak is None:
        return missing("norm_calm_at_spike", "grad_norm")
    if loss.interval > 1 or norm.interval > 1:
        return missing("norm_calm_at_spike", "every_step")
    peak = spikes[0].step_peak
    before = norm.values[norm.steps < peak][-50:]
    before, there = before[np.isfinite(before)], norm.values[norm.steps == peak]
    if len(before) < 10 or not len(there) or not np.isfinite(there[0]) or not before.any():
        return missing("norm_calm_at_spike", "earlier_steps")
    ratio = float(there[0]) / max(median(before), 1e-12)
    ratios = spikes[0].statistics.get("ratio")
    high = isinstance(ratios, int | float) and ratios > context.value("spike_ratio")
    place = at_step(context, "grad_norm", peak, "norm")
    calm = context.value("calm_norm")
    return yes_or_no("norm_calm_at_spike", high and ratio < calm,
                     seen("change_ratio", ratio, "", f"> {calm:g}"), place)  # fmt: skip


def norm_joins_spike(context: CheckContext) -> CheckResult:
    """At the spike's highest line the gradient norm is above its usual height as well."""
    calm = norm_calm_at_spike(context)
    if calm.state == "not_checkable":
        return missing("norm_joins_spike", *calm.missing)
    return yes_or_no("norm_joins_spike", calm.state == "ruled_out", *calm.evidence)


SHAPE: dict[str, Check] = {
    check.__name__: check
    for check in (
        ends_at_once, block_of_steps, decays_from_peak, steps_took_longer,
        norm_fell_as_loss_rose, stays_high, long_not_back, norm_calm_at_spike,
        norm_joins_spike,
    )
}  # fmt: skip
