"""Checks on the learning rate's schedule and on the printed configuration."""

from __future__ import annotations

import math

import numpy as np

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_point,
    at_step,
    median,
    missing,
    number,
    seen,
    truth,
    yes_or_no,
)
from loganalyze.model import CheckResult

_STEPS = ("train_iters", "max_steps", "total_steps", "num_train_steps", "max_iters")
_LENGTH = ("seq_length", "max_seq_length", "seq_len", "cutoff_len", "block_size", "max_seq_len")
_TENSOR = ("tensor_model_parallel_size", "model_parallel_size", "tensor_parallel_size", "tp_size")
_PIPELINE = ("pipeline_model_parallel_size", "pipe_parallel_size", "pipeline_parallel_size")


def lr_changed(context: CheckContext) -> CheckResult:
    """The learning rate jumped up within a few lines before the incident."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 3:
        return missing("lr_changed", "lr")
    until = int(np.searchsorted(track.steps, context.first, side="right"))
    values = track.values[max(0, until - 11) : until]
    values = values[values > 0]
    if len(values) < 2:
        return missing("lr_changed", "lr")
    ratio = float((values[1:] / values[:-1]).max())
    limit = context.value("lr_jump")
    start = int(track.steps[max(0, until - 11)]) <= 11 * track.interval  # warm-up doubles early
    evidence = at_step(context, "lr", context.first, "learning_rate")
    jumped = ratio > limit and not start
    return yes_or_no(
        "lr_changed", jumped, evidence, seen("largest_ratio", ratio, "", f"> {limit:g}")
    )


def lr_near_peak(context: CheckContext) -> CheckResult:
    """The learning rate was near its peak (within a tenth), where runs are least stable."""
    track = context.track("lr")
    if track is None or context.first is None or not _shaped(track.values):
        return missing("lr_near_peak", "lr")
    before = track.values[track.steps <= context.first]
    if not len(before):
        return missing("lr_near_peak", "lr")
    share = float(before[-1] / max(float(np.nanmax(track.values)), 1e-300))
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no("lr_near_peak", share > 0.9, evidence)


def _shaped(values: np.ndarray) -> bool:
    """Whether the rate moves at all; a short excerpt's constant says nothing of a schedule."""
    finite = values[np.isfinite(values)]
    return len(finite) > 20 and float(finite.max()) > 1.05 * float(finite.min())


def near_warmup_end(context: CheckContext) -> CheckResult:
    """It began between a third and three times the length of the warm-up."""
    track = context.track("lr")
    if track is None or context.first is None or len(track) < 10:
        return missing("near_warmup_end", "lr")
    peak = int(track.steps[int(np.nanargmax(track.values))])
    length = peak - int(track.steps[0])
    rising = float(track.values[0]) < 0.7 * float(np.nanmax(track.values))
    if int(track.steps[0]) > 10 * track.interval or not rising:
        return missing("near_warmup_end", "earlier_steps" if rising else "lr")
    away = context.first - int(track.steps[0])
    evidence = seen("peak_lr_step", peak, "step", f"{length // 3} to {3 * length}")
    return yes_or_no("near_warmup_end", length / 3 <= away <= 3 * length, evidence)


def no_warmup(context: CheckContext) -> CheckResult:
    """There is no warm-up: the first learning rate is already the peak."""
    track = context.track("lr")
    if track is None or len(track) < 5 or not float(np.nanmax(track.values)) > 0:
        return missing("no_warmup", "lr")
    if int(track.steps[0]) > 10 * track.interval:
        return missing("no_warmup", "earlier_steps")
    share = float(track.values[0] / np.nanmax(track.values))
    evidence = seen("first_lr_share", share, "", "> 0.9")
    return yes_or_no("no_warmup", share > 0.9 and int(track.steps[0]) <= 20, evidence)


def lr_tiny(context: CheckContext) -> CheckResult:
    """The learning rate is below 1 % of its peak, or zero."""
    track, during = context.track("lr"), context.during("lr")
    if track is None or not len(during):
        return missing("lr_tiny", "lr")
    top = float(np.nanmax(track.values))
    share = median(during) / top if top > 0 else 0.0
    evidence = at_step(context, "lr", context.first, "learning_rate")
    return yes_or_no("lr_tiny", share < 0.01, evidence, seen("share_of_peak", share, "", "< 0.01"))


