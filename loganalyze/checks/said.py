"""Checks on what the program, the launcher, the scheduler, the kernel and the network said.

A line that is not there rules something out only where this log would have held it: kernel lines,
counters and the like come from other files, so their absence answers nothing.
"""

from __future__ import annotations

import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    event_evidence,
    missing,
    result,
    rows_of,
    seen,
    yes_or_no,
)
from loganalyze.model import CheckResult

#: What of these few lines is shown.
_SHOWN = 3
#: Kinds of events whose words are searched: failures, not the words of a configuration.
_TOLD = ("exception", "killed", "signal", "hang", "comm_error", "warning", "exit", "note")

#: Which other logs are among the inputs, told by an event that stands in nothing else.
_SHOWS = {
    "kernel_log": (pl.col("kind") == "xid")
    | pl.col("detail").str.contains('"(gpu_lost|pcie_aer|oom_killer|hung_task|machine_check)"'),
    "scheduler_log": pl.col("detail").str.contains('"(slurm|lsf|k8s)_'),
}


def said(
    check: str,
    *signatures: str,
    kinds: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
    other_log: str = "",
) -> Check:
    """A check that a failure text (by signature, event kind or words) was logged.

    other_log: where such lines usually are; without a hit the check is then not checkable.
    """
    pattern = "(?i)" + "|".join(words)

    def run(context: CheckContext) -> CheckResult:
        frame = context.known_events()
        named = pl.col("signature").is_in(signatures) | pl.col("kind").is_in(kinds)
        found = frame.filter(named.fill_null(value=False))
        if words and not len(found):
            told = frame.filter(pl.col("kind").is_in(_TOLD))  # few; overflows may be many
            text = pl.concat_str("text", "detail", separator=" ", ignore_nulls=True)
            found = told.filter(text.str.contains(pattern))
        if len(found):
            lines = [event_evidence("log_line", row) for row in rows_of(found, _SHOWN)]
            return result(check, "supported", *lines)
        return _absent(context, check, other_log)

    run.__doc__ = f"The log holds one of: {', '.join((*signatures, *kinds, *words))}."
    return run


def _absent(context: CheckContext, check: str, other_log: str) -> CheckResult:
    """Ruled out where this log would have held the line; else what would have."""
    if not other_log and not any(source.parser == "text" for source in context.run.sources):
        return missing(check, "console_output")
    held = _SHOWS.get(other_log)
    if other_log and (held is None or not len(context.run.events.filter(held))):
        return missing(check, other_log)
    return yes_or_no(check, False)


def near(check: str, *kinds: str, margin: int, other_log: str = "") -> Check:
    """A check that an event of these kinds was logged within so many steps of the incident."""

    def run(context: CheckContext) -> CheckResult:
        found = context.events(*kinds, margin=margin)
        if len(found):
            lines = [event_evidence("log_line", row) for row in rows_of(found, _SHOWN)]
            return result(check, "supported", *lines)
        return _absent(context, check, other_log)

    run.__doc__ = f"An event of {', '.join(kinds)} stands within {margin} steps."
    return run


def beside(check: str, *kinds: str, notes: bool = True) -> Check:
    """A check that the run has a finding of these kinds in the same incident.

    notes: whether a mere note counts as well.
    """

    def run(context: CheckContext) -> CheckResult:
        found = [f for f in context.of_kind(*kinds) if notes or f.severity != "info"]
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


_KERNEL, _COUNTERS, _SCHEDULER = "kernel_log", "network_counters", "scheduler_log"

_HARDWARE: dict[str, Check] = {
    "hardware_said": said("hardware_said", kinds=("xid", "hardware_error"), other_log=_KERNEL),
    "hardware_near": near(
        "hardware_near", "xid", "hardware_error", "rerun_mismatch", margin=50, other_log=_KERNEL
    ),
    "memory_fault_said": said(
        "memory_fault_said", "xid_48", "xid_63", "xid_64", "xid_92", "xid_94", "xid_95", "xid_140",
        "cuda_ecc_uncorrectable", "row_remap_failed", "row_remap_pending", other_log=_KERNEL,
    ),
    "bus_fault_said": said(
        "bus_fault_said", "xid_79", "xid_38", "gpu_lost", "pcie_aer", other_log=_KERNEL
    ),
    "gpu_dead_said": said(
        "gpu_dead_said", "xid_119", "xid_120", "xid_62", "xid_61", "xid_8", "cuda_unknown",
        "cuda_no_device", other_log=_KERNEL,
    ),
    "link_fault_said": said(
        "link_fault_said", "xid_74", "xid_149", "cuda_nvlink_uncorrectable", "sxid",
        "fabric_manager", "nccl_ib_async", other_log=_COUNTERS,
    ),
    "app_fault_said": said(
        "app_fault_said", "xid_13", "xid_31", "xid_43", "cuda_illegal_access",
        "cuda_launch_failure", "cuda_misaligned",
    ),
    "throttle_said": said(
        "throttle_said", "thermal_slowdown", "power_brake", "sw_power_cap", other_log=_KERNEL
    ),
    "sdc_said": said(
        "sdc_said", "rerun_transient", "rerun_persistent", "weight_hash_mismatch",
        kinds=("rerun_mismatch",),
    ),
    "hash_mismatch_said": said(
        "hash_mismatch_said", "weight_hash_mismatch", other_log="parameter_hashes"
    ),
}  # fmt: skip

