"""What home-made loops call their numbers, and the units that they print behind them.

>>> metric_of("Train loss", 2.5, ""), metric_of("Grad. Norm", 1.5, "")
(('loss', 2.5), ('grad_norm', 1.5))
>>> metric_of("dt", 250.0, "ms"), metric_of("tok/s", 12.5, "K"), metric_of("mfu", 38.0, "%")
(('step_time_s', 0.25), ('tokens_per_s', 12500.0), ('mfu', 0.38))
>>> metric_of("my number", 3.0, "%")
('raw/my number', 3.0)
"""

from __future__ import annotations

import re
from functools import lru_cache

from loganalyze import lazy
from loganalyze.config import metrics
from loganalyze_parsers.numbers import BYTES, MAGNITUDE

#: Metric -> the names that loops give it: lower case, with blanks for `_`, `-` and `.`.
_NAMES: dict[str, tuple[str, ...]] = {
    "loss": ("loss", "losses", "train loss", "training loss", "tr loss", "损失", "训练损失"),
    "val_loss": (
        "val loss", "valid loss", "validation loss", "test loss", "eval loss", "dev loss",
        "evaluation loss", "eval epoch loss", "val epoch loss", "验证损失", "测试损失",
    ),
    "lr": ("lr", "learning rate", "lrate", "learning-rate", "学习率"),
    "grad_norm": (
        "grad norm", "gradnorm", "gnorm", "gradient norm", "grad", "norm", "global grad norm",
        "total grad norm", "梯度范数",
    ),
    "step_time_s": (
        "step time", "iter time", "iteration time", "iter dt", "dt", "time/step", "time per step",
        "time/iter", "time/it", "time/batch", "batch time", "sec/step", "sec/iter", "s/it",
        "s/iter", "sec/it", "sec/batch", "s/step", "s/batch", "ms/batch", "ms/step", "ms/iter",
        "time per iter", "time per iteration", "time per batch",
    ),
    "data_time_s": ("data time", "data loading time", "dataload time"),
    "tokens_per_s": (
        "tok/sec", "tok/s", "toks/s", "toks/sec", "tokens/s", "tokens/sec", "tokens per second",
        "tokens per sec", "tok per sec", "tokens/second", "token/s", "words/s",
    ),
    "tokens_per_s_per_gpu": (
        "tokens/s/gpu", "tok/s/gpu", "tokens/sec/gpu", "tokens/gpu/sec", "tokens/gpu/s",
        "tokens per second per gpu", "tokens per sec per gpu", "tokens/s/device", "tgs",
    ),
    "samples_per_s": (
        "samples/s", "samples/sec", "samples per second", "sample/s", "samples per sec", "seq/s",
        "examples/s", "examples/sec", "sequences/s", "ex/s",
    ),
    "mfu": ("mfu",),
    "tflops_per_gpu": ("tflops/gpu", "tflop/s/gpu", "tflops/device", "tflops per gpu"),
    "mem_peak_allocated_bytes": (
        "peak mem", "peak memory", "peak gpu mem", "peak gpu memory", "max mem", "max memory",
        "max gpu mem", "peak allocated", "max allocated", "peak memory allocated", "peak vram",
    ),
    "mem_used_bytes": (
        "mem", "memory", "gpu mem", "gpu memory", "mem used", "memory used", "used mem", "vram",
        "mem usage", "memory usage", "gpu mem usage", "gpu memory usage",
    ),
    "mem_allocated_bytes": (
        "allocated", "mem allocated", "memory allocated", "alloc", "allocated memory",
    ),
    "mem_reserved_bytes": ("reserved", "mem reserved", "memory reserved", "reserved memory"),
    "perplexity": ("ppl", "perplexity", "train ppl", "train perplexity"),
    "token_accuracy": (
        "acc", "accuracy", "train acc", "train accuracy", "token acc", "token accuracy",
    ),
    "entropy": ("entropy", "policy entropy", "熵"),
    "kl": ("kl", "mean kl", "kl div", "kl divergence", "kl loss", "kl mean"),
    "reward": (
        "reward", "rewards", "mean reward", "avg reward", "average reward", "reward mean",
        "train reward", "奖励",
    ),
    "reward_std": ("reward std", "std reward"),
    "response_length": (
        "response length", "completion length", "gen length", "generation length",
        "mean response length", "response len", "completion len", "mean completion length",
    ),
    "loss_scale": ("loss scale", "grad scale"),
    "tokens_seen": ("tokens seen", "total tokens", "consumed tokens", "trained tokens"),
}  # fmt: skip
#: Names of what may stand for the loss where a line names none.
_ALMOST = frozenset({
    "total loss", "ce loss", "cross entropy loss", "cross entropy", "nll loss", "ce",
    "policy loss", "pg loss", "actor loss", "grpo loss", "ppo loss", "loss total",
})  # fmt: skip
#: Words before a known name that do not change what it is.
_NEUTRAL = frozenset(
    {"train", "training", "batch", "current", "cur", "step", "iter", "reported", "的"}
)
#: Such words of a mean over more than one step.
_MEANS = frozenset({"avg", "average", "mean", "running", "smoothed", "ema", "epoch"})
_METRIC = {name: metric for metric, names in _NAMES.items() for name in names}
_SECONDS = {
    "us": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0,
    "seconds": 1.0, "m": 60.0, "min": 60.0, "mins": 60.0, "h": 3600.0,
}  # fmt: skip
#: Units in names; who has bytes in gigabytes for a tracker has divided them by 1024**3.
_UNITS_BEHIND = {"gb": "GiB", "gib": "GiB", "mb": "MiB", "mib": "MiB", "ms": "ms"}
_SHARES = frozenset({"mfu", "token_accuracy"})
_SPACES = lazy.pattern(r"[ _.\-]+")
#: What may stand behind a number; a letter behind it means that it is a word.
UNIT = (
    r"(?:\s?(?P<unit>%|[KMBGT](?![A-Za-z])|[kKMGT]i?B(?![A-Za-z])|ms|msec|us|sec(?:ond)?s?|s|mins?|"
    r"m|h)(?![A-Za-z]))"
)


