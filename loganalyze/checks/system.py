"""Checks on speed, memory, hardware and what the launcher, the network and the disk said."""

from __future__ import annotations

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    at_step,
    detail,
    event_evidence,
    missing,
    number,
    result,
    seen,
    truth,
    yes_or_no,
)
from loganalyze.model import CheckResult


def happened(check: str, *kinds: str, margin: int | None = None) -> Check:
    """A check that an event of these kinds was logged (near the incident, with a margin)."""

    def run(context: CheckContext) -> CheckResult:
        found = context.events(*kinds, margin=margin)
        if not len(found):
            return yes_or_no(check, False)
        lines = [event_evidence("log_line", row) for row in found.head(3).iter_rows(named=True)]
        return result(check, "supported", *lines)

    run.__doc__ = f"An event of {', '.join(kinds)} was logged."
    return run


def signature(check: str, *words: str) -> Check:
    """A check that an event's text or signature holds one of these words."""

    def run(context: CheckContext) -> CheckResult:
        pattern = "(?i)" + "|".join(words)
        text = pl.concat_str(["text", "detail"], separator=" ", ignore_nulls=True)
        found = context.run.events.filter(text.str.contains(pattern) & (pl.col("kind") != "config"))
        if not len(found):
            return yes_or_no(check, False)
        row = found.row(0, named=True)
        return result(check, "supported", event_evidence("log_line", row))

    run.__doc__ = f"A line of the log says one of: {', '.join(words)}."
    return run


def beside(check: str, *kinds: str) -> Check:
    """A check that the run has a finding of these kinds in the same incident."""

    def run(context: CheckContext) -> CheckResult:
        found = context.of_kind(*kinds)
        if not found:
            return yes_or_no(check, False)
        first = found[0]
        return yes_or_no(check, True, seen("finding_beside", first.id, step=first.step_first))

    run.__doc__ = f"The incident holds a finding of {', '.join(kinds)}."
    return run


def needs(check: str, *names: str) -> Check:
    """A check that no log can answer: it names what would."""

    def run(context: CheckContext) -> CheckResult:
        return missing(check, *names)

    run.__doc__ = f"Needs {', '.join(names)}, which a log does not hold."
    return run


def moved(check: str, metric: str, *, up: bool, ratio: str) -> Check:
    """A check that a metric's median during the incident left the one before by a ratio."""

    def run(context: CheckContext) -> CheckResult:
        before, during = context.before(metric), context.during(metric)
        if not len(before) or not len(during):
            return missing(check, metric)
        now, was = float(np.median(during)), float(np.median(before))
        change = now / was if was else 1.0
        limit = context.value(ratio)
        answer = change >= limit if up else change <= 1 / limit
        wanted = f">= {limit:g}" if up else f"<= {1 / limit:.3g}"
        place = at_step(context, metric, context.first, metric)
        return yes_or_no(check, answer, seen("change_ratio", change, "", wanted), place)

    run.__doc__ = f"{metric} {'rose' if up else 'fell'} at the incident."
    return run


def setting(check: str, *names: str, on: bool = True) -> Check:
    """A check that a setting was printed and is on (or off)."""

    def run(context: CheckContext) -> CheckResult:
        said = truth(context.config(*names))
        if said is None:
            return missing(check, f"setting_{names[0]}")
        return yes_or_no(check, said is on, seen("setting", f"{names[0]} = {said}"))

    run.__doc__ = f"The configuration says {names[0]} is {'on' if on else 'off'}."
    return run


def data_share(context: CheckContext) -> CheckResult:
    """Loading data took more than a tenth of the step."""
    return _share(context, "data_share", "data_time_s")


def comm_share(context: CheckContext) -> CheckResult:
    """Communication took more than the seeds' 20 % of the step."""
    return _share(context, "comm_share", "comm_time_s")


def _share(context: CheckContext, check: str, metric: str) -> CheckResult:
    part, whole = context.during(metric), context.during("step_time_s")
    if not len(part) or not len(whole):
        return missing(check, metric)
    share = float(np.median(part) / max(float(np.median(whole)), 1e-12))
    limit = context.value(check)
    return yes_or_no(check, share > limit, seen("share_of_step", share, "", f"> {limit:g}"))


def near_checkpoints(context: CheckContext) -> CheckResult:
    """The slow steps stand right behind checkpoint saves."""
    saves = context.events("checkpoint_save_begin", "checkpoint_save_end")["step"].drop_nulls()
    track = context.track("step_time_s")
    if not len(saves) or track is None or len(track) < 5:
        return missing("near_checkpoints", "checkpoint_lines" if not len(saves) else "step_time_s")
    usual = float(np.median(track.values))
    slow = track.steps[track.values > 1.3 * usual]
    if not len(slow):
        return yes_or_no("near_checkpoints", False)
    places = np.unique(saves.to_numpy())
    near = [bool(((step - places >= 0) & (step - places <= 2 * track.interval)).any())
            for step in slow]  # fmt: skip
    share = float(np.mean(near))
    return yes_or_no("near_checkpoints", share > 0.5, seen("share_near_saves", share, "", "> 0.5"))


