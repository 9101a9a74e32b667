"""Checks on the shape of curves over the whole run: schedule, epochs, restarts, levels."""

from __future__ import annotations

import numpy as np
import polars as pl

from loganalyze.checks.base import Check, CheckContext, at_step, missing, number, seen, yes_or_no
from loganalyze.checks.system import beside
from loganalyze.model import CheckResult
from loganalyze.tracks import tracks


def grad_zero(context: CheckContext) -> CheckResult:
    """The gradient norm is exactly zero on most lines of the incident."""
    values = context.during("grad_norm")
    if not len(values):
        return missing("grad_zero", "grad_norm")
    share = float(np.mean(values == 0.0))
    return yes_or_no("grad_zero", share > 0.5, seen("share_of_zeros", share, "", "> 0.5"))


def lr_tiny(context: CheckContext) -> CheckResult:
    """The learning rate is below 1 % of its peak, or zero."""
    track = context.track("lr")
    during = context.during("lr")
    if track is None or not len(during):
        return missing("lr_tiny", "lr")
    top = float(track.values[np.isfinite(track.values)].max())
    share = float(np.median(during)) / top if top > 0 else 0.0
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no("lr_tiny", share < 0.01, evidence, seen("share_of_peak", share, "", "< 0.01"))


def lr_decayed(context: CheckContext) -> CheckResult:
    """The learning rate had come down below half of its peak."""
    track = context.track("lr")
    during = context.during("lr")
    if track is None or not len(during):
        return missing("lr_decayed", "lr")
    top = float(track.values[np.isfinite(track.values)].max())
    share = float(np.median(during)) / top if top > 0 else 0.0
    return yes_or_no("lr_decayed", share < 0.5, seen("share_of_peak", share, "", "< 0.5"))


def late_in_run(context: CheckContext) -> CheckResult:
    """It lies in the last fifth of the planned steps."""
    total = number(context.config("train_iters", "max_steps", "total_steps"))
    if total is None or context.first is None or total <= 0:
        return missing("late_in_run", "setting_total_steps")
    share = context.first / total
    return yes_or_no("late_in_run", share > 0.8, seen("share_of_plan", share, "", "> 0.8"))


def loss_tiny(context: CheckContext) -> CheckResult:
    """The loss is below 0.05: there is nothing left to learn."""
    values = context.during("loss")
    if not len(values):
        return missing("loss_tiny", "loss")
    level = float(np.median(values))
    return yes_or_no("loss_tiny", level < 0.05, seen("level_of_loss", level, "nat", "< 0.05"))


def several_epochs(context: CheckContext) -> CheckResult:
    """The data was seen more than once."""
    track = context.track("epoch")
    if track is None:
        return missing("several_epochs", "epoch")
    top = float(np.nanmax(track.values))
    return yes_or_no("several_epochs", top > 1.0, seen("epoch", top, "", "> 1"))


def train_falls(context: CheckContext) -> CheckResult:
    """The training loss went on falling meanwhile."""
    values = context.during("loss")
    if len(values) < 8:
        return missing("train_falls", "loss")
    quarter = len(values) // 4
    change = float(np.median(values[-quarter:]) - np.median(values[:quarter]))
    return yes_or_no("train_falls", change < 0, seen("change_of_loss", change, "nat", "< 0"))


def loss_jumped(context: CheckContext) -> CheckResult:
    """The loss stood higher right behind the border of the segments than before it."""
    sides = _sides(context, "loss")
    if sides is None:
        return missing("loss_jumped", "loss")
    change = sides[1] - sides[0]
    limit = context.value("calm_nats")
    return yes_or_no("loss_jumped", change > limit, seen("change_of_loss", change, "nat"))


def lr_jumps_at_segment(context: CheckContext) -> CheckResult:
    """The learning rate differs by more than 5 % over the border of the segments."""
    sides = _sides(context, "lr", points=1)
    if sides is None or sides[0] <= 0:
        return missing("lr_jumps_at_segment", "lr")
    ratio = sides[1] / sides[0]
    away = abs(ratio - 1) > 0.05
    return yes_or_no("lr_jumps_at_segment", away, seen("change_ratio", ratio, "", "0.95 to 1.05"))


