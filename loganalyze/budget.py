"""The memory budget of one GPU, estimated from the configuration, beside what the log shows.

Seed A §3.1 names the parts for AdamW with mixed precision: parameters, gradients (2 bytes each a
parameter), optimizer states (8 bytes; 12 with float32 copies of the weights), activations
(proportional to sequence, batch and depth). ZeRO shares optimizer states (stage 1), gradients (2)
and parameters (3) over the data-parallel ranks; tensor and pipeline parallelism share all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from loganalyze.detectors.audit_settings import optimizer, precision, settings
from loganalyze.model import RunLog
from loganalyze.tracks import tracks

#: What the log may show of it, most telling first.
MEASURED = ("mem_peak_allocated_bytes", "mem_allocated_bytes", "mem_reserved_bytes",
            "mem_used_bytes")  # fmt: skip
_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_layers", "num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "groups": ("num_query_groups", "num_key_value_heads", "n_kv_heads"),
    "ffn": ("ffn_hidden_size", "intermediate_size", "d_ff"),
    "vocab": ("padded_vocab_size", "vocab_size", "n_vocab"),
    "parameters": ("num_parameters", "n_params", "total_params", "model_parameters"),
    "zero": ("zero_optimization_stage", "zero_stage", "stage"),
    "data": ("data_parallel_size", "dp_size"),
    "experts": ("num_experts", "num_local_experts", "moe_num_experts"),
}


class Budget(Struct, frozen=True, kw_only=True):
    """Bytes on one GPU by part. assumed: what the configuration does not say, as taken.

    measured: metric -> highest value of the log.
    """

    parameters: float  # of the whole model
    parts: Mapping[str, float]
    assumed: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return float(sum(self.parts.values()))


def budget_of(run: RunLog) -> Budget | None:
    """The budget; None where the configuration does not tell the size of the model."""
    return estimate(run.meta.config, _measured(run))


def _measured(run: RunLog) -> dict[str, float]:
    found = {}
    for metric in MEASURED:
        tops = [float(np.nanmax(t.values)) for t in tracks(run, metric)
                if np.isfinite(t.values).any()]  # fmt: skip
        if tops:
            found[metric] = max(tops)
    return found


def estimate(
    config: Mapping[str, str], measured: Mapping[str, float] | None = None
) -> Budget | None:
    """The budget of a configuration, by the names that the trainers print.

    >>> made = estimate({"num_layers": "32", "hidden_size": "4096", "num_attention_heads": "32",
    ...                  "vocab_size": "32000", "bf16": "True", "world_size": "8",
    ...                  "zero_stage": "1"})
    >>> round(made.parameters / 1e9, 1)
    6.6
    """
    found = {**settings(config), **_numbers(config)}
    size, assumed = _parameters(found)
    if size is None:
        return None
    tensor, stages = max(found.get("tp", 1.0), 1.0), max(found.get("pp", 1.0), 1.0)
    world = found.get("world", 0.0)
    ranks = max(found.get("data", world / (tensor * stages) if world else 1.0), 1.0)
    zero = int(found.get("zero", _sharded_optimizer(config)))
    own = size / (tensor * stages)
    wide = 4.0 if precision(config) == "fp32" else 2.0
    adam = optimizer(config) in ("", "adam", "adamw") or "adam" in optimizer(config)
    states = (8.0 + (4.0 if wide == 2.0 else 0.0)) if adam else 4.0
    parts = {
        "parameters": own * wide / (ranks if zero >= 3 else 1.0),
        "gradients": own * wide / (ranks if zero >= 2 else 1.0),
        "optimizer": own * states / (ranks if zero >= 1 else 1.0),
    }
    activations = _activations(config, found, tensor)
    if activations is not None:
        parts["activations"] = activations
    if "zero" not in found and not zero:
        assumed = (*assumed, "ZeRO 0")
    return Budget(parameters=size, parts=parts, assumed=assumed, measured=dict(measured or {}))


def _numbers(config: Mapping[str, str]) -> dict[str, float]:
    flat = {name.lower().rsplit(".", 1)[-1]: value for name, value in config.items()}
    found: dict[str, float] = {}
    for key, names in _NAMES.items():
        for name in names:
            try:
                found[key] = float(str(flat[name]).replace(",", ""))
                break
            except (KeyError, ValueError):
                continue
    return found


def _sharded_optimizer(config: Mapping[str, str]) -> int:
    """Megatron's distributed optimizer shares the states as ZeRO 1 does."""
    told = str(config.get("use_distributed_optimizer", "")).strip().lower()
    return 1 if told == "true" else 0


def _parameters(found: Mapping[str, float]) -> tuple[float | None, tuple[str, ...]]:
    """Parameters of a decoder: as printed, else by its sizes; and what had to be assumed."""
    if found.get("parameters", 0.0) > 1e5:
        return found["parameters"], ()
    layers, hidden = found.get("layers"), found.get("hidden")
    if not layers or not hidden:
        return None, ()
    heads = found.get("heads") or 0.0
    shared = found["groups"] / heads if heads and found.get("groups") else 1.0
    ffn = found.get("ffn") or 4 * hidden
    experts = max(found.get("experts", 1.0), 1.0)
    block = hidden * hidden * (2 + 2 * shared) + 2 * hidden * ffn * experts
    size = layers * block + hidden * found.get("vocab", 0.0)
    lacking = [name for name, key in (("feed-forward 4 x hidden", "ffn"),
                                      ("no vocabulary", "vocab")) if key not in found]  # fmt: skip
    return size, tuple(lacking)


def _activations(
    config: Mapping[str, str], found: Mapping[str, float], tensor: float
) -> float | None:
    """Bytes of a stage's activations in 16 bits: 34 s b h a layer, 2 s b h where recomputed.

    Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (2022), with
    an attention that keeps no s x s scores. A pipeline of p stages holds p micro-batches of a
    p-th of the layers on its first stage, so that p cancels.
    """
    keys = ("layers", "hidden", "seq", "micro_batch")
    if any(not found.get(key) for key in keys):
        return None
    told = f"{config.get('recompute_granularity', '')} {config.get('gradient_checkpointing', '')}"
    whole = "full" in told.lower() or "true" in told.lower()
    tokens = found["seq"] * found["micro_batch"] * found["hidden"]
    if whole:
        return 2 * tokens * found["layers"]
    return tokens * (10 + 24 / tensor) * found["layers"]
