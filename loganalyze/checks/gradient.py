"""Checks on the gradient norm: what it did before, how long, and what clips it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_point,
    at_step,
    median,
    missing,
    number,
    result,
    seen,
    yes_or_no,
)
from loganalyze.model import CheckResult, Finding
from loganalyze.tracks import Track

_LOSSES = ("loss_spike", "loss_divergence", "loss_nonfinite")
_CLIP = ("clip_grad", "max_grad_norm", "gradient_clipping", "grad_clip", "gradient_clip_val")


def grad_leads(context: CheckContext) -> CheckResult:
    """The gradient norm left its range before the loss did."""
    track = context.track("grad_norm")
    if track is None or not _alive(track):
        return missing("grad_leads", "grad_norm")
    losses = [f.step_first for f in context.of_kind(*_LOSSES) if f.step_first is not None]
    start = min(losses, default=context.first)
    if start is None:
        return missing("grad_leads", "step")
    told = [f.step_first for f in context.of_kind("grad_explosion") if f.step_first is not None]
    close = [step for step in told if start - step <= 20 * track.interval]
    onset = min(close) if close else _onset(context, track, start)
    if onset is None:
        return yes_or_no("grad_leads", False, at_step(context, "grad_norm", start, "norm"))
    lead = start - onset
    evidence = at_step(context, "grad_norm", onset, "norm")
    return yes_or_no("grad_leads", lead > 0, evidence, seen("lead_steps", lead, "step", "> 0"))


def _alive(track: Track) -> bool:
    """Whether the norm is more than a placeholder: several values, not all zero."""
    return len(np.unique(track.values[np.isfinite(track.values)][:200])) > 1


def _onset(context: CheckContext, track: Track, start: int) -> int | None:
    """First step of the last ten lines up to `start` above three times the level before them."""
    end = int(np.searchsorted(track.steps, start, side="right"))
    recent = slice(max(0, end - 10), end)
    earlier = track.values[max(0, end - 110) : max(0, end - 10)]
    earlier = earlier[np.isfinite(earlier)]
    if len(earlier) < 5:
        return None
    # Small models' norms leap by themselves: what led stands above all that was usual as well.
    limit = max(context.value("norm_rise") * median(earlier), 1.2 * float(earlier.max()))
    hits = np.flatnonzero(track.values[recent] > limit)
    return int(track.steps[recent][hits[0]]) if len(hits) else None


def grad_isolated(context: CheckContext) -> CheckResult:
    """Only one logged step is far above the level; its neighbours are calm."""
    found = context.of_kind("grad_explosion")
    told = found[0].statistics.get("length_points") if found else None
    length = told if isinstance(told, int | float) else len(context.during("grad_norm"))
    if not length:
        return missing("grad_isolated", "grad_norm")
    return yes_or_no("grad_isolated", length <= 1, seen("points_above", float(length), "", "1"))


def grad_lasts(context: CheckContext) -> CheckResult:
    """The norm stays up for more than twenty logged steps: no single batch does that."""
    found = context.of_kind("grad_explosion")
    told = [f.statistics.get("length_points") for f in found]
    lengths = [float(value) for value in told if isinstance(value, int | float)]
    if not lengths:
        return missing("grad_lasts", "grad_norm")
    longest = found[lengths.index(max(lengths))]
    lasting = max(lengths) > 20 and _mostly_up(context, longest)
    return yes_or_no("grad_lasts", lasting, seen("points_above", max(lengths), "", "> 20"))


def _mostly_up(context: CheckContext, found: Finding) -> bool:
    """Whether most lines of an explosion are high: leaps between calm lines are none that lasts."""
    track, base = context.track("grad_norm"), found.statistics.get("base")
    if track is None or not isinstance(base, int | float) or found.step_first is None:
        return True
    inside = (track.steps >= found.step_first) & (track.steps <= (found.step_last or 0))
    values = track.values[inside]
    return not len(values) or float(np.mean(values > 1.5 * base)) > 0.5


def leaps_beyond_reason(context: CheckContext) -> CheckResult:
    """Single lines stand at a thousand times the level between calm ones, the loss unmoved.

    Data and learning rates move a norm by tens or hundreds (an incident of batch size 1: by 700)
    and the loss with it; four digits between two calm steps are an error of computing.
    """
    track, loss = context.track("grad_norm"), context.track("loss")
    if track is None or loss is None or context.first is None:
        return missing("leaps_beyond_reason", "grad_norm" if track is None else "loss")
    before = context.before("grad_norm", 100)
    if len(before) < 10:
        return missing("leaps_beyond_reason", "earlier_steps")
    level = median(before)
    values = track.values[track.steps >= context.first]
    high = values > 1000 * max(level, 1e-12)
    alone = not np.any(high[1:] & high[:-1])
    calm = float(np.mean(values[~high] < 30 * level)) if (~high).any() else 0.0
    moved = context.during("loss")
    limit = float(np.percentile(context.before("loss", 100), 95)) + 0.3
    still = bool(len(moved)) and median(moved) < limit
    answer = bool(high.any()) and alone and calm > 0.8 and still
    peak = float(values.max()) / max(level, 1e-12) if len(values) else 0.0
    evidence = (seen("largest_ratio", peak, "", "< 1000"), seen("leaps", int(high.sum())))
    return yes_or_no("leaps_beyond_reason", answer, *evidence)


def weights_grew(context: CheckContext) -> CheckResult:
    """The norm of all weights grew by a fifth or more within the incident: a layer runs away.

    With weight decay and a falling rate it moves by a few per cent over a whole run.
    """
    before, during = context.before("params_norm", 20), context.during("params_norm")
    if len(before) < 5 or len(during) < 5:
        return missing("weights_grew", "params_norm")
    usual = max(float(before[-1] - before[0]) / max(len(before) - 1, 1), 0.0)
    due = usual * len(during)
    ratio = (float(during.max()) - due) / max(median(before), 1e-12)
    place = at_step(context, "params_norm", context.last, "weight_norm")
    return yes_or_no("weights_grew", ratio > 1.2, seen("change_ratio", ratio, "", "<= 1.2"), place)


def loss_breaks_alone(context: CheckContext) -> CheckResult:
    """The loss is not finite while the gradient norm is: an empty mean, not broken weights.

    Of an evaluation the training loss of the same steps tells the same.
    """
    if context.finding.metric == "val_loss":
        return _evaluation_breaks_alone(context)
    frame = context.run.readings
    if "loss" not in frame.columns or "grad_norm" not in frame.columns:
        return missing("loss_breaks_alone", "grad_norm")
    rows = frame.filter(pl.col("loss").is_not_null() & ~pl.col("loss").is_finite())
    rows = rows.filter(pl.col("grad_norm").is_not_null())
    if not len(rows):
        return missing("loss_breaks_alone", "grad_norm")
    share = float(rows["grad_norm"].is_finite().mean() or 0.0)  # type: ignore[arg-type]
    evidence = seen("share_of_lines", share, "share", "> 0.5")
    return yes_or_no("loss_breaks_alone", share > 0.5, evidence)


def _evaluation_breaks_alone(context: CheckContext) -> CheckResult:
    track, first = context.track("loss"), context.first or 0
    if track is None:
        return missing("loss_breaks_alone", "loss")
    start, stop = np.searchsorted(track.steps, (first, (context.last or first) + 1))
    if start == stop:
        return missing("loss_breaks_alone", "loss")
    share = float(np.isfinite(track.values[start:stop]).mean())
    return yes_or_no(
        "loss_breaks_alone", share > 0.5, seen("share_of_lines", share, "share", "> 0.5")
    )


def grad_zero(context: CheckContext) -> CheckResult:
    """The gradient norm is exactly zero on most lines of the incident."""
    values = context.during("grad_norm")
    if not len(values):
        return missing("grad_zero", "grad_norm")
    share = float(np.mean(values == 0.0))
    return yes_or_no("grad_zero", share > 0.5, seen("share_of_zeros", share, "", "> 0.5"))


def grad_pinned(context: CheckContext) -> CheckResult:
    """The norm stands at one constant: the clipping threshold, or the square root of 2."""
    values = context.during("grad_norm")
    if len(values) < 3:
        return missing("grad_pinned", "grad_norm")
    level = median(values)
    same = float(np.mean(np.abs(values - level) < 1e-3 * max(level, 1e-12))) > 0.8
    clip = number(context.config(*_CLIP)) or 1.0
    special = any(abs(level - mark) < 2e-3 for mark in (clip, math.sqrt(2)))
    return yes_or_no("grad_pinned", same and special, seen("norm", level, "", f"{clip:g} or 1.414"))


def grad_first_nonfinite(context: CheckContext) -> CheckResult:
    """The gradient was not finite at a step whose loss still was."""
    grad, loss = context.track("grad_norm"), context.track("loss")
    if grad is None or loss is None:
        return missing("grad_first_nonfinite", "grad_norm", "loss")
    bad_grad = np.flatnonzero(~np.isfinite(grad.values))
    bad_loss = loss.steps[~np.isfinite(loss.values)]
    if not len(bad_grad):
        return yes_or_no("grad_first_nonfinite", False)
    first_loss = int(bad_loss[0]) if len(bad_loss) else math.inf
    evidence = at_point(context, grad, int(bad_grad[0]), "norm")
    leads = int(grad.steps[bad_grad[0]]) < first_loss
    return yes_or_no("grad_first_nonfinite", leads, evidence)


def grad_huge_at_start(context: CheckContext) -> CheckResult:
    """The first norms are infinite or above 10,000 while the loss is sane."""
    grad, loss = context.track("grad_norm"), context.track("loss")
    if grad is None or not len(grad):
        return missing("grad_huge_at_start", "grad_norm")
    if int(grad.steps[0]) > 10 * grad.interval:
        return missing("grad_huge_at_start", "earlier_steps")
    scale = context.before("loss_scale") if context.track("loss_scale") is not None else np.empty(0)
    factor = float(scale[0]) if len(scale) and scale[0] > 1 else 1.0
    first = float(grad.values[0])
    huge = math.isinf(first) or first / factor > context.value("huge_norm")
    sane = loss is None or math.isfinite(float(loss.values[0]))
    return yes_or_no(
        "grad_huge_at_start", huge and sane, at_point(context, grad, 0, "norm", "< 10000")
    )


def grad_drifts(context: CheckContext) -> CheckResult:
    """The norm's level rose by 30 % or more over the lines before, slowly."""
    track = context.track("grad_norm")
    if track is None or context.last is None:
        return missing("grad_drifts", "grad_norm")
    values = track.values[track.steps <= context.last][-1000:]
    values = values[np.isfinite(values)]
    if len(values) < 100:
        return missing("grad_drifts", "earlier_steps")
    tenth = len(values) // 10
    levels = [median(values[i * tenth : (i + 1) * tenth]) for i in range(10)]
    ratio = median(np.array(levels[-3:])) / max(median(np.array(levels[:3])), 1e-12)
    leap = max(b / max(a, 1e-12) for a, b in pairwise(levels))
    evidence = (seen("change_ratio", ratio, "", "> 1.3"), seen("largest_ratio", leap, "", "< 2"))
    return yes_or_no("grad_drifts", ratio > 1.3 and leap < 2, *evidence)


