"""InternLM and InternEvo: one line of `key=value` pairs a step.

    ... INFO pipeline.py:770 in record_current_batch_training_metrics -- tflops=229.6 step=40
        loss=2.25 real_tgs=719.8 tgs (tokens/gpu/second)=720.5 lr=9.8e-05 loss_scale=16384.0
        grad_norm={'0_default': 2.0, '1_fp32': 0.0} num_consumed_tokens=674234368
        inf_nan_skip_batches=3 fwd_bwd_time=181.5 bwd_time=121.0 acc=0.55 perplexity=9.1

The oldest print commas between the pairs. tflops is of one GPU (train/utils: get_megatron_flops
divides by the world size). grad_norm is printed for each group of parameters: their root of the sum
of squares is the norm of all. inf_nan_skip_batches counts since the start, so its difference is the
metric; a skipped batch prints no line of its own.

>>> from loganalyze_parsers.samples import rows_of
>>> line = ("in record_current_batch_training_metrics -- tflops=200.5 step=7 loss=2.25 "
...         "tgs (tokens/gpu/second)=720.5 grad_norm={'0_default': 3.0, '1_fp32': 4.0} "
...         "inf_nan_skip_batches=1 ")
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["tokens_per_s_per_gpu"], values["grad_norm"]
(7, 2.25, 720.5, 5.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.numbers import NUMBER, number, whole

_MARK = "record_current_batch_training_metrics"
_PAIR = lazy.pattern(r"([A-Za-z][\w/]{0,80}(?: \(tokens/gpu/second\))?)=([^\s,={}]{1,80})")
_GROUPS = lazy.pattern(r"grad_norm=\{([^{}]{0,4000})\}")
_GROUP = lazy.pattern(rf": ({NUMBER})")
_NAMES = {
    "loss": ("loss", 1.0),
    "moe_loss": ("aux_loss/moe", 1.0),
    "lr": ("lr", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "tflops": ("tflops_per_gpu", 1.0),
    "tgs (tokens/gpu/second)": ("tokens_per_s_per_gpu", 1.0),
    "num_consumed_tokens": ("tokens_seen", 1.0),
    "bwd_time": ("backward_time_s", 1.0),
    "acc": ("token_accuracy", 1.0),
    "perplexity": ("perplexity", 1.0),
}
#: Means of the speed over more steps, and what is the same on every line.
_DROPPED = frozenset({"step", "pid", "adam_beta2"})
_SKIPPED = "raw/inf_nan_skip_batches"


class InternLMReader:
    """Remembers how many batches were skipped so far."""

    open = False

    def __init__(self) -> None:
        """Nothing seen."""
        self._skipped: float | None = None

    def feed(self, line: Line) -> Taken | None:
        """The reading of a line of metrics."""
        _, mark, text = line.text.partition(_MARK)
        pairs = dict(_PAIR.findall(text)) if mark else {}
        step = whole(number(pairs.get("step", "")))
        values = dict(_values(pairs))
        if step is None or "loss" not in values:
            return None
        groups = _GROUPS.search(text)
        if groups is not None:
            values["grad_norm"] = math.hypot(*map(float, _GROUP.findall(groups[1])))
        self._count(values)
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _count(self, values: dict[str, float]) -> None:
        before, now = self._skipped, values.get(_SKIPPED)
        if now is None:
            return
        if before is not None and now >= before:
            values["skipped_steps"] = now - before
        self._skipped = now

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No bulk way."""


def _values(pairs: dict[str, str]) -> Iterator[tuple[str, float]]:
    for key, text in pairs.items():
        value = number(text)
        if value is None or key in _DROPPED or key.startswith("tgs/"):
            continue
        name, factor = _NAMES.get(key, (f"raw/{key}", 1.0))
        yield name, value * factor


DIALECT = Dialect(name="internlm", markers=(_MARK,), reader=InternLMReader)