def longer_sequences(context: CheckContext) -> CheckResult:
    """The sequences (or tokens of a step) grew with the step time."""
    for metric in ("seq_len", "response_length"):
        before, during = context.before(metric), context.during(metric)
        if len(before) and len(during):
            ratio = float(np.median(during) / max(float(np.median(before)), 1e-12))
            evidence = seen("change_ratio", ratio, "", "> 1.2")
            return yes_or_no("longer_sequences", ratio > 1.2, evidence)
    return missing("longer_sequences", "seq_len")


def memory_was_rising(context: CheckContext) -> CheckResult:
    """Allocated memory grew before the incident."""
    for metric in ("mem_allocated_bytes", "mem_reserved_bytes", "mem_peak_allocated_bytes"):
        values = context.before(metric, 2000)
        if len(values) >= 10:
            quarter = max(len(values) // 4, 2)
            rise = float(np.median(values[-quarter:]) / np.median(values[:quarter]) - 1)
            evidence = seen("memory_rise", rise, "", "> 0.05")
            return yes_or_no("memory_was_rising", rise > 0.05, evidence)
    return missing("memory_was_rising", "mem_allocated_bytes")


def oom_fragmented(context: CheckContext) -> CheckResult:
    """The request would have fitted into memory that was reserved but unallocated."""
    for row in context.events("oom").iter_rows(named=True):
        facts = detail(row)
        wanted, idle = facts.get("requested_bytes"), facts.get("reserved_unallocated_bytes")
        if wanted and idle:
            evidence = seen("idle_reserved", idle, "B", f"< {wanted:.0f} asked for")
            line = event_evidence("log_line", row)
            return yes_or_no("oom_fragmented", idle > wanted, evidence, line)
    return missing("oom_fragmented", "oom_message")


def oom_full(context: CheckContext) -> CheckResult:
    """Allocated tensors alone fill more than nine tenths of the device."""
    for row in context.events("oom").iter_rows(named=True):
        facts = detail(row)
        total, held = facts.get("total_bytes"), facts.get("allocated_bytes")
        if total and held:
            evidence = seen("allocated_share", held / total, "", "> 0.9")
            return yes_or_no("oom_full", held / total > 0.9, evidence)
    return missing("oom_full", "oom_message")


def oom_at_start(context: CheckContext) -> CheckResult:
    """It ran out before or within the first steps."""
    track = context.track("step_time_s") or context.track("loss")
    steps = context.events("oom")["step"].drop_nulls()
    if track is None or not len(track):
        return yes_or_no("oom_at_start", True, seen("steps_before", 0, "step"))
    done = int(steps[0]) - int(track.steps[0]) if len(steps) else 0
    return yes_or_no("oom_at_start", done <= 3, seen("steps_before", done, "step", "<= 3"))


def after_evaluation(context: CheckContext) -> CheckResult:
    """An evaluation was the last thing before it."""
    return _last_event(context, "after_evaluation", "evaluation", "val_loss")


def after_save(context: CheckContext) -> CheckResult:
    """A checkpoint save was the last thing before it."""
    return _last_event(context, "after_save", "checkpoint_save_begin", None)


def _last_event(context: CheckContext, check: str, kind: str, metric: str | None) -> CheckResult:
    step = context.first
    if step is None:
        return missing(check, "step")
    near = 2 * context.run.meta.log_interval
    found = context.events(kind, margin=near)
    track = context.track(metric) if metric else None
    close = track is not None and bool((np.abs(track.steps - step) <= near).any())
    if len(found):
        return yes_or_no(check, True, event_evidence("log_line", found.row(0, named=True)))
    return yes_or_no(check, close)


def tp_crosses_nodes(context: CheckContext) -> CheckResult:
    """The tensor-parallel size is above 8, so it leaves the node."""
    size = number(context.config("tensor_model_parallel_size", "model_parallel_size"))
    if size is None:
        return missing("tp_crosses_nodes", "setting_tensor_parallel")
    return yes_or_no("tp_crosses_nodes", size > 8, seen("tensor_parallel", size, "", "<= 8"))


SYSTEM: dict[str, Check] = {
    "data_share": data_share,
    "comm_share": comm_share,
    "near_checkpoints": near_checkpoints,
    "longer_sequences": longer_sequences,
    "memory_was_rising": memory_was_rising,
    "oom_fragmented": oom_fragmented,
    "oom_full": oom_full,
    "oom_at_start": oom_at_start,
    "after_evaluation": after_evaluation,
    "after_save": after_save,
    "tp_crosses_nodes": tp_crosses_nodes,
    "host_cpu_busy": signature("host_cpu_busy", "dataloader", "worker .*exited", "slow worker"),
    "comm_time_rose": moved("comm_time_rose", "comm_time_s", up=True, ratio="time_rise"),
    "data_time_rose": moved("data_time_rose", "data_time_s", up=True, ratio="time_rise"),
    "clock_fell": moved("clock_fell", "gpu_sm_clock_hz", up=False, ratio="clock_fall"),
    "power_fell": moved("power_fell", "gpu_power_w", up=False, ratio="power_fall"),
    "gpu_hot": beside("gpu_hot", "gpu_overheat", "gpu_throttle"),
    "rank_is_slow": beside("rank_is_slow", "straggler_rank"),
    "memory_leaked": beside("memory_leaked", "memory_leak"),
    "host_memory_leaked": beside("host_memory_leaked", "host_memory_leak"),
    "nan_beside": beside("nan_beside", "loss_nonfinite", "grad_nonfinite"),
    "loss_rose_beside": beside("loss_rose_beside", "loss_spike", "loss_divergence"),
    "hardware_said": happened("hardware_said", "xid", "hardware_error"),
    "hardware_near": happened(
        "hardware_near", "xid", "hardware_error", "rerun_mismatch", margin=50
    ),
    "comm_said": happened("comm_said", "comm_timeout", "comm_error"),
    "oom_said": happened("oom_said", "oom"),
    "host_oom_said": happened("host_oom_said", "host_oom"),
    "exception_said": happened("exception_said", "exception"),
    "killed_said": happened("killed_said", "killed", "signal"),
    "time_limit_said": happened("time_limit_said", "time_limit"),
    "disk_full_said": happened("disk_full_said", "disk_full"),
    "save_began": happened("save_began", "checkpoint_save_begin"),
    "data_ended": happened("data_ended", "data_exhausted"),
    "load_said": happened("load_said", "checkpoint_load"),
    "overflow_said": happened("overflow_said", "overflow"),
    "shape_said": signature("shape_said", "size mismatch", "shape", "must match"),
    "key_said": signature("key_said", "missing key", "unexpected key", "KeyError"),
    "file_said": signature("file_said", "FileNotFound", "No such file"),
    "port_said": signature("port_said", "address already in use", "EADDRINUSE"),
    "import_said": signature("import_said", "ModuleNotFound", "ImportError", "undefined symbol"),
    "index_said": signature("index_said", "device-side assert", "index out of", "IndexError"),
    "labels_said": signature(
        "labels_said", "all labels are -100", "no valid tokens", "response key"
    ),
    "allocator_flush": signature("allocator_flush", "allocator cache flush"),
    "zero2_overlap": setting("zero2_overlap", "overlap_comm", "overlap_grad_reduce"),
    "fp8_on": setting("fp8_on", "fp8", "fp8_format"),
    "moe_on": signature("moe_on", "num_experts", "load_balancing"),
    "async_save_off": setting("async_save_off", "async_save", on=False),
    "packing_off": setting("packing_off", "packing", on=False),
}

NEEDS: dict[str, Check] = {
    "replay_repeats": needs("replay_repeats", "replay"),
    "replay_without_batch": needs("replay_without_batch", "replay", "sample_ids"),
    "sample_outlier": needs("sample_outlier", "sample_ids", "sample_losses"),
    "repeated_text": needs("repeated_text", "sample_ids"),
    "layer_outlier": needs("layer_outlier", "layer_norms"),
    "attention_logits_grow": needs("attention_logits_grow", "max_attention_logit"),
    "logits_grow": needs("logits_grow", "output_logit_norm"),
    "rank_outlier": needs("rank_outlier", "per_rank_loss"),
    "params_differ": needs("params_differ", "parameter_hashes"),
    "data_mix_changed": needs("data_mix_changed", "data_source_log"),
    "padding_only": needs("padding_only", "valid_tokens"),
    "other_attention_cures": needs("other_attention_cures", "attention_backend_test"),
    "optimizer_restored": needs("optimizer_restored", "optimizer_load_line"),
    "versions_changed": needs("versions_changed", "version_dump"),
    "random_tokens_loss": needs("random_tokens_loss", "loss_on_random_tokens"),
    "seed_identical": needs("seed_identical", "second_run"),
    "network_counters": needs("network_counters", "network_counters"),
    "storage_speed": needs("storage_speed", "storage_throughput"),
    "worker_memory": needs("worker_memory", "worker_rss"),
    "stack_traces": needs("stack_traces", "stack_traces"),
    "generations_read": needs("generations_read", "sample_generations"),
    "overfit_one_batch": needs("overfit_one_batch", "overfit_test"),
    "profile_trace": needs("profile_trace", "profiler_trace"),
}
