"""Checks on the loss, the gradient norm, the learning rate and the loss scale."""

from __future__ import annotations

import math

import numpy as np

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_step,
    event_evidence,
    missing,
    number,
    seen,
    truth,
    yes_or_no,
)
from loganalyze.model import CheckResult


def grad_leads(context: CheckContext) -> CheckResult:
    """The gradient norm left its range before the loss did."""
    if context.track("grad_norm") is None:
        return missing("grad_leads", "grad_norm")
    grads = [f.step_first for f in context.of_kind("grad_explosion") if f.step_first is not None]
    losses = [
        f.step_first
        for f in context.of_kind("loss_spike", "loss_divergence", "loss_nonfinite")
        if f.step_first is not None
    ]
    if not grads or not losses:
        return yes_or_no("grad_leads", False, at_step(context, "grad_norm", context.first, "norm"))
    lead = min(losses) - min(grads)
    evidence = at_step(context, "grad_norm", min(grads), "norm")
    return yes_or_no("grad_leads", lead > 0, evidence, seen("lead_steps", lead, "step", "> 0"))


def loss_calm(context: CheckContext) -> CheckResult:
    """The loss did not move while the gradient norm did."""
    before, during = context.before("loss"), context.during("loss")
    if not len(before) or not len(during):
        return missing("loss_calm", "loss")
    rise = float(during.max() - np.median(before))
    spread = 1.4826 * float(np.median(np.abs(before - np.median(before))))
    limit = max(4 * spread, context.value("calm_nats"))
    return yes_or_no("loss_calm", rise < limit, seen("loss_rise", rise, "nat", f"< {limit:.3g}"))


def came_back(context: CheckContext) -> CheckResult:
    """The loss came back to its level by itself."""
    track = context.track("loss")
    before = context.before("loss")
    if track is None or context.last is None or not len(before):
        return missing("came_back", "loss")
    after = track.values[track.steps > context.last]
    after = after[np.isfinite(after)][:100]
    if len(after) < 3:
        return missing("came_back", "later_steps")
    level, back = float(np.median(before)), float(np.median(after[-20:]))
    near = back <= level + max(0.02 * abs(level), context.value("calm_nats"))
    evidence = seen("level_after", back, "nat", f"<= {level:.4g}")
    return yes_or_no("came_back", near, evidence)


def lr_changed(context: CheckContext) -> CheckResult:
    """The learning rate jumped within a few steps before the incident."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 3:
        return missing("lr_changed", "lr")
    near = np.abs(track.steps - context.first) <= 10 * track.interval
    values = track.values[near]
    values = values[values > 0]
    if len(values) < 2:
        return missing("lr_changed", "lr")
    ratio = float((values[1:] / values[:-1]).max())
    limit = context.value("lr_jump")
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no(
        "lr_changed", ratio > limit, evidence, seen("largest_ratio", ratio, "", f"> {limit:g}")
    )


def lr_near_peak(context: CheckContext) -> CheckResult:
    """The learning rate was near its peak (within a tenth), where runs are least stable."""
    track = context.track("lr")
    if track is None or context.first is None:
        return missing("lr_near_peak", "lr")
    before = track.values[track.steps <= context.first]
    if not len(before):
        return missing("lr_near_peak", "lr")
    share = float(before[-1] / max(float(track.values.max()), 1e-300))
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no("lr_near_peak", share > 0.9, evidence)


def in_warmup(context: CheckContext) -> CheckResult:
    """The incident began while the learning rate was still rising, or right behind that."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 3:
        return missing("in_warmup", "lr")
    peak = int(track.steps[int(np.argmax(track.values))])
    limit = int(peak + 2 * (peak - int(track.steps[0])))
    evidence = seen("peak_lr_step", peak, "step", f"begin <= {limit}")
    return yes_or_no("in_warmup", context.first <= limit, evidence)


def recurs(context: CheckContext) -> CheckResult:
    """The same kind of finding stands at other steps of the run as well."""
    own = context.finding
    count = int(own.statistics.get("recurrences") or 0) + len(context.of_kind(own.kind)) - 1
    return yes_or_no("recurs", count >= 2, seen("recurrences", count, "", ">= 2"))


def scale_halves(context: CheckContext) -> CheckResult:
    """The loss scale fell at the incident: float16 overflowed."""
    track = context.track("loss_scale")
    overflows = context.events("overflow", margin=20)
    if len(overflows):
        row = overflows.row(0, named=True)
        return yes_or_no("scale_halves", True, event_evidence("overflow_line", row))
    if track is None or context.first is None:
        return missing("scale_halves", "loss_scale")
    near = np.abs(track.steps - context.first) <= 10 * track.interval
    values = track.values[near]
    fell = bool(len(values) > 1 and (values[1:] <= values[:-1] / 2).any())
    return yes_or_no("scale_halves", fell, at_step(context, "loss_scale", context.first, "scale"))


def is_fp16(context: CheckContext) -> CheckResult:
    """The run computes in float16 (a dynamic loss scale above 1, or the configuration says so)."""
    said = truth(context.config("fp16"))
    scale = context.track("loss_scale")
    if said is None and scale is None:
        return missing("is_fp16", "setting_precision")
    scaled = scale is not None and bool((scale.values > 1).any())
    text = "fp16" if said or scaled else "not fp16"
    return yes_or_no("is_fp16", bool(said) or scaled, seen("precision", text))


def is_bf16(context: CheckContext) -> CheckResult:
    """The run computes in bfloat16: its range is float32's, so overflow is no likely cause."""
    said = truth(context.config("bf16", "use_bf16"))
    if said is None:
        return missing("is_bf16", "setting_precision")
    return yes_or_no("is_bf16", said, seen("precision", "bf16" if said else "not bf16"))


