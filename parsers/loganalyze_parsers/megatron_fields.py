"""Names and units of the fields on Megatron-family training lines.

Keys are compared without spaces and in lower case, because a wrapped row loses a space. Units:
times in ms or s, memory in GB that are 1024**3 bytes (torch.cuda counters divided by 1024**3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from loganalyze import lazy
from loganalyze_parsers.numbers import BYTES, MAGNITUDE, leading_number

_GIB = 1024.0**3

#: key without spaces, lower case -> (canonical metric, factor to its unit)
FIELDS: dict[str, tuple[str, float]] = {
    "consumedsamples": ("samples_seen", 1.0),
    "consumedtokens": ("tokens_seen", 1.0),
    "elapsedtimeperiteration(ms)": ("step_time_s", 1e-3),
    "elapsedtimeperiteration(s)": ("step_time_s", 1.0),
    "throughputpergpu(tflop/s/gpu)": ("tflops_per_gpu", 1.0),
    "computepergpu(tflop/s/gpu)": ("tflops_per_gpu", 1.0),
    "tflops": ("tflops_per_gpu", 1.0),
    "approxflopspergpu": ("tflops_per_gpu", 1.0),
    "energypergpu(j/iter/gpu)": ("gpu_energy_j", 1.0),
    "powerpergpu(w/gpu)": ("gpu_power_w", 1.0),
    "learningrate": ("lr", 1.0),
    "globalbatchsize": ("global_batch_size", 1.0),
    "gloablbatchsize": ("global_batch_size", 1.0),  # AscendSpeed spells it so
    "lmloss": ("loss", 1.0),
    "lm_loss": ("loss", 1.0),
    "lm-loss": ("loss", 1.0),
    "loss": ("loss", 1.0),
    "lossscale": ("loss_scale", 1.0),
    "gradnorm": ("grad_norm", 1.0),
    "numzeros": ("num_zeros", 1.0),
    "paramsnorm": ("params_norm", 1.0),
    "numberofskippediterations": ("skipped_steps", 1.0),
    "numberofnaniterations": ("nan_steps", 1.0),
    "samplespersecond": ("samples_per_s", 1.0),
    "samples/sec": ("samples_per_s", 1.0),
    "tokenspergpupersecond(tgs)": ("tokens_per_s_per_gpu", 1.0),
    "tokenspergpu(tokens/s/gpu)": ("tokens_per_s_per_gpu", 1.0),
    "tokens/s/gpuinst/harmonicmean": ("tokens_per_s_per_gpu", 1.0),
    "tokens/sec/gpu": ("tokens_per_s_per_gpu", 1.0),
    "tgs(tokens/gpu/second)": ("tokens_per_s_per_gpu", 1.0),
    "tokens/s/gpu": ("tokens_per_s_per_gpu", 1.0),
    "actualseqlen": ("seq_len", 1.0),
    "curriculumseqlen": ("seq_len", 1.0),
    "maxattentionlogit": ("max_attention_logit", 1.0),
    "mfu": ("mfu", 0.01),
    # ms-swift: torch.cuda.max_memory_reserved() / 1024**3, and what its GRPO and DPO print
    "memory(gib)": ("mem_peak_reserved_bytes", _GIB),
    "kl": ("kl", 1.0),
    "reward": ("reward", 1.0),
    "reward_std": ("reward_std", 1.0),
    "entropy/mean": ("entropy", 1.0),
    "completions/mean_length": ("response_length", 1.0),
    "clip_ratio/region_mean": ("clip_fraction", 1.0),
}
#: Clocks in words (`3m 8s`, `1:02:03`), whose first number alone says nothing.
_CLOCKS = frozenset({"eta", "elapsedtime", "remainingtime"})
#: What trainers other than language models' call the loss that they train on.
_OWN_LOSS = lazy.pattern(
    r"aux_loss/(?:\w{1,40}_)?(?:actor|critic|policy|value|reward|dpo|grpo|ppo|rm|sft|total|train)_?"
    r"(?:loss)?$"
)
_COUNTS = frozenset({"samples_seen", "tokens_seen"})
#: Keys printed before the loss on a training line of every variant.
_BEFORE_LOSS = frozenset(
    {"step_time_s", "tflops_per_gpu", "lr", "global_batch_size", "samples_seen", "tokens_seen"}
)
#: Keys printed behind the loss: where one of them stands and no loss does, the loss was left out.
BEHIND_LOSS = frozenset({"loss_scale", "grad_norm", "num_zeros", "params_norm", "skipped_steps"})
_SPACES = lazy.pattern(r"\s+")
#: What a key of a Megatron line is made of, in every variant of the collection; others are damage.
_PLAIN_KEY = lazy.pattern(r"[\w ().,:/%+*#@^=-]*")
_NO_LETTERS = lazy.pattern(r"[\W\d_]+")
_LOSS = "lmloss"


def field_values(key: str, text: str) -> Iterator[tuple[str, float]]:
    """Canonical (or raw/) metrics of one `key: value` field, in SI units.

    >>> list(field_values("elapsed time per iteration (ms)", " 2701.3/2712.7"))
    [('step_time_s', 2.7013000000000003), ('raw/elapsed time per iteration (ms)/avg', 2712.7)]
    """
    bare = key.replace(" ", "").lower()
    if bare.endswith("usage/free/total/usage_ratio"):
        yield from _memory_tuple(key, text)
        return
    found = leading_number(text)
    if found is None or bare in _CLOCKS:
        return
    value, rest = found
    name, factor = named_field(key)
    if name in _COUNTS:  # 1.258B
        factor *= MAGNITUDE.get(rest, 1.0)
    yield name, value * factor
    if rest.startswith("/"):
        second = leading_number(rest[1:])
        if second is not None:
            yield f"raw/{_plain(key)}/avg", second[0]


def named_field(key: str) -> tuple[str, float]:
    """Canonical metric (or raw/ name) of a key, and the factor to its unit."""
    bare = _SPACES.sub("", key).lower()
    known = FIELDS.get(bare)
    if known is not None:
        return known
    if bare.endswith("loss"):
        return f"aux_loss/{_plain(key).removesuffix(' loss')}", 1.0
    return f"raw/{_plain(key)}", 1.0


def names_loss(key: str) -> bool:
    """Whether a key is that of the loss, or may have been before damage hit it.

    Damage is a letter too few, too many or wrong, a character that no key has, or a `|` that was
    hit, so that the key begins in the field before.

    >>> [names_loss(key) for key in ("lm loss", "lmXloss", "l- loss", "l{{{", "grad norm")]
    [True, True, True, True, False]
    """
    if named_field(key)[0] == "loss" or _PLAIN_KEY.fullmatch(key) is None:
        return True
    bare = _NO_LETTERS.sub("", key).lower()
    return _LOSS in bare or _one_apart(bare, _LOSS)


def _one_apart(text: str, name: str) -> bool:
    """Whether a text is a name but for one letter at most: wrong, too many, or missing."""
    if abs(len(text) - len(name)) > 1:
        return False
    same = 0
    while same < min(len(text), len(name)) and text[same] == name[same]:
        same += 1
    rests = (text[same:], name[same:]), (text[same + 1 :], name[same + 1 :])
    skipped = (text[same:], name[same + 1 :]), (text[same + 1 :], name[same:])
    return any(one == other for one, other in (*rests, *skipped))


def _plain(key: str) -> str:
    return _SPACES.sub(" ", key).strip()


def _memory_tuple(key: str, text: str) -> Iterator[tuple[str, float]]:
    """Primus: `aGB/bGB/cGB/d%` for used, free, total, ratio, by torch's (hip) or rocm's count."""
    names = ["mem_used_bytes", "raw/mem_free_bytes", "mem_total_bytes", "raw/mem_used_share"]
    if "rocm" in key.lower():
        names = [f"raw/rocm_{name.removeprefix('raw/')}" for name in names]
    for name, part in zip(names, text.split("/"), strict=False):
        found = leading_number(part)
        if found is not None:
            yield name, found[0] * (0.01 if name.endswith("share") else _GIB)


def gib_to_bytes(value: float, unit: str) -> float:
    """Bytes of a value printed by torch-based tools, whose MB and GB are powers of 1024."""
    name = unit.lower().replace("ib", "b")
    return value * BYTES[{"kb": "kib", "mb": "mib", "gb": "gib", "tb": "tib"}.get(name, name)]


def mended(values: dict[str, float]) -> dict[str, float]:
    """Placeholders taken out, a known misprint put right.

    A loss scale below or at zero is a placeholder (bf16 under DeepSpeed 3D prints -1.0). Some
    BigScience runs divide milliseconds by seconds, so their samples/s are 1000 times too small.
    """
    for name in ("loss_scale", "step_time_s"):
        if values.get(name, 1.0) <= 0:
            del values[name]
    rate, batch = values.get("samples_per_s"), values.get("global_batch_size")
    seconds = values.get("step_time_s")
    if not (rate and batch and seconds and math.isfinite(rate) and rate > 0):
        return values
    if 300 < (batch / seconds) / rate < 3000:
        values["samples_per_s"] = rate * 1000
    return values


def loss_left_out(values: dict[str, float], interval: int | None) -> bool:
    """Whether a line without a loss means NaN (Megatron prints a loss only if it is >= 0).

    Not where the line breaks off before the place of the loss, and not where every step of the
    interval was skipped: then there was no loss to print. A gradient norm of NaN is enough: it
    comes from a loss that is NaN.
    """
    if "loss" in values or not BEHIND_LOSS & values.keys():
        return False
    if any(_OWN_LOSS.match(name) for name in values):
        return False
    nan_gradient = math.isnan(values.get("grad_norm", 0.0))
    if not nan_gradient and not _BEFORE_LOSS & values.keys():
        return False
    skipped = values.get("skipped_steps", 0.0)
    if skipped <= 0:
        return True
    return interval is not None and skipped < interval