def lr_low_for_task(context: CheckContext) -> CheckResult:
    """The peak rate is far below what such a training uses (seed B: 1e-5 to 1e-4)."""
    values = context.all_of("lr")
    if not len(values) or context.thresholds.profile == "rl":
        return missing("lr_low_for_task", "lr")
    top = float(values.max())
    limit = context.value("low_rate")
    limit = limit / 10 if context.thresholds.profile == "sft" else limit
    return yes_or_no("lr_low_for_task", top < limit, seen("peak_rate", top, "", f">= {limit:g}"))


def lr_decayed(context: CheckContext) -> CheckResult:
    """The learning rate had come down below half of its peak."""
    track, during = context.track("lr"), context.during("lr")
    if track is None or not len(during):
        return missing("lr_decayed", "lr")
    top = float(np.nanmax(track.values))
    share = median(during) / top if top > 0 else 0.0
    return yes_or_no("lr_decayed", share < 0.5, seen("share_of_peak", share, "", "< 0.5"))


def lr_ends_early(context: CheckContext) -> CheckResult:
    """The schedule reached its lowest rate before half of the planned steps."""
    track = context.track("lr")
    if track is None or len(track) < 20:
        return missing("lr_ends_early", "lr")
    # Whatever was planned, the run went on at least to its last line.
    total = max(number(context.config(*_STEPS)) or 0.0, float(track.steps[-1]))
    values = track.values
    peak, low = int(np.nanargmax(values)), float(np.nanmin(values[int(np.nanargmax(values)) :]))
    at_floor = np.flatnonzero(values[peak:] <= max(1.02 * low, 1e-12))
    fell = low < 0.3 * float(np.nanmax(values))
    end = int(track.steps[peak + int(at_floor[0])]) if len(at_floor) else int(track.steps[-1])
    rest = len(values) - peak - int(at_floor[0]) if len(at_floor) else 0
    early = fell and end < 0.55 * total and rest >= 5
    return yes_or_no("lr_ends_early", early, seen("lr_floor_step", end, "step", f">= {total:g}"))


def late_in_run(context: CheckContext) -> CheckResult:
    """It lies in the last fifth of the planned steps."""
    total = number(context.config(*_STEPS))
    if total is None or context.first is None or total <= 0:
        return missing("late_in_run", "setting_total_steps")
    share = context.first / total
    return yes_or_no("late_in_run", share > 0.8, seen("share_of_plan", share, "", "> 0.8"))


def small_batch(context: CheckContext) -> CheckResult:
    """The batch is small: fewer tokens a step than the threshold."""
    batch = number(context.config("global_batch_size", "train_batch_size", "total_batch_size"))
    if batch is None:
        seen_sizes = context.all_of("global_batch_size")
        batch = median(seen_sizes) if len(seen_sizes) else None
    length = number(context.config(*_LENGTH))
    if batch is None or length is None:
        return missing("small_batch", "setting_batch_tokens")
    limit = context.value("small_batch_tokens")
    evidence = seen("batch_tokens", batch * length, "token", f"< {limit:g}")
    return yes_or_no("small_batch", batch * length < limit, evidence)


def init_wide(context: CheckContext) -> CheckResult:
    """The initialisation's deviation is above 1.5 times sqrt(2 / (5 · hidden))."""
    std = number(context.config("init_method_std", "initializer_range"))
    hidden = number(context.config("hidden_size", "d_model", "n_embd"))
    if std is None or hidden is None or hidden <= 0:
        return missing("init_wide", "setting_init_std")
    limit = 1.5 * math.sqrt(2 / (5 * hidden))
    return yes_or_no("init_wide", std > limit, seen("init_std", std, "", f"<= {limit:.3g}"))


def tensor_over_node(context: CheckContext) -> CheckResult:
    """The tensor-parallel size is above 8, so it leaves the node."""
    size = number(context.config(*_TENSOR))
    if size is None:
        return missing("tensor_over_node", "setting_tensor_parallel")
    return yes_or_no("tensor_over_node", size > 8, seen("tensor_parallel", size, "", "<= 8"))


def tensor_parallel_on(context: CheckContext) -> CheckResult:
    """Tensor parallelism is on."""
    size = number(context.config(*_TENSOR))
    if size is None:
        return missing("tensor_parallel_on", "setting_tensor_parallel")
    return yes_or_no("tensor_parallel_on", size > 1, seen("tensor_parallel", size, "", "> 1"))


