"""Checks on the loss as it moves: where it began, what it did then, whether it came back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_point,
    at_step,
    median,
    missing,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult

_LOSSES = ("loss_spike", "loss_divergence", "loss_nonfinite")


def loss_calm(context: CheckContext) -> CheckResult:
    """The loss did not move while something else did."""
    before, during = context.before("loss"), context.during("loss")
    if not len(before) or not len(during):
        return missing("loss_calm", "loss")
    rise = float(during.max()) - median(before)
    limit = max(4 * spread(before), context.value("calm_nats"))
    return yes_or_no("loss_calm", rise < limit, seen("loss_rise", rise, "nat", f"< {limit:.3g}"))


def came_back(context: CheckContext) -> CheckResult:
    """The loss came back to its level by itself, in what the log shows of the time after."""
    track = context.track("loss")
    before = context.before("loss")
    if track is None or context.last is None or not len(before):
        return missing("came_back", "loss")
    after = track.values[track.steps > context.last]
    after = after[np.isfinite(after)][:500]
    if len(after) < 3:
        return missing("came_back", "later_steps")
    level, back = median(before), median(after[-20:])
    near = back <= level + max(0.02 * abs(level), context.value("calm_nats"), 3 * spread(before))
    return yes_or_no("came_back", near, seen("level_after", back, "nat", f"<= {level:.4g}"))


def spikes_return(context: CheckContext) -> CheckResult:
    """The same kind of finding stands at three places of the run or more."""
    own = context.finding
    told = own.statistics.get("similar")
    known = {f.id: f for f in (*context.everything, *context.findings)}.values()
    count = sum(f.kind == own.kind and f.segment == own.segment for f in known)
    count += int(told) if isinstance(told, int | float) else 0
    return yes_or_no("spikes_return", count >= 3, seen("recurrences", count, "", ">= 3"))


def growth_before(context: CheckContext) -> CheckResult:
    """Loss or gradient norm left its level on the lines before the first non-finite value."""
    bad = [f.step_first for f in context.of_kind("loss_nonfinite", "grad_nonfinite")]
    end = min((step for step in bad if step is not None), default=context.first)
    limit = context.value("growth_ratio")
    known = False
    for metric in ("grad_norm", "loss"):
        track = context.track(metric)
        if track is None or end is None:
            continue
        values = track.values[track.steps < end]
        values = values[np.isfinite(values)][-200:]
        if len(values) < 6 or values.min() <= 0:  # a policy's loss goes through zero: no ratio
            continue
        known = True
        level, top = median(values), float(values[-30:].max())
        place = at_step(context, metric, end - 1, "training_loss" if metric == "loss" else "norm")
        wanted = limit if metric == "grad_norm" else 1 + (limit - 1) / 8
        if top > wanted * abs(level):
            evidence = seen("growth_before_nan", top / max(abs(level), 1e-12), "", f"> {wanted:g}")
            return yes_or_no("growth_before", True, evidence, place)
    return yes_or_no("growth_before", False) if known else missing("growth_before", "loss")


def from_first_step(context: CheckContext) -> CheckResult:
    """It was there from the first step of the training on, as far as the log begins there."""
    track = context.track("loss") or context.track("grad_norm")
    if track is None or context.first is None:
        return missing("from_first_step", "loss")
    start = int(track.steps[0])
    evidence = seen("first_step", start, "step")
    if context.first > start + 2 * track.interval:
        return yes_or_no("from_first_step", False, evidence)
    if start > 10 * track.interval:  # an excerpt: what was before its first line is not known
        return missing("from_first_step", "earlier_steps")
    return yes_or_no("from_first_step", True, evidence)


def in_first_dozen(context: CheckContext) -> CheckResult:
    """It began within the first twelve steps, but not at the very first."""
    track = context.track("loss") or context.track("grad_norm")
    if track is None or context.first is None:
        return missing("in_first_dozen", "loss")
    start = int(track.steps[0])
    if start > 10 * track.interval:
        return yes_or_no("in_first_dozen", False, seen("first_step", start, "step"))
    away = context.first - start
    answer = 1 <= away <= max(12, track.interval)
    return yes_or_no("in_first_dozen", answer, seen("steps_before", away, "step", "1 to 12"))


def at_epoch_edge(context: CheckContext) -> CheckResult:
    """It began where an epoch ends (within 2 % of an epoch)."""
    track = context.track("epoch")
    if track is None or context.first is None or not float(np.nanmax(track.values)) >= 1:
        return missing("at_epoch_edge", "epoch")
    at = min(int(np.searchsorted(track.steps, context.first)), len(track) - 1)
    epoch = float(track.values[at])
    near = 0.5 < epoch < np.inf and abs(epoch - round(epoch)) < 0.02
    return yes_or_no("at_epoch_edge", near, at_point(context, track, at, "epoch_reached"))


def several_epochs(context: CheckContext) -> CheckResult:
    """The data was seen more than once by then."""
    values = context.all_of("epoch")
    if not len(values):
        return missing("several_epochs", "epoch")
    top = float(values.max())
    return yes_or_no("several_epochs", top > 1.0, seen("epoch_reached", top, "", "> 1"))


def train_falls(context: CheckContext) -> CheckResult:
    """The training loss went on falling meanwhile."""
    told = context.finding.statistics.get("training_falls")
    values = context.during("loss")
    if isinstance(told, int | float):
        return yes_or_no("train_falls", bool(told), seen("training_falls", int(told)))
    if len(values) < 8:
        return missing("train_falls", "loss")
    quarter = len(values) // 4
    change = median(values[-quarter:]) - median(values[:quarter])
    return yes_or_no("train_falls", change < 0, seen("change_of_loss", change, "nat", "< 0"))


def val_apart_from_start(context: CheckContext) -> CheckResult:
    """From the first evaluation on the validation loss stands a third above the training loss.

    Within the first epoch nothing can be learnt by heart: the two do not measure the same thing.
    """
    val, loss = context.track("val_loss"), context.track("loss")
    if val is None or loss is None or not len(val):
        return missing("val_apart_from_start", "val_loss" if val is None else "loss")
    sound = np.flatnonzero(np.isfinite(val.values))
    if not len(sound):
        return missing("val_apart_from_start", "val_loss")
    at = int(sound[0])
    first = int(val.steps[at])
    near = loss.values[np.abs(loss.steps - first) <= 10 * loss.interval]
    near = near[np.isfinite(near)]
    epoch = context.track("epoch")
    late = epoch is not None and bool((epoch.values[epoch.steps <= first] > 1).any())
    if len(near) < 3 or late:
        return missing("val_apart_from_start", "earlier_evaluations")
    gap = float(val.values[at]) / max(median(near), 1e-9) - 1
    place = at_point(context, val, at, "first_validation")
    return yes_or_no("val_apart_from_start", gap > 0.33,
                     seen("gap_to_training", gap, "share", "< 0.33"), place)  # fmt: skip


def creeps_up(context: CheckContext) -> CheckResult:
    """The loss rises slowly over hundreds of lines, without a jump."""
    values = context.during("loss")
    if len(values) < 100:
        return yes_or_no("creeps_up", False) if len(values) else missing("creeps_up", "loss")
    tenth = len(values) // 10
    blocks = [median(values[i * tenth : (i + 1) * tenth]) for i in range(10)]
    rises = sum(b > a for a, b in pairwise(blocks))
    largest = max(b - a for a, b in pairwise(blocks))
    total = blocks[-1] - blocks[0]
    slow = rises >= 6 and total > 0 and largest < 0.5 * total
    return yes_or_no("creeps_up", slow, seen("blocks_rising", rises, "", ">= 6 of 9"))


def onset_while_lr_falls(context: CheckContext) -> CheckResult:
    """It began while the learning rate was coming down."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 10:
        return missing("onset_while_lr_falls", "lr")
    at = min(int(np.searchsorted(track.steps, context.first)), len(track) - 1)
    top = float(np.nanmax(track.values[: at + 1]))
    share = float(track.values[at]) / top if top > 0 else 1.0
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no(
        "onset_while_lr_falls", share < 0.7, evidence, seen("share_of_peak", share, "", "< 0.7")
    )