def grows_before(context: CheckContext) -> CheckResult:
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
        if len(values) < 6:
            continue
        known = True
        level, top = float(np.median(values)), float(values[-30:].max())
        wanted = limit if metric == "grad_norm" else 1 + (limit - 1) / 8
        if top > wanted * abs(level):
            evidence = seen("growth_before", top / max(abs(level), 1e-12), "", f"> {wanted:g}")
            return yes_or_no("grows_before", True, evidence)
    return yes_or_no("grows_before", False) if known else missing("grows_before", "loss")


def from_first_step(context: CheckContext) -> CheckResult:
    """It was there from the first logged step on."""
    track = context.track("loss") or context.track("grad_norm")
    if track is None or context.first is None:
        return missing("from_first_step", "loss")
    start = int(track.steps[0])
    answer = context.first <= start + 2 * track.interval
    return yes_or_no("from_first_step", answer, seen("first_step", start, "step"))


def grad_first_nonfinite(context: CheckContext) -> CheckResult:
    """The gradient was not finite at a step whose loss still was."""
    grad, loss = context.track("grad_norm"), context.track("loss")
    if grad is None or loss is None:
        return missing("grad_first_nonfinite", "grad_norm", "loss")
    bad_grad = grad.steps[~np.isfinite(grad.values)]
    bad_loss = loss.steps[~np.isfinite(loss.values)]
    if not len(bad_grad):
        return yes_or_no("grad_first_nonfinite", False)
    first_loss = int(bad_loss[0]) if len(bad_loss) else math.inf
    evidence = at_step(context, "grad_norm", int(bad_grad[0]), "norm")
    return yes_or_no("grad_first_nonfinite", int(bad_grad[0]) < first_loss, evidence)


def after_resume(context: CheckContext) -> CheckResult:
    """It began within the first lines of a resumed segment."""
    segment = next(
        (s for s in context.run.meta.segments if s.index == (context.finding.segment or 0)), None
    )
    if segment is None or context.first is None:
        return missing("after_resume", "segments")
    near = segment.first + 20 * context.run.meta.log_interval
    answer = segment.relation == "resume" and context.first <= near
    return yes_or_no("after_resume", answer, seen("segment_start", segment.first, "step"))


def at_epoch_edge(context: CheckContext) -> CheckResult:
    """It began where an epoch ends (within 2 % of an epoch)."""
    track = context.track("epoch")
    if track is None or context.first is None or float(track.values.max()) < 1:
        return missing("at_epoch_edge", "epoch")
    at = min(int(np.searchsorted(track.steps, context.first)), len(track) - 1)
    epoch = float(track.values[at])
    away = abs(epoch - round(epoch))
    return yes_or_no("at_epoch_edge", away < 0.02 and epoch > 0.5, seen("epoch", epoch))


def loss_above_uniform(context: CheckContext) -> CheckResult:
    """The loss rose above ln(vocabulary) + 1: worse than guessing."""
    size = number(context.config("padded_vocab_size", "vocab_size"))
    during = context.during("loss")
    if size is None or not len(during):
        return missing("loss_above_uniform", "setting_vocab_size")
    limit = math.log(size) + 1
    peak = float(during.max())
    evidence = seen("peak_loss", peak, "nat", f"> {limit:.3g}")
    return yes_or_no("loss_above_uniform", peak > limit, evidence)


def clip_off(context: CheckContext) -> CheckResult:
    """Gradient clipping is off, or the limit lies far above the usual norm."""
    limit = number(context.config("clip_grad", "max_grad_norm", "gradient_clipping"))
    if limit is None:
        return missing("clip_off", "setting_clip")
    usual = context.before("grad_norm")
    far = bool(len(usual)) and limit > 10 * float(np.median(usual))
    return yes_or_no(
        "clip_off", limit <= 0 or far, seen("clip_threshold", limit, "", "> 0, near the norm")
    )


def small_batch(context: CheckContext) -> CheckResult:
    """The batch is small: fewer than the threshold's tokens a step."""
    batch = number(context.config("global_batch_size", "train_batch_size"))
    length = number(context.config("seq_length", "max_seq_length", "seq_len", "cutoff_len"))
    if batch is None or length is None:
        return missing("small_batch", "setting_batch_tokens")
    limit = context.value("small_batch_tokens")
    evidence = seen("batch_tokens", batch * length, "token", f"< {limit:g}")
    return yes_or_no("small_batch", batch * length < limit, evidence)


def no_warmup(context: CheckContext) -> CheckResult:
    """There is no warm-up: the first learning rate is already the peak."""
    track = context.track("lr")
    if track is None or len(track) < 5 or float(track.values.max()) <= 0:
        return missing("no_warmup", "lr")
    share = float(track.values[0] / track.values.max())
    evidence = seen("first_lr_share", share, "", "> 0.9")
    return yes_or_no("no_warmup", share > 0.9 and int(track.steps[0]) <= 20, evidence)


TRAINING: dict[str, Check] = {
    "grad_leads": grad_leads,
    "loss_calm": loss_calm,
    "came_back": came_back,
    "lr_changed": lr_changed,
    "lr_near_peak": lr_near_peak,
    "in_warmup": in_warmup,
    "recurs": recurs,
    "scale_halves": scale_halves,
    "is_fp16": is_fp16,
    "is_bf16": is_bf16,
    "grows_before": grows_before,
    "from_first_step": from_first_step,
    "grad_first_nonfinite": grad_first_nonfinite,
    "after_resume": after_resume,
    "at_epoch_edge": at_epoch_edge,
    "loss_above_uniform": loss_above_uniform,
    "clip_off": clip_off,
    "small_batch": small_batch,
    "no_warmup": no_warmup,
}