def pipeline_bubble(context: CheckContext) -> CheckResult:
    """The pipeline idles for more than 15 % of the step: (p - 1) / (m + p - 1), m micro-batches."""
    depth = number(context.config(*_PIPELINE))
    micro = number(context.config("micro_batch_size"))
    batch = number(context.config("global_batch_size"))
    data = number(context.config("data_parallel_size"))
    if depth is None or not micro or not batch or not data:
        return missing("pipeline_bubble", "setting_pipeline")
    count = batch / (micro * data)
    share = (depth - 1) / (count + depth - 1)
    return yes_or_no("pipeline_bubble", share > 0.15, seen("bubble_share", share, "", "<= 0.15"))


def accumulates(context: CheckContext) -> CheckResult:
    """Gradients are accumulated over several micro-batches."""
    count = number(context.config("gradient_accumulation_steps", "grad_accum"))
    if count is None:
        return missing("accumulates", "setting_accumulation")
    return yes_or_no("accumulates", count > 1, seen("accumulation_steps", count, "", "> 1"))


def moe_on(context: CheckContext) -> CheckResult:
    """The model has experts."""
    count = number(context.config("num_experts", "num_local_experts", "moe_num_experts"))
    columns = context.run.readings.columns
    if count is None and any("load_balancing" in name or "moe" in name for name in columns):
        return yes_or_no("moe_on", True, seen("setting", "load balancing loss"))
    if count is None:
        return missing("moe_on", "setting_experts")
    return yes_or_no("moe_on", count > 1, seen("experts", count, "", "> 1"))


def setting(check: str, *names: str, on: bool = True) -> Check:
    """A check that a setting was printed and is on (or off)."""

    def run(context: CheckContext) -> CheckResult:
        text = context.config(*names)
        if text is None:
            return missing(check, f"setting_{names[0]}")
        off = text.strip().lower() in ("", "none", "false", "0", "no", "off")
        answer = (truth(text) or not off) is on
        return yes_or_no(check, answer, seen("setting", f"{names[0]} = {text[:40]}"))

    run.__doc__ = f"The configuration says {names[0]} is {'on' if on else 'off'}."
    return run


def rate_in_log(context: CheckContext) -> CheckResult:
    """The schedule's own finding says how it is odd."""
    shape = context.finding.statistics.get("shape")
    if shape is None:
        return missing("rate_in_log", "lr")
    track = context.track("lr")
    place = [] if track is None else [at_point(context, track, 0, "learning_rate")]
    return yes_or_no("rate_in_log", shape == "zero", seen("schedule_shape", str(shape)), *place)


def rate_is_wild(context: CheckContext) -> CheckResult:
    """The finding is about a learning rate far above what any such training uses."""
    told = context.finding.statistics
    own = [f for f in context.of_kind("config_audit") if "lr_" in str(f.statistics.get("rule"))]
    high = told.get("side") == "above" and bool(own) and told.get("rule") != "peak_share"
    value = told.get("value")
    shown = seen("peak_rate", value if isinstance(value, int | float) else None)
    return yes_or_no("rate_is_wild", high, shown)


def start_is_wide(context: CheckContext) -> CheckResult:
    """The finding is about a start that is too wide: the first loss, or the deviation set."""
    rule = str(context.finding.statistics.get("rule"))
    track = context.track("loss")
    place = [at_point(context, track, 0, "first_loss")] if track is not None and len(track) else []
    return yes_or_no("start_is_wide", rule in ("first_loss_nat", "init_ratio"), *place)


SETTINGS: dict[str, Check] = {
    **{
        check.__name__: check
        for check in (
            lr_changed, lr_near_peak, near_warmup_end, no_warmup, lr_low_for_task, lr_tiny,
            lr_decayed,
            lr_ends_early, late_in_run, small_batch, init_wide, tensor_over_node,
            tensor_parallel_on, pipeline_bubble, accumulates, moe_on, rate_in_log, rate_is_wild,
            start_is_wide,
        )
    },
    "overlap_on": setting("overlap_on", "overlap_comm", "overlap_grad_reduce"),
    "fp8_on": setting("fp8_on", "fp8", "fp8_format", "fp8_recipe"),
    "compile_on": setting("compile_on", "torch_compile", "compile", "use_torch_compile"),
    "fused_loss_on": setting("fused_loss_on", "use_liger_kernel", "cross_entropy_loss_fusion"),
    "async_save_off": setting("async_save_off", "async_save", on=False),
    "packing_off": setting("packing_off", "packing", on=False),
    "offload_on": setting("offload_on", "optimizer_cpu_offload", "cpu_offload"),
}  # fmt: skip