def loss_jumps_at_once(context: CheckContext) -> CheckResult:
    """The first line of the rise already stands at 60 % of its height: no growth, a jump.

    Needs a log of every step or every other one; means over more steps cannot tell.
    """
    track = context.track("loss")
    starts = [f.step_first for f in context.of_kind("loss_spike") if f.step_first is not None]
    first = starts[0] if starts else context.first
    before = context.before("loss", 50)
    if track is None or first is None or len(before) < 5:
        return missing("loss_jumps_at_once", "loss" if track is None else "earlier_steps")
    if track.interval > 2:
        return missing("loss_jumps_at_once", "every_step")
    at = int(np.searchsorted(track.steps, first))
    values = track.values[at : at + 20]
    values = values[np.isfinite(values)]
    if not len(values):
        return missing("loss_jumps_at_once", "loss")
    level = median(before)
    height = float(values.max()) - level
    # The first line of a coarse log is the mean of steps before and behind the jump.
    early = values[: 1 if track.interval == 1 else 2]
    share = (float(early.max()) - level) / height if height > 0 else 0.0
    evidence = (at_point(context, track, at, "training_loss"),
                seen("share_of_height", share, "share", "> 0.6"))  # fmt: skip
    return yes_or_no("loss_jumps_at_once", share > 0.6, *evidence)


