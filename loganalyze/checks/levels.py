"""Checks on the level of the loss: exact constants, ln(vocabulary), zeros and what they hide."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_point,
    median,
    missing,
    number,
    result,
    seen,
    spread,
    yes_or_no,
)
from loganalyze.model import CheckResult


def _vocabulary(context: CheckContext) -> float | None:
    size = number(context.config("padded_vocab_size", "vocab_size"))
    return math.log(size) if size is not None and size > 1 else None


def loss_above_uniform(context: CheckContext) -> CheckResult:
    """The loss rose above ln(vocabulary) + 1: worse than guessing."""
    guess, during = _vocabulary(context), context.during("loss")
    if guess is None or not len(during):
        return missing("loss_above_uniform", "setting_vocab_size" if guess is None else "loss")
    peak = float(during.max())
    evidence = seen("peak_loss", peak, "nat", f"> {guess + 1:.3g}")
    return yes_or_no("loss_above_uniform", peak > guess + 1, evidence)


def loss_at_uniform(context: CheckContext) -> CheckResult:
    """The loss stands at ln(vocabulary): the output is as good as random."""
    guess, during = _vocabulary(context), context.during("loss")
    if guess is None or not len(during):
        return missing("loss_at_uniform", "setting_vocab_size" if guess is None else "loss")
    level = median(during)
    near = abs(level - guess) < context.value("uniform_nats")
    return yes_or_no("loss_at_uniform", near, seen("level_of_loss", level, "nat", f"{guess:.3g}"))


def first_loss_high(context: CheckContext) -> CheckResult:
    """The first loss of the training is above ln(vocabulary) + 1, that of a correct start."""
    guess, track = _vocabulary(context), context.track("loss")
    if track is None or int(track.steps[0]) > 10 * track.interval:
        return missing("first_loss_high", "earlier_steps")
    limit = (guess or math.log(context.value("largest_vocabulary"))) + 1
    first = float(track.values[0])
    if not math.isfinite(first):
        return missing("first_loss_high", "loss")
    if guess is None and first < limit:
        return missing("first_loss_high", "setting_vocab_size")
    evidence = at_point(context, track, 0, "first_loss", f"> {limit:.3g}")
    return yes_or_no("first_loss_high", first > limit, evidence)


def pretrained_starts_high(context: CheckContext) -> CheckResult:
    """A model that was loaded or is fine-tuned starts above 4 nats: its weights do not fit."""
    track = context.track("loss")
    loaded = context.config("finetune", "model_name_or_path", "pretrained_checkpoint")
    used = loaded is not None and loaded.strip().lower() not in ("", "none", "false", "no", "0")
    if track is None or int(track.steps[0]) > 10 * track.interval or not used:
        return missing("pretrained_starts_high", "setting_pretrained")
    first = float(track.values[0])
    evidence = at_point(context, track, 0, "first_loss", "> 4")
    return yes_or_no("pretrained_starts_high", first > 4.0, evidence)


def loss_exactly_zero(context: CheckContext) -> CheckResult:
    """The loss is exactly zero on two or more lines."""
    track = context.track("loss")
    if track is None:
        return missing("loss_exactly_zero", "loss")
    hits = np.flatnonzero(track.values == 0.0)
    count = seen("lines_at_zero", len(hits), "", ">= 2")
    if len(hits) < 2:
        return yes_or_no("loss_exactly_zero", False, count)
    return yes_or_no(
        "loss_exactly_zero", True, count, at_point(context, track, int(hits[0]), "training_loss")
    )


def zero_stands_for_nan(context: CheckContext) -> CheckResult:
    """A loss of 0 stands beside a NaN gradient norm on one line: the trainer's filter hides NaN."""
    frame = context.run.readings
    if "loss" not in frame.columns or "grad_norm" not in frame.columns:
        return missing("zero_stands_for_nan", "grad_norm")
    hidden = frame.select(((pl.col("loss") == 0.0) & ~pl.col("grad_norm").is_finite()).sum())
    both = int(hidden.item() or 0)
    evidence = seen("lines_zero_and_nan", both, "", ">= 1")
    return yes_or_no("zero_stands_for_nan", both > 0, evidence)


def wild_line_before(context: CheckContext) -> CheckResult:
    """One line with several times the usual loss stands right before the zeros or NaN."""
    track = context.track("loss")
    if track is None or context.first is None:
        return missing("wild_line_before", "loss")
    broken = ~np.isfinite(track.values) | (track.values == 0.0)
    hits = np.flatnonzero(broken)
    if not len(hits) or hits[0] == 0:
        return yes_or_no("wild_line_before", False)
    at = int(hits[0]) - 1
    sound = track.values[:at][np.isfinite(track.values[:at])]
    # Without a past: no sound start lies above ln of the largest vocabularies (12.5) by a nat.
    level = median(sound[-50:]) if len(sound) else 4.5
    wild = float(track.values[at]) > 3 * max(level, 1.0)
    evidence = at_point(context, track, at, "training_loss", f"> {3 * max(level, 1.0):.3g}")
    return yes_or_no("wild_line_before", wild, evidence)


def loss_at_ln2(context: CheckContext) -> CheckResult:
    """The loss stands at ln 2, where a preference model equals its reference."""
    values = context.all_of("loss")
    if len(values) < 3:
        return missing("loss_at_ln2", "loss")
    share = float(np.mean(np.abs(values - math.log(2)) < 1e-3))
    return yes_or_no("loss_at_ln2", share > 0.8, seen("share_of_lines", share, "", "> 0.8"))


