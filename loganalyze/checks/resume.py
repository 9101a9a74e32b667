"""Checks on both sides of a restart: what was loaded, what came back, what did not."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    at_point,
    event_evidence,
    median,
    missing,
    number,
    rows_of,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult, Segment
from loganalyze.resumed import Twice, bump_of, run_twice, served_again, sides
from loganalyze.tracks import Track


def after_resume(context: CheckContext) -> CheckResult:
    """It began within the first lines of a resumed segment."""
    segment = _own(context)
    if segment is None or context.first is None:
        return missing("after_resume", "segments")
    loaded = rows_of(context.events("checkpoint_load"), 1)
    near = segment.first + 20 * context.run.meta.log_interval
    resumed = segment.relation == "resume" or (bool(loaded) and segment.first > 1)
    answer = resumed and context.first <= near
    return yes_or_no("after_resume", answer, seen("segment_start", segment.first, "step"))


def _own(context: CheckContext) -> Segment | None:
    return next((s for s in context.run.meta.segments if s.index == context.segment), None)


def _both(context: CheckContext, metric: str) -> tuple[Track, Track] | None:
    """The metric's track before the finding's segment, and that of the segment."""
    found = context.tracks(metric)
    own = [t for t in found if t.segment == context.segment and len(t)]
    before = [t for t in found if t.segment < context.segment and len(t)]
    if not own or not before:
        return None
    return max(before, key=lambda t: (t.segment, len(t))), max(own, key=len)


def _edge(context: CheckContext, metric: str, points: int = 20) -> tuple[Floats, Floats] | None:
    """The last finite values before the segment's first step, and its first ones."""
    both = _both(context, metric)
    if both is None:
        return None
    before, own = both
    earlier = before.values[before.steps < own.steps[0]][-points:]
    later = own.values[: max(points, 1)]
    earlier = earlier[np.isfinite(earlier)]
    return (earlier, later) if len(earlier) and len(later) else None


def loss_higher_after(context: CheckContext) -> CheckResult:
    """The loss stood higher right behind the border of the segments than before it."""
    told = context.finding.statistics.get("jump_nat")
    sides = _edge(context, "loss")
    if not isinstance(told, int | float):
        if sides is None:
            return missing("loss_higher_after", "loss")
        told = float(np.nanmedian(sides[1])) - median(sides[0])
    limit = context.value("calm_nats")
    return yes_or_no("loss_higher_after", told > limit, seen("change_of_loss", float(told), "nat"))


def loss_lower_after(context: CheckContext) -> CheckResult:
    """The loss stood lower behind the border than the trend: samples that were seen before."""
    sides = _edge(context, "loss")
    if sides is None:
        return missing("loss_lower_after", "loss")
    fall = median(sides[0]) - float(np.nanmedian(sides[1]))
    limit = max(context.value("calm_nats"), 3 * spread(sides[0]))
    return yes_or_no("loss_lower_after", fall > limit, seen("change_of_loss", -fall, "nat"))


def loss_like_new(context: CheckContext) -> CheckResult:
    """The first loss behind the border is like that of an untrained model."""
    sides = _edge(context, "loss", 3)
    if sides is None:
        return missing("loss_like_new", "loss")
    size = number(context.config("padded_vocab_size", "vocab_size"))
    guess = math.log(size) if size and size > 1 else context.value("untrained_nats")
    level = float(np.nanmedian(sides[1])) if np.isfinite(sides[1]).any() else math.nan
    first = float(sides[1][0])  # what is computed before any update
    answer = min(level, first) > guess - 1.5 and level - median(sides[0]) > 2.0
    return yes_or_no("loss_like_new", answer, seen("level_of_loss", level, "nat", f"< {guess:.3g}"))


def same_then_worse(context: CheckContext) -> CheckResult:
    """The first line behind the border fits, the next ones explode or are NaN."""
    sides = _edge(context, "loss", 6)
    if sides is None or len(sides[1]) < 2:
        return missing("same_then_worse", "loss")
    level, first, rest = median(sides[0]), float(sides[1][0]), sides[1][1:5]
    fits = abs(first - level) < max(0.05 * abs(level), context.value("calm_nats"))
    bad = bool(np.any(~np.isfinite(rest)) or np.nanmax(rest) > 1.5 * max(level, 0.1))
    worst = float(np.nanmax(rest)) if np.isfinite(rest).any() else math.nan
    return yes_or_no("same_then_worse", fits and bad, seen("peak_loss", worst, "nat"))


def bump_is_short(context: CheckContext) -> CheckResult:
    """The loss is back on its trend within about 100 steps behind the border."""
    return _bump(context, "bump_is_short", 100)


def bump_is_long(context: CheckContext) -> CheckResult:
    """The loss needs more than 100 steps behind the border to come back to its trend."""
    both = _bump(context, "bump_is_long", 100)
    if both.state == "not_checkable":
        return both
    flipped = both.state == "ruled_out"
    return yes_or_no("bump_is_long", flipped, *both.evidence)