def noise_follows_lr(context: CheckContext) -> CheckResult:
    """The swing of the norm rises and falls with the learning rate (correlation above 0.7)."""
    grad, rate = context.track("grad_norm"), context.track("lr")
    if grad is None or rate is None or len(grad) < 200 or len(rate) < 200:
        return missing("noise_follows_lr", "grad_norm", "lr")
    size = len(grad) // 20
    swings, rates = [], []
    for block in range(20):
        own = slice(block * size, (block + 1) * size)
        values = grad.values[own][np.isfinite(grad.values[own])]
        at = min(int(np.searchsorted(rate.steps, grad.steps[own][0])), len(rate) - 1)
        if len(values) > 2:
            swings.append(float(np.std(values)))
            rates.append(float(rate.values[at]))
    if len(swings) < 10 or np.std(swings) == 0 or np.std(rates) == 0:
        return yes_or_no("noise_follows_lr", False)
    link = float(np.corrcoef(swings, rates)[0, 1])
    return yes_or_no("noise_follows_lr", link > 0.7, seen("correlation", link, "", "> 0.7"))


def norm_holds_scale(context: CheckContext) -> CheckResult:
    """The printed norm still contains the loss scale: both change by the same factor."""
    told = context.finding.statistics.get("loss_scale_removed")
    if told in ("yes", 1):
        return result("norm_holds_scale", "supported", seen("loss_scale_removed", "yes"))
    grad, scale = context.track("grad_norm"), context.track("loss_scale")
    if grad is None or scale is None:
        return missing("norm_holds_scale", "loss_scale")
    return yes_or_no("norm_holds_scale", False, seen("loss_scale_removed", "no"))