def loss_tiny(context: CheckContext) -> CheckResult:
    """The loss is below 0.05: there is nothing left to learn."""
    values = context.during("loss")
    if not len(values):
        return missing("loss_tiny", "loss")
    level = median(values)
    return yes_or_no("loss_tiny", level < 0.05, seen("level_of_loss", level, "nat", "< 0.05"))


def val_low_too(context: CheckContext) -> CheckResult:
    """The validation loss is next to nothing as well: not memorised, but given away."""
    values = context.all_of("val_loss")
    if not len(values):
        return missing("val_low_too", "val_loss")
    end = median(values[-3:])
    return yes_or_no("val_low_too", end < 0.5, seen("validation_level", end, "nat", "< 0.5"))


def factor_is_accumulation(context: CheckContext) -> CheckResult:
    """The first loss is chance times the accumulation steps."""
    told = context.finding.statistics
    by, factor = str(told.get("by") or ""), told.get("factor")
    if not by or not isinstance(factor, int | float):
        return missing("factor_is_accumulation", "reference_run")
    if by == "validation loss":  # a whole number, of which nothing tells where it comes from
        return missing("factor_is_accumulation", "setting_accumulation")
    answer = not by.startswith("ln(")
    return yes_or_no("factor_is_accumulation", answer, seen("setting", f"{by} = {factor:g}"))


def offset_is_ln_parallel(context: CheckContext) -> CheckResult:
    """The loss lies ln(parallel size) above the reference."""
    told = context.finding.statistics
    by, factor = str(told.get("by") or ""), told.get("factor")
    if not by or not isinstance(factor, int | float):
        return missing("offset_is_ln_parallel", "reference_run")
    answer = by.startswith("ln(")
    return yes_or_no("offset_is_ln_parallel", answer, seen("setting", f"{by}, {factor:g}"))


def nothing_changed_it(context: CheckContext) -> CheckResult:
    """The loss is frozen to the last digit while steps and learning rate move on."""
    found = context.of_kind("loss_frozen")
    if not found:
        return yes_or_no("nothing_changed_it", False)
    repeats = found[0].statistics.get("repeats")
    return result("nothing_changed_it", "supported", seen("repeats", _plain(repeats)))


def _plain(value: object) -> float | str | None:
    return value if isinstance(value, int | float | str) else None


def nan_to_the_end(context: CheckContext) -> CheckResult:
    """From the first NaN or Inf on no later line is sound, ten lines or more: the state is lost."""
    told = []
    for metric in ("loss", "grad_norm"):
        track = context.track(metric)
        bad = np.empty(0) if track is None else np.flatnonzero(~np.isfinite(track.values))
        if track is None or not len(bad):
            continue
        later = len(track) - int(bad[0])
        told.append((later, len(bad) / later, at_point(context, track, int(bad[0]), "first_bad")))
    if not told:
        return missing("nan_to_the_end", "loss")
    later, share, place = max(told, key=lambda item: item[:2])
    lost = later >= 10 and share > 0.95
    evidence = (seen("share_of_lines", share, "share", "> 0.95"), place)
    return yes_or_no("nan_to_the_end", lost, *evidence)


def broke_at_once(context: CheckContext) -> CheckResult:
    """Nothing led to it: the line before the first NaN or Inf is like all lines before it."""
    known = False
    for metric in ("grad_norm", "loss"):
        track = context.track(metric)
        bad = np.empty(0) if track is None else np.flatnonzero(~np.isfinite(track.values))
        if track is None or not len(bad) or bad[0] < 12:
            continue
        known = True
        before = track.values[max(0, int(bad[0]) - 60) : int(bad[0])]
        usual, last = before[:-3], before[-3:]
        level, width = median(usual), max(spread(usual), 0.02 * abs(median(usual)), 1e-9)
        away = float(np.max(np.abs(last - level))) / width
        if away > context.value("broken_deviations"):
            evidence = seen("deviations", away, "", f"< {context.value('broken_deviations'):g}")
            return yes_or_no("broke_at_once", False, evidence)
    return yes_or_no("broke_at_once", True) if known else missing("broke_at_once", "earlier_steps")


def weights_stand_still(context: CheckContext) -> CheckResult:
    """The norm of the weights is one number over the incident although the rate is not zero."""
    values = context.during("params_norm")
    if len(values) < 20:
        return missing("weights_stand_still", "params_norm")
    swing = float(np.ptp(values)) / max(median(np.abs(values)), 1e-12)
    evidence = seen("relative_swing", swing, "", "> 0")
    return yes_or_no("weights_stand_still", swing < 1e-6, evidence)


def updates_round_away(context: CheckContext) -> CheckResult:
    """The weights' norm stopped moving while the rate went on and the gradient kept its size."""
    if context.track("params_norm") is None:
        return missing("updates_round_away", "params_norm")
    told = {f.id: f for f in (*context.findings, *context.everything) if f.metric == "params_norm"}
    shares = [f.statistics.get("movement_share") for f in told.values()]
    known = [share for share in shares if isinstance(share, int | float)]
    evidence = [seen("movement_share", float(share), "", "> 0.1") for share in known[:1]]
    return yes_or_no("updates_round_away", bool(known), *evidence)


LEVELS: dict[str, Check] = {
    check.__name__: check
    for check in (
        loss_above_uniform, loss_at_uniform, first_loss_high, pretrained_starts_high,
        loss_exactly_zero, zero_stands_for_nan, wild_line_before, loss_at_ln2, loss_tiny,
        val_low_too, factor_is_accumulation, offset_is_ln_parallel, nothing_changed_it,
        nan_to_the_end, broke_at_once, weights_stand_still,
        updates_round_away,
    )
}  # fmt: skip