def _bump(context: CheckContext, check: str, steps: int) -> CheckResult:
    both = _both(context, "loss")
    if both is None:
        return missing(check, "loss")
    before, own = both
    earlier = before.values[before.steps < own.steps[0]]
    earlier = earlier[np.isfinite(earlier)][-50:]
    away = own.steps - own.steps[0]
    later = own.values[(away > 0.5 * steps) & (away <= 2 * steps) & np.isfinite(own.values)]
    if len(earlier) < 3 or len(later) < 3:
        return missing(check, "later_steps")
    level = median(earlier)
    limit = level + max(context.value("calm_nats"), 3 * spread(earlier))
    back = median(later)
    return yes_or_no(check, back <= limit, seen("level_after", back, "nat", f"<= {limit:.4g}"))


def first_step_alike(context: CheckContext) -> CheckResult:
    """Of the steps run twice the first repeats its loss, the next stand higher.

    Weights and data are those of before, what the next steps need beside them is not.
    """
    twice = _first_step(context)
    if twice is None:
        return missing("first_step_alike", "steps_run_twice", "every_step")
    own, rise = float(twice.differences[0]), float(np.mean(twice.differences[1:9]))
    alike = abs(own) <= 1e-3 * abs(float(twice.first[0]))
    evidence = (seen("first_difference", own, "nat", "0"), seen("change_of_loss", rise, "nat", "0"))
    return yes_or_no("first_step_alike", alike and rise > context.value("calm_nats"), *evidence)


def first_step_on_other_data(context: CheckContext) -> CheckResult:
    """The first step run twice has the level of before, but another loss: another batch.

    No update stands between the load and this loss, so weights that fit can differ in data only;
    kernels and dropout move it by less than half of what neighbouring batches differ by.
    """
    twice, around = _first_step(context), _edge(context, "loss", 50)
    if twice is None or around is None:
        return missing("first_step_on_other_data", "steps_run_twice", "every_step")
    own, level = abs(float(twice.differences[0])), median(around[0])
    noise = spread(np.diff(around[0])) / math.sqrt(2)
    fits = abs(float(twice.first[0] + twice.differences[0]) - level) < max(5 * noise, 0.05 * level)
    limit = max(context.value("other_data_noise") * noise, 0.005 * abs(level))
    evidence = seen("first_difference", own, "nat", f"<= {limit:.3g}")
    return yes_or_no("first_step_on_other_data", fits and own > limit, evidence)


def _first_step(context: CheckContext) -> Twice | None:
    """Steps run twice of a log of every step; a mean holds the first step and the next."""
    both = sides(context.tracks("loss"), context.segment)
    if both is None or max(track.interval for track in both) > 1:
        return None
    twice = run_twice(*both)
    first = len(twice.steps) >= 6 and int(twice.steps[0]) == int(both[1].steps[0])
    return twice if first else None


def same_data_higher_at_first(context: CheckContext) -> CheckResult:
    """Of the steps run twice the losses swing alike: higher at first, back where they were later.

    The same weights saw the same data; only what the optimizer remembers was not there.
    """
    both = sides(context.tracks("loss"), context.segment)
    bump = bump_of(run_twice(*both)) if both is not None else None
    if bump is None:
        return missing("same_data_higher_at_first", "steps_run_twice")
    link, limit = context.value("same_data_link"), context.value("same_data_back") * bump.rise
    answer = bump.link >= link and bump.rise > context.value("calm_nats")
    evidence = (seen("correlation", bump.link, "", f">= {link:g}"),
                seen("change_of_loss", bump.rise, "nat", "0"),
                seen("level_after", bump.rest, "nat", f"<= {limit:.3g}"))  # fmt: skip
    back = bump.rest <= limit
    return yes_or_no("same_data_higher_at_first", answer and back, *evidence)


def data_served_again(context: CheckContext) -> CheckResult:
    """The loss behind the border swings from step to step as it did at the start of the run."""
    known = context.tracks("loss")
    both = sides(known, context.segment)
    link, deviations, count = (0.0, 0.0, 0) if both is None else served_again(known, both[1])
    if not count:
        return missing("data_served_again", "earlier_steps")
    sure = deviations >= 3.5 and link >= 0.25
    alike, certain = seen("correlation", link, "", "< 0.25"), seen("deviations", deviations)
    return yes_or_no("data_served_again", sure, alike, certain)


def lr_jumps_at_segment(context: CheckContext) -> CheckResult:
    """The learning rate differs by more than 5 % over the border of the segments."""
    both = _both(context, "lr")
    if both is None:
        return missing("lr_jumps_at_segment", "lr")
    before, own = both
    at = min(int(np.searchsorted(before.steps, own.steps[0])), len(before) - 1)
    was, now = float(before.values[at]), float(own.values[0])
    if was <= 0 or not math.isfinite(was):
        return missing("lr_jumps_at_segment", "lr")
    ratio = now / was
    evidence = at_point(context, own, 0, "learning_rate", f"{was:.4g}")
    answer = abs(ratio - 1) > 0.05
    return yes_or_no("lr_jumps_at_segment", answer, evidence, seen("change_ratio", ratio))