def returns_periodically(context: CheckContext) -> CheckResult:
    """The same kind of finding returns at equal distances: the data's order, not the optimiser."""
    own = context.finding
    known = {f.id: f for f in (*context.everything, *context.findings)}.values()
    steps = sorted(f.step_first for f in known if f.kind == own.kind and f.step_first is not None)
    gaps = np.diff(np.unique(steps))
    if len(gaps) < 2:
        return yes_or_no("returns_periodically", False, seen("recurrences", len(steps)))
    uneven = float(np.max(np.abs(gaps - np.median(gaps))) / max(float(np.median(gaps)), 1.0))
    evidence = seen("distance", float(np.median(gaps)), "step")
    return yes_or_no("returns_periodically", uneven < 0.1, evidence)


def loss_repeats(context: CheckContext) -> CheckResult:
    """The curve comes again with a period: the order of the data shows, unshuffled.

    Correlation above one half of the changes over three lines with those one period later.
    Changes, not levels: a single hump is like itself at any lag, its steps up and down are not.
    """
    track = context.track("loss")
    if track is None or len(track) < 120:
        return missing("loss_repeats", "loss" if track is None else "later_steps")
    values = track.values[len(track) // 8 :]
    values = values[np.isfinite(values)]
    if len(values) < 100:
        return missing("loss_repeats", "later_steps")
    moves = values[3:] - values[:-3]
    moves = np.clip(moves, *np.percentile(moves, (2, 98)))  # one leap makes no period
    lags = np.unique(np.linspace(20, len(moves) / 2.4, 2000).astype(int))
    swing = float(np.std(moves))
    # Noise of a few per cent explains no incident, however regular it is.
    if swing <= max(context.value("calm_nats"), 0.03 * abs(median(values))):
        return yes_or_no("loss_repeats", False, seen("change_of_loss", swing, "nat"))
    links = [float(np.corrcoef(moves[:-lag], moves[lag:])[0, 1]) for lag in lags]
    best = int(np.argmax(links))
    evidence = (seen("correlation", links[best], "", "< 0.5"),
                seen("distance", float(lags[best] * track.interval), "step"))  # fmt: skip
    return yes_or_no("loss_repeats", links[best] > 0.5, *evidence)


def alternates_with_nan(context: CheckContext) -> CheckResult:
    """Good values and NaN take turns: the state is not dead, single steps are."""
    track = context.track("loss")
    if track is None:
        return missing("alternates_with_nan", "loss")
    bad = ~np.isfinite(track.values)
    turns = int(np.sum(bad[1:] != bad[:-1]))
    return yes_or_no("alternates_with_nan", turns >= 3, seen("turns", turns, "", ">= 3"))


LOSS: dict[str, Check] = {
    check.__name__: check
    for check in (
        loss_calm, came_back, spikes_return, growth_before, from_first_step, in_first_dozen,
        at_epoch_edge, several_epochs, train_falls, creeps_up, val_apart_from_start,
        onset_while_lr_falls, alternates_with_nan, loss_jumps_at_once, returns_periodically,
        loss_repeats,
    )
}  # fmt: skip
