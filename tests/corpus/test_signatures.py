"""The catalogue of failure texts against collected samples, and against the corpus's stderr."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from loganalyze_parsers import DIALECTS, failures, launcher
from loganalyze_parsers.noise import ignore_rule
from loganalyze_parsers.prefixes import clean, peel
from loganalyze_parsers.text_files import parse_text
from paths import CORPUS, SHARED, needs_corpus

from loganalyze.model import Event

pytestmark = [pytest.mark.corpus, needs_corpus]

SAMPLES = SHARED / "knowledge" / "SIGNATURES_SAMPLES.tsv"
#: Texts that are a trainer's own lines (its reader takes them), or that tell of no failure.
LEFT_TO_OTHERS = frozenset({
    "amp_unscale_inf", "ds_legacy_overflow", "ds_overflow",
    "ds_skipped", "ds_trace_cache", "elastic_exit_sig", "elastic_exit_sigterm",
    "elastic_root_cause", "flash_fallback", "grpo_clipped", "grpo_zero_std",
    "hf_continuing", "hf_log_nan", "hf_log_zero_loss", "hf_skip_batches", "lr_scheduler_order",
    "mask_not_set", "meg_ckpt_load", "meg_ckpt_save", "meg_index_build", "meg_line_nan",
    "meg_line_skipped", "meg_no_metadata", "meg_straggler", "meg_unexpected_result",
    "moe_aux_field", "moe_capacity_drop", "pad_eq_eos", "recompiling", "resize_embed",
    "tokenizers_fork", "trainable_params", "use_cache_gc", "verl_clip_len", "verl_nan",
    "version_warn_deepspeed",
})  # fmt: skip


def events_of(path: Path) -> list[Event]:
    """The events that the failure and launcher dialects find in a file."""
    dialects = (failures.DIALECT, launcher.DIALECT)
    batches = parse_text(path, 0, dialects, lambda text: None)
    return [event for batch in batches for event in batch.events]


def test_samples_of_the_catalogue(tmp_path: Path) -> None:
    """Every collected failure line is recognised, apart from those that others read."""
    with SAMPLES.open(encoding="utf-8") as stream:
        samples = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    missed = set()
    for name, *rest in samples:
        file = tmp_path / "one.log"
        file.write_text("\t".join(rest) + "\n", encoding="utf-8")
        if not events_of(file):
            missed.add(name)
    assert missed - LEFT_TO_OTHERS == set()
    assert len(samples) - len(missed) >= 200


@pytest.mark.parametrize(
    ("path", "kind", "at_least"),
    [
        ("deepspeed_hf/fail_elastic_sigkill_colossal3514.log", "killed", 1),
        ("deepspeed_hf/fail_elastic_sigkill_cppo6.log", "killed", 1),
        ("deepspeed_hf/fail_nccl_watchdog_lf6269.log", "comm_timeout", 3),
        ("deepspeed_hf/fail_nccl_watchdog_lf7396.log", "comm_timeout", 2),
        ("deepspeed_hf/fail_nccl_watchdog_ofa271.log", "comm_timeout", 5),
        ("deepspeed_hf/hw_dmesg_fallen_off_bus_noxid.log", "hardware_error", 1),
        ("deepspeed_hf/hw_dmesg_fallen_off_bus_noxid.log", "xid", 1),
        ("deepspeed_hf/buildnano_2n8g_err.txt", "time_limit", 2),
        ("megatron/mcore_oom_stderr.err", "oom", 1),
        ("megatron/mcore_oom_4rank_stderr.err", "oom", 4),
        ("megatron/summit_oom_stderr.e", "oom", 12),
        ("megatron/issue_neox482_50_overflows.log", "overflow", 1),
        ("megatron/summit_fp16_630.o", "killed", 1),
    ],
)
def test_failures_of_the_corpus(path: str, kind: str, at_least: int) -> None:
    """The failure that an expert sees in a file is among its events."""
    file = CORPUS / path
    if not file.exists():
        pytest.skip(f"{path} is not in this part of the corpus")
    assert sum(1 for event in events_of(file) if event.kind == kind) >= at_least


@pytest.mark.parametrize(
    "path",
    [
        "deepspeed_hf/modded_2024-11-14_quantfp4_932b.txt",
        "deepspeed_hf/modded_2024-10-09_soap.txt",
        "deepspeed_hf/dschat_step1_sft_opt1.3b.log",
        "deepspeed_hf/pgolf_naivebaseline.log",
        "megatron/mcore_gdn_172.out",
        "megatron/mcore_1b_spikes_2092.out",
    ],
)
def test_healthy_logs_have_no_failure(path: str) -> None:
    """Logs that embed source code, settings or exit noise give no failure."""
    file = CORPUS / path
    if not file.exists():
        pytest.skip(f"{path} is not in this part of the corpus")
    harmless = {"note", "warning", "exit"}
    found = [event for event in events_of(file) if event.kind not in harmless]
    assert [event.text for event in found] == []


@pytest.mark.parametrize(
    "path",
    [
        "deepspeed_hf/dschat_step1_sft_opt1.3b.log",
        "deepspeed_hf/nanogpt_nadav_1.log",
        "deepspeed_hf/llamafactory_stdout_20240414.log",
        "megatron/bs_meg_n16.out",
        "megatron/mds_4runs_concat.log",
        "megatron/summit_fp16_630.o",
    ],
)
def test_noise_rules_swallow_no_loss(path: str) -> None:
    """No rule would ignore a line that a reader takes a loss from; few lines stay unknown."""
    file = CORPUS / path
    if not file.exists():
        pytest.skip(f"{path} is not in this part of the corpus")
    data = file.read_bytes()
    lines = unknown = 0
    for batch in parse_text(file, 0, DIALECTS, ignore_rule):
        lines, unknown = lines + batch.account.lines, unknown + batch.account.unknown
        if batch.readings is None or "loss" not in batch.readings.columns:
            continue
        kept = batch.readings.filter(batch.readings["loss"].is_not_null())
        for offset, length in kept.select("offset", "length").iter_rows():
            text = data[offset : offset + length].decode("utf-8", "replace")
            assert ignore_rule(peel(clean(text)).text) is None, text
    assert unknown < 0.05 * lines
