"""NeMo: the progress bar's postfix (1.x) and one line an iteration (2.x).

    Epoch 0:   1%| | 795/77225 [1:02<3:01, v_num=, reduced_train_loss=2.310, global_step=794.0,
    consumed_samples=1.63e+6, train_step_timing in s=4.010]
    Epoch 0: : 1it [00:04,  4.36s/it, v_num=d3c7, reduced_train_loss=2.31, global_step=1.000]
    Training epoch 0, iteration 120/149 | lr: 1e-05 | global_batch_size: 128 | global_step: 120 |
    reduced_train_loss: 2.31 | train_step_timing in s: 4.01 | val_loss: 2.4

The bar's own `loss=nan` means nothing where reduced_train_loss stands beside it. val_loss is
printed again and again until the next validation, so only a change of it is kept.

>>> from loganalyze_parsers.samples import rows_of
>>> line = ("Training epoch 0, iteration 9/90 | global_step: 9 | reduced_train_loss: 2.31 | "
...         "lr: 1e-05")
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["lr"]
(9, 2.31, 1e-05)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import PairFormat, named

_NAMES = {
    "reduced_train_loss": ("loss", 1.0),
    "Loss": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "gradient_norm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "parameter_norm": ("params_norm", 1.0),
    "consumed_samples": ("samples_seen", 1.0),
    "global_batch_size": ("global_batch_size", 1.0),
    "train_step_timing in s": ("step_time_s", 1.0),
    "val_loss": ("val_loss", 1.0),
    "throughput": ("samples_per_s", 1.0),
    "samples/sec": ("samples_per_s", 1.0),
    "TFLOPS_per_GPU": ("tflops_per_gpu", 1.0),
}
_N = r"[-+]?(?:nan|inf|[\d.]+(?:[eE][-+]?\d+)?)"
_FORM = PairFormat(
    start=lazy.pattern(r"(?!)"),
    pair=lazy.pattern(rf"([A-Za-z_][\w /]{{0,120}}?)(?:=|: )({_N})"),
    names=_NAMES,
    dropped=frozenset({"loss", "v_num", "global_step", "epoch"}),
)
_STEP = lazy.pattern(rf"\bglobal_step(?:=|: )({_N})")
_RECORD = lazy.pattern(
    r"\bLoss=|Training epoch \d+, iteration \d+|Epoch \d+: +(?:: +)?\d+(?:%|it )"
)


class NemoReader:
    """Remembers the last validation loss, which is printed on every line."""

    open = False

    def __init__(self) -> None:
        """No validation yet."""
        self._val_loss: float | None = None

    def feed(self, line: Line) -> Taken | None:
        """Readings of a line, one a record (bars are glued together)."""
        starts = [match.start() for match in _RECORD.finditer(line.text)]
        bounds = zip(starts, [*starts[1:], len(line.text)], strict=True) if starts else ()
        readings = [reading for a, b in bounds if (reading := self._reading(line, a, b))]
        return Taken(readings=readings) if readings else None

    def _reading(self, line: Line, begin: int, end: int) -> Reading | None:
        text = line.text[begin:end].partition("]")[0]  # behind a bar other messages are glued
        step = _STEP.search(text)
        values = named(_FORM.pair.findall(text), _FORM)
        if step is None or "loss" not in values:
            return None
        if values.get("val_loss") == self._val_loss:
            values.pop("val_loss", None)
        self._val_loss = values.get("val_loss", self._val_loss)
        return Reading(
            step=int(float(step[1])), ref=line.ref, values=values, rank=line.rank,
            wall_s=line.wall_s,
        )  # fmt: skip

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No bulk way."""


DIALECT = Dialect(name="nemo", markers=("reduced_train_loss", "global_step="), reader=NemoReader)
