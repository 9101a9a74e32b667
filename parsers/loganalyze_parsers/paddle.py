"""PaddleNLP's Trainer, its older training scripts, and the meters of Paddle's other libraries.

    [    INFO] - loss: 7.5, learning_rate: 2e-06, global_step: 40, max_memory_allocated: 12.5,
        interval_runtime: 2.5, interval_samples_per_second: 16.0, interval_steps_per_second: 4.0
    [    INFO] - eval_loss: 7.25, eval_ppl: 1408.1, eval_runtime: 3.0, epoch: 1.0
    global step 40, loss: 7.5, lm_loss: 6.9, speed: 2.88 steps/s, ips: 92.20 seqs/s, lr: ..
    valid step 40, batch: 10, loss: 7.25, ips: 135 seqs/s
    [TRAIN] epoch: 1, iter: 40/500, loss: 2.0, lr: 0.01, batch_cost: 0.5, ips: ..
    epoch: [0/1], batch: [40/500], loss: 7.5, avg_batch_cost: 0.5 sec, speed: 2.0 step/s,
        ips_total: 16000 tokens/s, ips: 2000 tokens/s, learning rate: 2.7e-08

The Trainer's memory is in 1024**3 bytes of one card; interval_runtime spans the steps since the
line before, which the rate of steps gives. `ips` is the job's rate in sequences a second; beside
ips_total it is one card's in tokens, and beside a batch_cost alone one card's in samples (raw).

>>> from loganalyze_parsers.samples import rows_of
>>> rows_of(DIALECT, "loss: 7.5, learning_rate: 2e-06, global_step: 40, interval_runtime: 2.5, "
...                  "interval_steps_per_second: 4.0")[-1]
(40, {'loss': 7.5, 'lr': 2e-06, 'raw/interval_runtime': 2.5, 'step_time_s': 0.25})
"""

from __future__ import annotations

from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.numbers import NUMBER
from loganalyze_parsers.pairs import PairFormat, PairReader

_GIB = 1024.0**3
_PAIR = lazy.pattern(rf"([A-Za-z_][\w ]{{0,80}}?): ?({NUMBER})(?=[\s,}}]|$)")
_RATE = "raw/interval_steps_per_second"
_NAMES = {
    "loss": ("loss", 1.0),
    "ppl": ("perplexity", 1.0),
    "lr": ("lr", 1.0),
    "learning_rate": ("lr", 1.0),
    "learning rate": ("lr", 1.0),
    "global_norm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "loss_scaling": ("loss_scale", 1.0),
    "found_inf": ("skipped_steps", 1.0),
    "epoch": ("epoch", 1.0),
    "current_memory_allocated": ("mem_allocated_bytes", _GIB),
    "current_memory_reserved": ("mem_reserved_bytes", _GIB),
    "max_memory_allocated": ("mem_peak_allocated_bytes", _GIB),
    "max_memory_reserved": ("mem_peak_reserved_bytes", _GIB),
    "interval_samples_per_second": ("samples_per_s", 1.0),
    "interval_tokens_per_second_per_device": ("tokens_per_s_per_gpu", 1.0),
    "interval_hardware_tflops_per_device": ("tflops_per_gpu", 1.0),
    "interval_steps_per_second": (_RATE, 1.0),
    "speed": (_RATE, 1.0),
    "batch_cost": ("step_time_s", 1.0),
    "avg_batch_cost": ("step_time_s", 1.0),
    "reader_cost": ("data_time_s", 1.0),
    "avg_reader_cost": ("data_time_s", 1.0),
}
_EVALUATED = {"loss": ("val_loss", 1.0), "eval_loss": ("val_loss", 1.0)}


def _timed(values: dict[str, float]) -> dict[str, float]:
    """A step's time from the rate of steps; over an interval, from its whole number of steps."""
    rate, span = values.pop(_RATE, 0.0), values.get("raw/interval_runtime", 0.0)
    if rate > 0:
        steps = max(1, round(span * rate))
        values.setdefault("step_time_s", span / steps if span > 0 else 1.0 / rate)
    return values