_COMMUNICATION: dict[str, Check] = {
    "comm_said": said("comm_said", kinds=("comm_timeout", "comm_error")),
    "completion_error_said": said(
        "completion_error_said", "nccl_ib_completion", "nccl_remote_error", "nccl_socket"
    ),
    "socket_fallback_said": said(
        "socket_fallback_said", "nccl_socket_fallback", "nccl_p2p_disabled",
        other_log="transport_lines",
    ),
    "network_set_up_said": said(
        "network_set_up_said", "nccl_no_interface", "nccl_invalid_usage", "nccl_version_mismatch",
        "store_unreachable", "rendezvous",
    ),
    "collective_mismatch_said": said(
        "collective_mismatch_said", "collective_mismatch", "ddp_unused_parameters"
    ),
    "port_said": said("port_said", "address_in_use"),
}  # fmt: skip

_MEMORY: dict[str, Check] = {
    "oom_said": said("oom_said", kinds=("oom",)),
    "host_oom_said": said("host_oom_said", kinds=("host_oom",), other_log=_KERNEL),
    "shm_said": said(
        "shm_said", "shm_insufficient", "bus_error", words=("signal: Bus error", "SIGBUS")
    ),
    "allocator_flush": said("allocator_flush", "ds_cache_flush"),
}

_ENDS: dict[str, Check] = {
    "killed_said": said("killed_said", kinds=("killed", "signal")),
    "sigkill_said": said("sigkill_said", words=("SIGKILL", "signal 9", "exitcode *: -9", "137")),
    "time_limit_said": said("time_limit_said", kinds=("time_limit",), other_log=_SCHEDULER),
    "preempt_said": said(
        "preempt_said", "slurm_preempt", "slurm_cancelled", "slurm_requeue", "keyboard_interrupt",
        "main_sigterm", words=("KeyboardInterrupt", "SIGINT", r"^interrupted\b"),
        other_log="scheduler_history",
    ),
    "node_fail_said": said(
        "node_fail_said", "slurm_node_fail", "k8s_evicted", "ssh_exit", other_log=_SCHEDULER
    ),
    "exception_said": said("exception_said", kinds=("exception",)),
    "code_said": said(
        "code_said",
        words=("TypeError", "AttributeError", "NameError", "KeyError", "ValueError",
               "NotImplementedError", "SyntaxError", "AssertionError", "UnboundLocalError"),
    ),
    "shape_said": said("shape_said", words=("size mismatch", "shapes? ", "must match the size")),
    "import_said": said(
        "import_said", "cuda_driver_mismatch", "cuda_no_kernel_image", "compiler_failed",
        words=("ModuleNotFound", "ImportError", "undefined symbol", "GLIBC"),
    ),
    "native_said": said("native_said", "segfault", "fatal_python", "cpp_terminate"),
    "argument_said": said("argument_said", words=("unrecognized arguments", "SystemExit: 2")),
}  # fmt: skip

_STORAGE: dict[str, Check] = {
    "disk_full_said": said("disk_full_said", kinds=("disk_full",)),
    "storage_said": said(
        "storage_said", "stale_nfs", "io_error", "readonly_fs", "object_store",
        "nfs_not_responding", "hung_task",
    ),
    "broken_file_said": said(
        "broken_file_said", "ckpt_archive_broken", "ckpt_truncated", "ckpt_safetensors"
    ),
    "layout_said": said(
        "layout_said", "ckpt_size_mismatch", "ckpt_missing_keys", "ds_tag_inconsistent"
    ),
    "resume_setting_said": said(
        "resume_setting_said", "megatron_schedule_mismatch", "arguments_differ"
    ),
    "resume_gap_said": said("resume_gap_said", "resume_incomplete", "megatron_resume"),
    "nothing_loaded_said": said("nothing_loaded_said", "ds_no_latest", kinds=("start_fresh",)),
    "save_failed_said": said(
        "save_failed_said", "ds_save_failed", "megatron_async_backlog", "ds_16bit_not_saved",
        kinds=("checkpoint_failed",),
    ),
    "save_began": said("save_began", kinds=("checkpoint_save_begin",)),
    "file_said": said("file_said", "index_missing", words=("FileNotFound", "Errno 2")),
    "record_broken_said": said(
        "record_broken_said", "record_broken", words=("UnicodeDecodeError", "JSONDecodeError")
    ),
}  # fmt: skip