def clip_off(context: CheckContext) -> CheckResult:
    """Gradient clipping is off, or the limit lies far above the usual norm."""
    limit = number(context.config(*_CLIP))
    if limit is None:
        return missing("clip_off", "setting_clip")
    usual = context.before("grad_norm")
    far = bool(len(usual)) and limit > 10 * max(median(usual), 1e-12)
    evidence = seen("clip_threshold", limit, "", "> 0")
    return yes_or_no("clip_off", limit <= 0 or far, evidence)


def clip_below_norm(context: CheckContext) -> CheckResult:
    """The clipping threshold lies below the usual norm."""
    limit, values = number(context.config(*_CLIP)), context.all_of("grad_norm")
    if limit is None or not len(values):
        return missing("clip_below_norm", "setting_clip" if limit is None else "grad_norm")
    usual = median(values)
    evidence = seen("clip_threshold", limit, "", f"< {usual:.3g}")
    return yes_or_no("clip_below_norm", 0 < limit < usual, evidence)


GRADIENT: dict[str, Check] = {
    check.__name__: check
    for check in (
        grad_leads, grad_isolated, grad_lasts, leaps_beyond_reason, weights_grew,
        loss_breaks_alone, grad_zero, grad_pinned,
        grad_first_nonfinite,
        grad_huge_at_start, grad_drifts, noise_follows_lr, norm_holds_scale, clip_off,
        clip_below_norm,
    )
}  # fmt: skip
