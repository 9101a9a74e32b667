"""torchtune: the log file of its recipes (the bars on the console: described_bars.py).

    Step 40 | loss:1.2345 lr:2e-05 tokens_per_second_per_gpu:655.9 grad_norm:1.21
    Step 40 | loss:0.69 lr:5e-07 rewards/accuracies:0.5 peak_memory_alloc:15.26

Memory is in GiB; releases before 0.1 printed bytes, which no GiB of a GPU comes near. The loss is
the mean over the tokens of the step.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "Step 40 | loss:1.25 lr:2e-05 tokens_per_second_per_gpu:650 peak_memory_alloc:1.5"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["tokens_per_s_per_gpu"], values["mem_peak_allocated_bytes"]
(40, 1.25, 650.0, 1610612736.0)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.numbers import NUMBER
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_GIB = 1024.0**3
#: More GiB than this no GPU has: the number is of bytes.
_MOST_GIB = 1e6
_MEMORY = ("mem_active_bytes", "mem_peak_allocated_bytes", "mem_peak_reserved_bytes")
_NAMES = {
    "loss": ("loss", 1.0),
    "val_loss": ("val_loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "tokens_per_second_per_gpu": ("tokens_per_s_per_gpu", 1.0),
    "peak_memory_active": ("mem_active_bytes", _GIB),
    "peak_memory_alloc": ("mem_peak_allocated_bytes", _GIB),
    "peak_memory_reserved": ("mem_peak_reserved_bytes", _GIB),
    "rlhf_reward": ("reward", 1.0),
    "rewards": ("reward", 1.0),
    "kl": ("kl", 1.0),
    "clipfrac": ("clip_fraction", 1.0),
    "policy_loss": ("aux_loss/policy", 1.0),
    "value_loss": ("aux_loss/value", 1.0),
    "response_lengths": ("response_length", 1.0),
}


def _bytes(values: dict[str, float]) -> dict[str, float]:
    """Memory that was printed in bytes was multiplied once too often."""
    for name in _MEMORY:
        if values.get(name, 0.0) > _MOST_GIB * _GIB:
            values[name] /= _GIB
    return values


_FORM = PairFormat(
    start=lazy.pattern(r"\bStep (?P<step>\d+) \| (?=[\w/]{1,120}:)"),
    pair=lazy.pattern(rf"([A-Za-z_][\w/]{{0,120}}):({NUMBER})(?=\s|$)"),
    names=_NAMES,
    mend=_bytes,
)

DIALECT = pair_dialect("torchtune", ("Step ",), _FORM, about="torchtune's log files")