def samples_restart(context: CheckContext) -> CheckResult:
    """The count of consumed samples does not fit the step behind the border of the segments."""
    found = tracks(context.run, "samples_seen")
    segment = context.finding.segment or 0
    own = next((t for t in found if t.segment == segment), None)
    before = next((t for t in found if t.segment == segment - 1), None)
    if own is None or before is None or not len(own) or not len(before):
        return missing("samples_restart", "samples_seen")
    at = int(np.searchsorted(before.steps, own.steps[0]))
    if at >= len(before):
        return missing("samples_restart", "samples_seen")
    was, now = float(before.values[at]), float(own.values[0])
    away = abs(now - was) > 0.01 * max(was, 1.0) and before.steps[at] == own.steps[0]
    return yes_or_no("samples_restart", bool(away), seen("samples_at_border", now, "", f"{was:g}"))


def _sides(context: CheckContext, metric: str, points: int = 20) -> tuple[float, float] | None:
    """Median before and behind the border of the finding's segment and the one before it."""
    found = tracks(context.run, metric)
    segment = context.finding.segment or 0
    own = next((t for t in found if t.segment == segment), None)
    before = next((t for t in found if t.segment == segment - 1), None)
    if own is None or before is None:
        return None
    earlier = before.values[before.steps < own.steps[0]][-points:]
    later = own.values[:points]
    earlier, later = earlier[np.isfinite(earlier)], later[np.isfinite(later)]
    if not len(earlier) or not len(later):
        return None
    return float(np.median(earlier)), float(np.median(later))


def scale_is_integer(context: CheckContext) -> CheckResult:
    """The finding's ratio is a whole number: accumulation steps or ranks."""
    ratio = context.finding.statistics.get("ratio")
    if not isinstance(ratio, int | float) or ratio <= 0:
        return missing("scale_is_integer", "reference_run")
    near = abs(ratio - round(ratio)) < 0.03 * ratio and round(ratio) >= 2
    return yes_or_no("scale_is_integer", near, seen("largest_ratio", float(ratio)))


def clip_below_norm(context: CheckContext) -> CheckResult:
    """The clipping threshold lies below the usual norm."""
    limit = number(context.config("clip_grad", "max_grad_norm", "gradient_clipping"))
    track = context.track("grad_norm")
    if limit is None or track is None:
        return missing("clip_below_norm", "setting_clip" if limit is None else "grad_norm")
    usual = float(np.nanmedian(track.values))
    evidence = seen("clip_threshold", limit, "", f"< {usual:.3g}")
    return yes_or_no("clip_below_norm", 0 < limit < usual, evidence)


def rl_zero_std(context: CheckContext) -> CheckResult:
    """The rewards of a group do not differ: their standard deviation is zero."""
    names = ("reward_std", "raw/frac_reward_zero_std")
    for name in names:
        values = context.during(name)
        if len(values):
            level = float(np.median(values))
            answer = level > 0.9 if name.startswith("raw/") else level < 1e-6
            return yes_or_no("rl_zero_std", answer, seen("reward_spread", level))
    return missing("rl_zero_std", "reward_std")


def needs_more_metrics(context: CheckContext) -> CheckResult:
    """Loss, learning rate or gradient norm are missing from the log."""
    held = {
        name
        for name in ("loss", "lr", "grad_norm")
        if name in context.run.readings.columns
        and context.run.readings.select(pl.col(name).is_not_null().any()).item()
    }
    lacking = [name for name in ("loss", "lr", "grad_norm") if name not in held]
    return yes_or_no(
        "needs_more_metrics", bool(lacking), seen("metrics_lacking", ", ".join(lacking))
    )


CURVES: dict[str, Check] = {
    "grad_zero": grad_zero,
    "lr_tiny": lr_tiny,
    "lr_decayed": lr_decayed,
    "late_in_run": late_in_run,
    "loss_tiny": loss_tiny,
    "several_epochs": several_epochs,
    "train_falls": train_falls,
    "loss_jumped": loss_jumped,
    "lr_jumps_at_segment": lr_jumps_at_segment,
    "samples_restart": samples_restart,
    "scale_is_integer": scale_is_integer,
    "clip_below_norm": clip_below_norm,
    "rl_zero_std": rl_zero_std,
    "needs_more_metrics": needs_more_metrics,
    "skipped_beside": beside("skipped_beside", "skipped_steps", "loss_scale_collapse"),
    "grad_oscillates_beside": beside("grad_oscillates_beside", "grad_oscillation"),
    "val_rises_beside": beside("val_rises_beside", "val_loss_rising"),
}