def samples_restart(context: CheckContext) -> CheckResult:
    """The count of consumed samples does not fit the step behind the border of the segments."""
    both = _both(context, "samples_seen") or _both(context, "tokens_seen")
    if both is None:
        return missing("samples_restart", "samples_seen")
    before, own = both
    at = int(np.searchsorted(before.steps, own.steps[0]))
    if at >= len(before):
        at = len(before) - 1
    gap = int(own.steps[0]) - int(before.steps[at])
    was, now = float(before.values[at]), float(own.values[0])
    rate = was / max(int(before.steps[at]), 1)
    away = abs(now - (was + gap * rate)) > max(0.01 * was, 2 * rate * own.interval)
    return yes_or_no("samples_restart", away, seen("samples_at_border", now, "", f"{was:g}"))


def epoch_restarts(context: CheckContext) -> CheckResult:
    """The epoch behind the border is lower than at the same step before it."""
    both = _both(context, "epoch")
    if both is None:
        return missing("epoch_restarts", "epoch")
    before, own = both
    at = min(int(np.searchsorted(before.steps, own.steps[0])), len(before) - 1)
    was, now = float(before.values[at]), float(own.values[0])
    evidence = at_point(context, own, 0, "epoch_reached", f"{was:.3g}")
    return yes_or_no("epoch_restarts", now < was - 0.02, evidence)


def speed_shifts_at_segment(context: CheckContext) -> CheckResult:
    """The time per step differs by 3 % or more over the border: the environment changed."""
    sides = _edge(context, "step_time_s", 50)
    if sides is None or len(sides[1]) < 10:
        return missing("speed_shifts_at_segment", "step_time_s")
    ratio = float(np.nanmedian(sides[1][3:])) / max(median(sides[0]), 1e-9)
    evidence = seen("change_ratio", ratio, "", "0.97 to 1.03")
    return yes_or_no("speed_shifts_at_segment", abs(ratio - 1) > 0.03, evidence)


def older_checkpoint(context: CheckContext) -> CheckResult:
    """The checkpoint that was loaded is older than the last one saved."""
    loads = context.events("checkpoint_load")["step"].drop_nulls()
    saves = context.events("checkpoint_save_end", "checkpoint_save_begin")["step"].drop_nulls()
    if not len(loads) or not len(saves):
        return missing("older_checkpoint", "checkpoint_lines")
    loaded = int(loads.to_list()[-1])
    earlier = [int(s) for s in saves.to_list()]
    newest = max(earlier)
    evidence = seen("loaded_step", loaded, "step", f"{newest}")
    return yes_or_no("older_checkpoint", loaded < newest and loaded not in (newest,), evidence)


def began_again(context: CheckContext) -> CheckResult:
    """Nothing was loaded and the steps begin again at the start."""
    segment = _own(context)
    fresh = rows_of(context.events("start_fresh"), 1)
    if segment is None:
        return missing("began_again", "segments")
    first = segment.first <= 10 * context.run.meta.log_interval
    lines = [event_evidence("log_line", row) for row in fresh]
    evidence = seen("segment_start", segment.first, "step")
    return yes_or_no("began_again", bool(fresh) and first and segment.index > 0, evidence, *lines)


def sound_checkpoint(context: CheckContext) -> CheckResult:
    """A save stands in the log before anything moved: the newest one to go back to."""
    saves = context.run.events.filter(
        pl.col("kind").is_in(("checkpoint_save_end", "checkpoint_save_begin"))
        & pl.col("step").is_not_null()
    )
    if not len(saves) or context.first is None:
        return missing("sound_checkpoint", "checkpoint_lines")
    confirmed = saves.filter(pl.col("kind") == "checkpoint_save_end")
    known = confirmed if len(confirmed) else saves
    earlier = known.filter(
        (pl.col("step") < context.first) & (pl.col("segment").fill_null(0) <= context.segment)
    ).sort("step")
    if not len(earlier):
        return yes_or_no("sound_checkpoint", False, seen("first_step_of_it", context.first, "step"))
    row = earlier.row(-1, named=True)
    step, line = int(row["step"]), event_evidence("log_line", row)
    return yes_or_no("sound_checkpoint", True, seen("checkpoint_step", step, "step"), line)


RESUME: dict[str, Check] = {
    check.__name__: check
    for check in (
        after_resume, loss_higher_after, loss_lower_after, loss_like_new, same_then_worse,
        bump_is_short, bump_is_long, lr_jumps_at_segment, samples_restart, epoch_restarts,
        first_step_alike, first_step_on_other_data, same_data_higher_at_first, data_served_again,
        speed_shifts_at_segment, older_checkpoint, began_again, sound_checkpoint,
    )
}  # fmt: skip
