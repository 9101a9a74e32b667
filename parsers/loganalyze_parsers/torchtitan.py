"""torchtitan: one console line a logged step, the loss averaged over all ranks.

    [titan] 2031-04-02 10:11:12,345 - root - INFO - step: 40  loss:  7.50123  grad_norm:  1.2345
    memory: 41.00GiB(50.00%)  tps: 6,543  tflops: 201.33  mfu: 20.36%
    ... validate step: 40  loss:  7.41  memory: 41.00GiB(50.00%)  tps: 6,000

The loss is one step's, the gradient norm is before clipping, memory is the largest reserved since
the last line, tps counts one device.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "step: 40  loss:  7.5  grad_norm:  1.25  memory: 41.00GiB(50.00%)  tps: 6,543"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["grad_norm"], values["tokens_per_s_per_gpu"]
(40, 7.5, 1.25, 6543.0)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_GIB = 1024.0**3
_PAIR = lazy.pattern(r"([a-z_]{1,80}:|GiB\()\s{0,20}([-+]?[\d.,]+(?:[eE][-+]?\d+)?|nan|inf)")
_NAMES = {
    "loss:": ("loss", 1.0),
    "grad_norm:": ("grad_norm", 1.0),
    "gnorm:": ("grad_norm", 1.0),  # flame's
    "memory:": ("mem_peak_reserved_bytes", _GIB),
    "GiB(": ("raw/share", 0.01),
    "tps:": ("tokens_per_s_per_gpu", 1.0),
    "wps:": ("tokens_per_s_per_gpu", 1.0),
    "tflops:": ("tflops_per_gpu", 1.0),
    "mfu:": ("mfu", 0.01),
    "lr:": ("lr", 1.0),  # printed by several forks
    "learning_rate:": ("lr", 1.0),
}


def _mend(values: dict[str, float]) -> dict[str, float]:
    """The device's memory follows from the share of it."""
    share = values.pop("raw/share", None)
    if share and "mem_peak_reserved_bytes" in values:
        values["mem_total_bytes"] = values["mem_peak_reserved_bytes"] / share
    return values


def _validation(values: dict[str, float]) -> dict[str, float]:
    return {"val_loss": values["loss"]} if "loss" in values else {}


_TRAINING = PairFormat(
    start=lazy.pattern(r"(?<!validate )\bstep: *(?P<step>\d{1,3}(?:,\d{3})+|\d+) +(?=loss:)"),
    pair=_PAIR,
    names=_NAMES,
    mend=_mend,
)
_VALIDATION = PairFormat(
    start=lazy.pattern(r"\bvalidate step: *(?P<step>\d{1,3}(?:,\d{3})+|\d+) +(?=loss:)"),
    pair=_PAIR,
    names=_NAMES,
    mend=_validation,
)

DIALECT = pair_dialect(
    "torchtitan", ("step:",), _TRAINING, _VALIDATION, about="torchtitan's console lines"
)
