"""Names of the Hugging Face family -> canonical metrics: Trainer, TRL, LLaMA-Factory, ms-swift,
axolotl.

What the fields are (transformers/trainer.py and trl/trainer/*.py): `loss` is the mean over the
logging window and over all ranks; `grad_norm` is that of the window's last step, before clipping;
`learning_rate` is the first group's, after the scheduler's step; `epoch` is fractional. TRL's
numbers are means over the window. Cumulative means (train_speed, throughput) stay raw.

>>> sorted(values_of({"loss": "'0.9446'", "learning_rate": "3.6e-05", "memory(GiB)": "2"}).items())
[('loss', 0.9446), ('lr', 3.6e-05), ('mem_peak_reserved_bytes', 2147483648.0)]
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal

from loganalyze import lazy
from loganalyze_parsers.generic_names import is_own_name, of_unit_behind
from loganalyze_parsers.json_spans import plain_number
from loganalyze_parsers.numbers import number, whole
from loganalyze_parsers.tqdm_bar import clock_seconds
from loganalyze_parsers.tracker_names import known

Kind = Literal["train", "eval", "summary", "progress", ""]

_GIB = 1024.0**3
_CANONICAL: Mapping[str, tuple[str, float]] = {
    "loss": ("loss", 1.0),
    "eval_loss": ("val_loss", 1.0),
    "learning_rate": ("lr", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "epoch": ("epoch", 1.0),
    "ppl": ("perplexity", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "mean_token_accuracy": ("token_accuracy", 1.0),
    "token_acc": ("token_accuracy", 1.0),
    "acc": ("token_accuracy", 1.0),
    "num_input_tokens_seen": ("tokens_seen", 1.0),
    "num_tokens": ("tokens_seen", 1.0),
    "total_tokens": ("tokens_seen", 1.0),
    "tokens/total": ("tokens_seen", 1.0),
    "tokens/train_per_sec_per_gpu": ("tokens_per_s_per_gpu", 1.0),
    "tokens_per_second_per_gpu": ("tokens_per_s_per_gpu", 1.0),
    "step_time": ("step_time_s", 1.0),
    # reinforcement learning
    "reward": ("reward", 1.0),
    "reward_std": ("reward_std", 1.0),
    "kl": ("kl", 1.0),
    "entropy": ("entropy", 1.0),
    "objective/rlhf_reward": ("reward", 1.0),
    "objective/kl": ("kl", 1.0),
    "policy/entropy_avg": ("entropy", 1.0),
    "policy/clipfrac_avg": ("clip_fraction", 1.0),
    "clip_ratio": ("clip_fraction", 1.0),
    "clip_ratio/region_mean": ("clip_fraction", 1.0),
    "completion_length": ("response_length", 1.0),
    "completions/mean_length": ("response_length", 1.0),
    "loss/policy_avg": ("aux_loss/policy", 1.0),
    "loss/value_avg": ("aux_loss/value", 1.0),
    "nll_loss": ("aux_loss/nll", 1.0),
    "aux_loss": ("aux_loss/moe", 1.0),
    # OpenRLHF's bars
    "actor_lr": ("lr", 1.0),
    "act_lr": ("lr", 1.0),
    "critic_loss": ("aux_loss/value", 1.0),
    "ptx_loss": ("aux_loss/ptx", 1.0),
    "ptx": ("aux_loss/ptx", 1.0),
    "glen": ("response_length", 1.0),
    "gen_len": ("response_length", 1.0),
    "response_length": ("response_length", 1.0),
    # EasyLM's console
    "gradient_norm": ("grad_norm", 1.0),
    "param_norm": ("params_norm", 1.0),
    # memory: ms-swift and LLaMA-Factory print peaks (torch.cuda.max_memory_*), "GB" is 1024^3
    "memory(GiB)": ("mem_peak_reserved_bytes", _GIB),
    "vram_allocated": ("mem_peak_allocated_bytes", _GIB),
    "vram_reserved": ("mem_peak_reserved_bytes", _GIB),
    "memory/max_active (GiB)": ("mem_active_bytes", _GIB),
    "memory/max_allocated (GiB)": ("mem_peak_allocated_bytes", _GIB),
    "memory/device_reserved (GiB)": ("mem_reserved_bytes", _GIB),
    "memory/max_mem_active(gib)": ("mem_active_bytes", _GIB),
    "memory/max_mem_allocated(gib)": ("mem_peak_allocated_bytes", _GIB),
    "memory/device_mem_reserved(gib)": ("mem_reserved_bytes", _GIB),
}
_CLOCKS = {"elapsed_time": "raw/elapsed_s", "remaining_time": "raw/remaining_s"}
#: Zero here means that the trainer does not count (LLaMA-Factory v0.8.3, axolotl's last row).
_ZERO_IS_MISSING = frozenset({
    "total_tokens", "throughput", "tokens/train_per_sec_per_gpu", "tokens_per_second_per_gpu",
})  # fmt: skip
#: What takes more than a column: clocks (train_runtime gives the step's time, too) and gaps.
_ASIDE = frozenset({*_CLOCKS, *_ZERO_IS_MISSING, "train_runtime"})
STEP_KEYS = ("step", "global_step", "current_steps", "global_step/max_steps")
#: Keys of other makers that also print dictionaries with a loss.
_FOREIGN = frozenset({"num_updates", "wps", "iter", "update", "mode", "reduced_train_loss"})
_BESIDE_LOSS = frozenset({
    "epoch", "grad_norm", "learning_rate", "lr", "rewards/chosen", *STEP_KEYS,
})  # fmt: skip
_WRAPPED = lazy.pattern(r"(?:np\.)?\w+\(([^,]*)(?:,.*)?\)$")


@lru_cache(maxsize=4096)
def plain_key(key: str) -> str:
    """The key as the Trainer has it: some loggers put `train/` and `eval/` before it."""
    key = re.sub(r"\s*/\s*", "/", key.strip())
    if key.startswith("train/"):
        return key[6:]
    return "eval_" + key[5:] if key.startswith("eval/") else key


def is_summary(keys: Collection[str]) -> bool:
    """Whether a row holds means over the whole run.

    A Trainer that counts tokens prints train_runtime in every row: it alone makes no summary.

    >>> is_summary({"train_runtime", "train_loss"}), is_summary({"train_runtime", "loss"})
    (True, False)
    """
    return "train_runtime" in keys and "loss" not in keys and "eval_loss" not in keys


def kind_of(keys: frozenset[str]) -> Kind:
    """What a dictionary with these keys is; an empty string if it is of another make."""
    if is_summary(keys) or "last_model_checkpoint" in keys:  # the latter ends ms-swift's
        return "summary"
    if _FOREIGN & keys:
        return ""
    if "loss" in keys and _BESIDE_LOSS & keys:
        return "train"
    rate = "learning_rate" in keys or "lr" in keys
    if "objective/kl" in keys or ("grad_norm" in keys and rate):
        return "train"
    if any(key.startswith("eval_") or key.endswith("_steps_per_second") for key in keys):
        return "eval"
    if {"current_steps", "total_steps"} <= keys:
        return "progress"
    return ""


def values_of(pairs: Mapping[str, object]) -> dict[str, float]:
    """All numbers of a dictionary by canonical or raw name, in SI units; the step is left out."""
    values: dict[str, float] = {}
    for key, raw in pairs.items():
        if key in STEP_KEYS:
            continue
        if key in _CLOCKS:
            seconds = clock_seconds(str(raw).strip("'\""))
            if seconds is not None:
                values[_CLOCKS[key]] = seconds
            continue
        value = number_of(raw)
        if value is None:
            continue
        name, factor = _column(key)
        if (value == 0.0 and key in _ZERO_IS_MISSING) or ("." in key and name in values):
            name, factor = f"raw/{key}", 1.0
        values.setdefault(name, value * factor)
    return values


def _column(key: str) -> tuple[str, float]:
    """Metric and factor of a key; of one inside another object as trackers name it."""
    found = _CANONICAL.get(key)
    if found is None and is_own_name(key):
        return key, 1.0
    if found is None and "." in key and (tag := known(key)) is not None:
        return tag[:2]
    return found or of_unit_behind(key) or (f"raw/{key}", 1.0)


def column_of(key: str) -> tuple[str, float] | None:
    """Metric and factor of a key whose value is always a plain number; None for any other key."""
    if key in STEP_KEYS or key in _ASIDE or plain_key(key) != key:
        return None
    return _column(key)


def number_of(raw: object) -> float | None:
    """The number in a value as printed: quoted, wrapped (`np.float64(0.5)`), or with `%`.

    >>> number_of("'1.425e+04'"), number_of("np.float64(0.5)"), number_of("'2.28%'")
    (14250.0, 0.5, 2.28)
    """
    if isinstance(raw, bool) or raw is None:
        return None
    if isinstance(raw, int | float):
        return plain_number(raw)
    if not isinstance(raw, str):
        return None
    value = number(raw)
    if value is not None:
        return value
    text = raw.strip("'\" ")
    if text.endswith("%"):
        return number(text[:-1])
    wrapped = _WRAPPED.match(text)
    return number(wrapped[1]) if wrapped else None


def step_of(pairs: Mapping[str, object]) -> int | None:
    """The step that the dictionary itself names: `step`, `current_steps`, or `"10/438"`.

    TRL's PPO counts episodes, and prints nothing finer.
    """
    for key in (*STEP_KEYS, "episode") if "objective/kl" in pairs else STEP_KEYS:
        if key in pairs:
            text = str(pairs[key]).strip("'\"").split("/")[0]
            return whole(number(text))
    return None


def reveal_hidden_nan(values: dict[str, float], loss_before: float | None) -> bool:
    """Undo the Trainer's NaN filter; True if it had been at work.

    logging_nan_inf_filter (on by default) replaces a NaN loss of a step by the mean of the
    window so far: 0.0 in a window of NaN alone, or the very number of the row before. Only a
    grad_norm that is NaN beside it gives it away. A 0.0 becomes NaN again; a repeated mean stays.
    """
    loss, norm = values.get("loss"), values.get("grad_norm")
    if loss is None or norm is None or not math.isnan(norm):
        return False
    if loss != 0.0 and loss != loss_before:
        return False
    values["raw/nan_hidden"] = 1.0
    if loss == 0.0:
        values["loss"] = math.nan
    return True


def json_text(value: object) -> str:
    """A value of a configuration as printed."""
    return value if isinstance(value, str) else json.dumps(value)
