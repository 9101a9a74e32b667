"""The configuration audit against settings of several trainers."""

from __future__ import annotations

import pytest
from synth_system import context, event, make_run

from loganalyze.detectors.audit import CONFIG_AUDIT, detect_settings
from loganalyze.detectors.audit_settings import (
    batch_tokens,
    is_lora,
    precision,
    settings,
    warmup_share,
)

_HEALTHY = {
    "lr": "3.0e-4", "weight_decay": "0.1", "clip_grad": "1.0", "global_batch_size": "1024",
    "seq_length": "4096", "train_iters": "100000", "lr_warmup_iters": "2000", "hidden_size": "4096",
    "tensor_model_parallel_size": "4", "bf16": "True", "fp16": "False", "optimizer": "adam",
    "init_method_std": "0.008",
}  # fmt: skip


def _audit(profile: str = "pretrain", **changes: str) -> dict[str, tuple[str, str]]:
    config = event("config", -1, **{**_HEALTHY, **changes})
    found = detect_settings(context(make_run({"loss": [1.0]}, events=[config]), profile))
    return {str(f.statistics["setting"]): (str(f.statistics["side"]), f.severity) for f in found}


def test_a_usual_configuration_is_silent() -> None:
    """Nothing to remark on a published recipe."""
    assert _audit() == {}


@pytest.mark.parametrize(
    ("setting", "value", "side", "severity"),
    [
        ("lr", "1e-3", "above", "info"),
        ("lr", "5e-3", "above", "warning"),
        ("lr", "1e-6", "below", "info"),
        ("weight_decay", "0.5", "above", "info"),
        ("clip_grad", "0.0", "below", "info"),
        ("clip_grad", "10", "above", "info"),
        ("tensor_model_parallel_size", "16", "above", "info"),
        ("lr_warmup_iters", "0", "below", "info"),
        ("lr_warmup_iters", "30000", "above", "info"),
        ("init_method_std", "0.02", "above", "info"),
    ],
)
def test_a_setting_outside_of_its_range(setting: str, value: str, side: str, severity: str) -> None:
    """Each is one remark, named as the trainer names it."""
    assert _audit(**{setting: value}) == {setting: (side, severity)}


def test_a_narrow_model_may_take_a_high_rate() -> None:
    """Small models take several times the learning rate: never a warning."""
    found = _audit(hidden_size="512", lr="5e-3", init_method_std="0.02")
    assert found["lr"] == ("above", "info")


def test_fp16_is_remarked() -> None:
    """bf16 is the recommended precision."""
    assert _audit(bf16="False", fp16="True") == {"precision": ("below", "info")}


def test_tasks_have_their_own_rates() -> None:
    """2e-5 is high for RL, usual for fine-tuning; adapters take 2e-4."""
    assert "lr" in _audit("rl", lr="2e-5")
    assert "lr" not in _audit("sft", lr="2e-5")
    assert "lr" in _audit("sft", lr="2e-4")
    assert "lr" not in _audit("sft", lr="2e-4", lora_rank="8")


def test_names_of_other_trainers() -> None:
    """Hugging Face, DeepSpeed's nested dictionaries and W&B's dotted names are understood."""
    assert settings({"learning_rate": "1e-4", "max_grad_norm": "1.0"}) == {"lr": 1e-4, "clip": 1.0}
    assert settings({"optimizer_params": "{'lr': 0.001, 'weight_decay': 0.05}"}) == {
        "lr": 0.001,
        "weight_decay": 0.05,
    }
    assert settings({"model.hidden_size": "1024"}) == {"hidden": 1024.0}
    assert precision({"fp16_enabled": "True", "bfloat16_enabled": "False"}) == "fp16"
    assert precision({"bf16": "False", "fp16": "False"}) == "fp32"
    assert precision({"fp16": "False"}) == ""
    assert is_lora({"lora_rank": "8"})
    assert not is_lora({"lora_rank": "0"})


def test_batch_and_warmup_are_computed_from_what_is_told() -> None:
    """Tokens of a batch, and warm-up as a share, over the ways of telling them."""
    assert batch_tokens({"seq": 2048, "batch": 512}) == 2**20
    told = {"seq": 1024.0, "micro_batch": 4.0, "accumulation": 8.0, "world": 16.0}
    assert batch_tokens(told) == 1024 * 512
    assert batch_tokens({"seq": 2048}) is None
    assert warmup_share({"warmup_steps": 100, "steps": 1000}) == 0.1
    assert warmup_share({"warmup_samples": 100, "samples": 1000}) == 0.1
    assert warmup_share({"warmup_share": 0.03}) == 0.03
    assert warmup_share({"warmup_steps": 0, "warmup_tokens": 3e8}) is None
    assert warmup_share({"warmup_steps": 0}) == 0.0
    assert warmup_share({}) is None


def test_the_audit_is_skipped_without_a_configuration() -> None:
    """No configuration in the log, no audit."""
    assert CONFIG_AUDIT.missing(context(make_run({"loss": [1.0]})))