def metric_of(name: str, value: float, unit: str) -> tuple[str, float]:
    """Metric and value in its unit; `raw/<name>` and the number as printed for other names."""
    if not unit and is_own_name(name):
        return name, value
    if not unit and (behind := of_unit_behind(name)):
        return behind[0], value * behind[1]
    metric = _known(name)
    if metric is None or (metric.startswith("mem_") and unit.lower() not in BYTES):
        return f"raw/{name.lower().strip()}", value * MAGNITUDE.get(unit, 1.0)
    return metric, value * _factor(metric, name, value, unit)


def is_own_name(name: str) -> bool:
    """Whether a loop calls a number as we do: a name of two words or more can mean nothing else.

    >>> is_own_name("step_time_s"), is_own_name("kl"), is_own_name("step time")
    (True, False, False)
    """
    return "_" in name and name in metrics()


def of_unit_behind(name: str) -> tuple[str, float] | None:
    """Metric and factor of a name that ends with its unit; None for other names.

    >>> of_unit_behind("peak_mem_gb"), of_unit_behind("data_time_ms"), of_unit_behind("loss_ms")
    (('mem_peak_allocated_bytes', 1073741824.0), ('data_time_s', 0.001), None)
    """
    base, _, unit = name.rpartition("_")
    unit = _UNITS_BEHIND.get(unit.lower(), "")
    metric = _known(base) if unit else None
    if metric is None or not metric.endswith("_time_s" if unit == "ms" else "_bytes"):
        return None
    return metric, _factor(metric, base, 1.0, unit)


def settled(values: dict[str, float]) -> dict[str, float]:
    """The values with one loss: a line without a `loss` has the mean or the total that it names."""
    for stand_in in ("mean of loss", "almost loss"):
        value = values.pop(stand_in, None)
        if value is not None and "loss" in values:
            values[f"raw/{stand_in}"] = value
        elif value is not None:
            values["loss"] = value
    return values


@lru_cache(maxsize=4096)
def _known(name: str) -> str | None:
    """The metric of a name; "mean of loss" and "almost loss" are settled later."""
    name = _SPACES.sub(" ", name.lower()).strip()
    for spelled in (name, name.replace("/", " ")):
        words = spelled.split(" ")
        mean = False
        while len(words) > 1 and " ".join(words) not in _METRIC and words[0] in _NEUTRAL | _MEANS:
            mean = mean or words[0] in _MEANS
            del words[0]
        rest = " ".join(words)
        metric = "almost loss" if rest in _ALMOST else _METRIC.get(rest)
        if metric is not None:
            return "mean of loss" if mean and metric == "loss" else metric
    return None


def _factor(metric: str, name: str, value: float, unit: str) -> float:
    if metric.endswith("_time_s"):
        return _SECONDS.get(unit, 1e-3 if re.search(r"\bms\b", name.lower()) else 1.0)
    if metric.endswith("_bytes"):
        return BYTES[unit.lower()]
    if metric in _SHARES:  # a share is at most one, whatever stands behind it
        return 0.01 if unit == "%" or value > 1.5 else 1.0
    return MAGNITUDE.get(unit, 1.0)
