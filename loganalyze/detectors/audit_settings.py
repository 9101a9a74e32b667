"""The settings of a run, whatever its trainer calls them, as numbers and yes/no."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

#: Names of a setting over the trainers; the first that is a number counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "max_lr", "peak_lr"),
    "weight_decay": ("weight_decay", "weight-decay", "wd"),
    "clip": ("clip_grad", "max_grad_norm", "gradient_clipping", "grad_clip", "gradient_clip_val"),
    "batch": ("global_batch_size", "train_batch_size", "total_batch_size"),
    "micro_batch": (
        "per_device_train_batch_size",
        "micro_batch_size",
        "train_micro_batch_size_per_gpu",
    ),
    "accumulation": ("gradient_accumulation_steps", "grad_accum", "gradient_accumulation"),
    "world": ("world_size", "num_processes", "n_gpus", "num_gpus"),
    "seq": ("seq_length", "max_seq_length", "max_length", "seq_len", "block_size", "cutoff_len",
            "sequence_length", "max_seq_len"),
    "steps": ("train_iters", "max_steps", "total_steps", "num_train_steps", "max_iters",
              "train-iters"),
    "samples": ("train_samples",),
    "warmup_steps": ("lr_warmup_iters", "warmup_steps", "num_warmup_steps", "warmup_iters"),
    "warmup_samples": ("lr_warmup_samples",),
    "warmup_tokens": ("lr_warmup_tokens",),
    "warmup_share": ("lr_warmup_fraction", "warmup_ratio", "warmup"),
    "tp": ("tensor_model_parallel_size", "model_parallel_size", "tensor_parallel_size", "tp_size"),
    "pp": ("pipeline_model_parallel_size", "pipe_parallel_size", "pipeline_parallel_size"),
    "hidden": ("hidden_size", "d_model", "n_embd"),
    "init_std": ("init_method_std", "initializer_range"),
    "eps": ("adam_eps", "adam_epsilon", "eps", "epsilon"),
    "beta1": ("adam_beta1", "beta1"),
    "beta2": ("adam_beta2", "beta2"),
    "gpus_per_node": ("gpus_per_node", "nproc_per_node"),
    "min_loss_scale": ("min_loss_scale",),
}  # fmt: skip
_OPTIMIZER = ("optimizer", "optim", "optimizer_name", "optimizer_type")
_BF16 = ("bf16", "bf16_enabled", "bfloat16_enabled", "bf16.enabled")
_FP16 = ("fp16", "fp16_enabled", "fp16.enabled")
_LORA = re.compile(r"lora|peft|qlora", re.IGNORECASE)


def settings(config: Mapping[str, str]) -> dict[str, float]:
    """The known settings of a configuration that are numbers.

    >>> settings({"learning_rate": "2e-05", "optim": "adamw_torch"})
    {'lr': 2e-05}
    """
    flat = _flat(config)
    found: dict[str, float] = {}
    for key, names in NAMES.items():
        for name in names:
            value = _number(flat.get(name))
            if value is not None:
                found[key] = value
                break
    return found


def setting_name(config: Mapping[str, str], key: str) -> str:
    """What this trainer calls a setting."""
    flat = _flat(config)
    return next((name for name in NAMES[key] if _number(flat.get(name)) is not None), key)


def _flat(config: Mapping[str, str]) -> dict[str, str]:
    """Settings, and those inside values that are printed dictionaries (one level)."""
    flat = dict(config)
    for value in config.values():
        text = str(value).strip()
        if text.startswith("{") and text.endswith("}") and len(text) < 2000:
            flat = {**_parsed(text), **flat}
    for name in [name for name in flat if re.split(r"[./_]", name)[-1] == "betas"]:
        pair = re.findall(r"[\d.]+(?:e-?\d+)?", str(flat[name]))
        flat |= dict(zip(("beta1", "beta2"), pair, strict=False)) if len(pair) == 2 else {}
    for name in list(flat):
        short = re.split(r"[./]", name)[-1]
        flat.setdefault(short, flat[name])
    return flat


def _parsed(text: str) -> dict[str, str]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _number(text: object) -> float | None:
    try:
        return float(str(text).strip())
    except ValueError:
        return None


def optimizer(config: Mapping[str, str]) -> str:
    """Name of the optimizer in lower case; empty if not told."""
    flat = _flat(config)
    return next((flat[name].lower() for name in _OPTIMIZER if flat.get(name)), "")


def precision(config: Mapping[str, str]) -> str:
    """`bf16`, `fp16`, `fp32`, or empty where the configuration does not tell."""
    flat = _flat(config)
    for kind, names in (("bf16", _BF16), ("fp16", _FP16)):
        if any(flat.get(name, "").strip().lower() == "true" for name in names):
            return kind
    told = [name for name in (*_BF16, *_FP16) if name in flat]
    both = any(name in _BF16 for name in told) and any(name in _FP16 for name in told)
    return "fp32" if both else ""


def is_lora(config: Mapping[str, str]) -> bool:
    """Whether only adapters are trained."""
    return any(
        _LORA.search(name) and str(value).strip().lower() not in ("false", "none", "0", "")
        for name, value in config.items()
    )


def batch_tokens(found: Mapping[str, float]) -> float | None:
    """Tokens of a global batch; None where batch or sequence length is not told."""
    seq, batch = found.get("seq"), found.get("batch")
    if batch is None and {"micro_batch", "accumulation", "world"} <= found.keys():
        batch = found["micro_batch"] * found["accumulation"] * found["world"]
    return seq * batch if seq and batch else None


def warmup_share(found: Mapping[str, float]) -> float | None:
    """Warm-up as a share of the planned run; None where it is not told."""
    steps, samples = found.get("steps"), found.get("samples")
    if found.get("warmup_steps") and steps and steps > 0:
        return found["warmup_steps"] / steps
    if found.get("warmup_samples") and samples:
        return found["warmup_samples"] / samples
    if found.get("warmup_samples") and steps and found.get("batch"):
        return found["warmup_samples"] / (steps * found["batch"])
    share = found.get("warmup_share")
    if share is not None and 0 < share < 1:
        return share
    keys = ("warmup_steps", "warmup_samples", "warmup_share", "warmup_tokens")
    told = [found[key] for key in keys if key in found]
    return 0.0 if told and not any(told) else None