_TRAINING: dict[str, Check] = {
    "loader_said": said(
        "loader_said", "dataloader_killed", "dataloader_timeout", "pin_thread_exit"
    ),
    "data_ended": said("data_ended", kinds=("data_exhausted",)),
    "index_said": said(
        "index_said", "cuda_device_assert", "index_assert", words=("IndexError", "index out of")
    ),
    "labels_said": said("labels_said", "labels_masked", "template_missing"),
    "no_gradient_said": said("no_gradient_said", "no_gradient", "no_gradient_inputs"),
    "new_weights_said": said("new_weights_said", "weights_new", "ckpt_missing_keys"),
    "too_long_said": said("too_long_said", "seq_too_long"),
    "recompile_said": said("recompile_said", "recompile_limit"),
    "negative_kl_said": said("negative_kl_said", "rl_negative_kl"),
    "logger_said": said("logger_said", "wandb_trouble"),
    "step_back_said": said("step_back_said", "wandb_step_back"),
    "fp8_amax_said": said("fp8_amax_said", "fp8_amax"),
    "min_scale_said": said("min_scale_said", "ds_min_scale", "neox_overflows"),
    "overflow_said": said("overflow_said", kinds=("overflow",)),
    "bucket_nan_said": said("bucket_nan_said", "grad_nan_bucket", "rank_overflow_tensor"),
}

_BESIDE: dict[str, Check] = {
    "nan_beside": beside("nan_beside", "loss_nonfinite", "grad_nonfinite"),
    "loss_rose_beside": beside("loss_rose_beside", "loss_spike", "loss_divergence"),
    "skipped_beside": beside("skipped_beside", "skipped_steps", "loss_scale_collapse"),
    "grad_oscillates_beside": beside("grad_oscillates_beside", "grad_oscillation"),
    "val_rises_beside": beside("val_rises_beside", "val_loss_rising"),
    "gpu_hot": beside("gpu_hot", "gpu_overheat", "gpu_throttle"),
    "rank_is_slow": beside("rank_is_slow", "straggler_rank"),
    "memory_leaked": beside("memory_leaked", "memory_leak"),
    "host_memory_leaked": beside("host_memory_leaked", "host_memory_leak", notes=False),
    "audit_beside": beside("audit_beside", "config_audit"),
    "experts_beside": beside("experts_beside", "expert_imbalance", notes=False),
    "length_beside": beside("length_beside", "length_explosion"),
}

#: Answered by a replay or by a trial, never by a log.
_TRIALS: dict[str, Check] = {
    "replay_repeats": needs("replay_repeats", "replay"),
    "replay_without_batch": needs("replay_without_batch", "replay", "sample_ids"),
    "sample_outlier": needs("sample_outlier", "sample_ids", "sample_losses"),
    "repeated_text": needs("repeated_text", "sample_ids"),
    "layer_outlier": needs("layer_outlier", "layer_norms"),
    "embedding_leads": needs("embedding_leads", "layer_norms"),
    "dead_group": needs("dead_group", "layer_norms"),
    "activation_near_limit": needs("activation_near_limit", "activation_maxima"),
    "logits_grow": needs("logits_grow", "output_logit_norm"),
    "params_differ": needs("params_differ", "parameter_hashes"),
    "data_mix_changed": needs("data_mix_changed", "data_source_log"),
    "padding_only": needs("padding_only", "valid_tokens"),
    "targets_counted": needs("targets_counted", "target_tokens"),
    "shifted_twice": needs("shifted_twice", "decoded_sample"),
    "other_attention_cures": needs("other_attention_cures", "attention_backend_test"),
    "eager_equals": needs("eager_equals", "eager_run"),
    "bf16_is_calm": needs("bf16_is_calm", "bf16_run"),
    "lower_rate_calms": needs("lower_rate_calms", "lower_rate_run"),
    "state_norms_differ": needs("state_norms_differ", "moment_norms"),
    "tokenizer_changed": needs("tokenizer_changed", "tokenizer_hash"),
    "versions_changed": needs("versions_changed", "version_dump"),
    "random_tokens_loss": needs("random_tokens_loss", "loss_on_random_tokens"),
    "seed_differs": needs("seed_differs", "second_run"),
    "master_weights": needs("master_weights", "parameter_dtypes"),
    "network_counters": needs("network_counters", "network_counters"),
    "storage_speed": needs("storage_speed", "storage_throughput"),
    "worker_memory": needs("worker_memory", "worker_rss"),
    "stack_traces": needs("stack_traces", "stack_traces"),
    "last_line_per_rank": needs("last_line_per_rank", "rank_logs"),
    "generations_read": needs("generations_read", "sample_generations"),
    "overfit_one_batch": needs("overfit_one_batch", "overfit_test"),
    "profile_trace": needs("profile_trace", "profiler_trace"),
    "parameter_count": needs("parameter_count", "parameter_count"),
    "val_by_set": needs("val_by_set", "val_loss_per_set"),
    "gc_pauses": needs("gc_pauses", "gc_timing"),
    "node_swap": needs("node_swap", "per_rank_compute"),
    "run_without_logger": needs("run_without_logger", "logger_timing"),
}

SAID: dict[str, Check] = {
    **_HARDWARE, **_COMMUNICATION, **_MEMORY, **_ENDS, **_STORAGE, **_TRAINING, **_BESIDE,
    **_TRIALS,
}  # fmt: skip