_TRAINER = PairFormat(
    start=lazy.pattern(r"\blearning_rate: \S{1,40}, global_step: (?P<step>\d+)(?=,)"),
    pair=_PAIR, names=_NAMES, whole_line=True, mend=_timed,
    dropped=frozenset({"global_step", "progress_or_epoch"}),
)  # fmt: skip
_SCRIPT = PairFormat(
    start=lazy.pattern(r"\bglobal step (?P<step>\d+), (?=epoch|batch|loss)"),
    pair=_PAIR, names=_NAMES, mend=_timed, dropped=frozenset({"batch", "epoch", "ips"}),
)  # fmt: skip
_VALID = PairFormat(
    start=lazy.pattern(r"\bvalid step (?P<step>\d+), "),
    pair=_PAIR, names=_EVALUATED, dropped=frozenset({"batch", "ips"}),
)  # fmt: skip
_METER = PairFormat(
    start=lazy.pattern(
        r"\bepoch: \[?\d+(?:/\d+)?\]?, (?:global_step|iter|batch): \[?(?P<step>\d+)(?:/\d+)?\]?, "
    ),
    pair=_PAIR, names=_NAMES, mend=_timed,
)  # fmt: skip
_IPS = lazy.pattern(rf"\b(ips|ips_total): ({NUMBER}) (seqs|sequences|samples|tokens)/s")
_EVALUATION = PairFormat(
    start=lazy.pattern(r"\beval_loss: (?=\S)"),
    pair=_PAIR, names=_EVALUATED, whole_line=True, dropped=frozenset({"epoch"}),
)  # fmt: skip


_MARKERS = (
    "global_step: ", "global step ", "valid step ", "batch_cost: ", "eval_loss: ",
    "train_runtime: ",
)  # fmt: skip


class PaddleReader(PairReader):
    """Remembers the last step, at which an evaluation is made."""

    def __init__(self) -> None:
        """Nothing seen."""
        super().__init__((_TRAINER, _SCRIPT, _VALID))
        self._meters = PairReader((_METER,))
        self._evaluations = PairReader((_EVALUATION,))
        self._step: int | None = None

    def feed(self, line: Line) -> Taken | None:
        """A line of training, of a meter, or of an evaluation."""
        text = line.text
        taken = super().feed(line)
        if taken is None and "batch_cost: " in text:
            taken = self._meters.feed(line)
        if taken is not None and taken.readings:
            self._step = taken.readings[-1].step
            return Taken(readings=[_with_rates(reading, text) for reading in taken.readings])
        if taken is None and "eval_loss: " in text and "eval_runtime: " in text:
            return self._evaluation(line)
        if taken is None and "train_runtime: " in text and "train_loss: " in text:
            return Taken(ignored="summary of the training")
        return taken

    def _evaluation(self, line: Line) -> Taken | None:
        taken = self._evaluations.feed(line)
        if taken is None or not taken.readings:
            return taken
        return Taken(readings=[replace(reading, step=self._step) for reading in taken.readings])


def _with_rates(reading: Reading, text: str) -> Reading:
    """The rates of a line: what they count stands behind them."""
    found = {name: (float(raw.replace(",", "")), unit) for name, raw, unit in _IPS.findall(text)}
    if not found:
        return reading
    values = {key: value for key, value in reading.values.items() if not key.startswith("raw/ips")}
    total, rate = found.get("ips_total"), found.get("ips")
    if total is not None and total[1] == "tokens":
        values["tokens_per_s"] = total[0]
    if rate is not None:
        card = "tokens_per_s_per_gpu" if total is not None else "raw/ips (tokens)"
        counted = "raw/ips (samples)" if "batch_cost: " in text else "samples_per_s"
        values[card if rate[1] == "tokens" else counted] = rate[0]
    return replace(reading, values=values)


DIALECT = Dialect(
    name="paddle",
    markers=_MARKERS,
    reader=PaddleReader,
)
