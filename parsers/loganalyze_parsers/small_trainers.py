"""One line a step: nanotron, MaxText, MLX, tinygrad, llama.cpp, mmengine, MAE.

    iteration: 40 / 1000 | consumed_tokens: 634K | lm_loss: 10.6
    DLL 2031-04-02 10:11:12.3 - Training Epoch: 0 Training Iteration: 40  step_loss : 2.05
    completed step: 40, seconds: 4.01, TFLOP/s/device: 201.3, Tokens/s/device: 6543.2, loss: 7.123
    Iter 40: Train loss 1.234, It/sec 0.98, Tokens/sec 387.7, Peak mem 8.1 GB
       40 4.32 s run, 11.8750 loss, 0.000000000001 LR, 1454.57 GB used, 401488.40 GFLOPS
    Epoch(train) [1][  40/735]  lr: 1.0e-05  time: 1.2  data_time: 0.01  memory: 34123  loss: 1.2
    Epoch: [0]  [340/1504]  lr: 0.000030  closs: 1.2272 (1.3119)  grad_norm: 2.4 (3.0)  time: 4.57

nanotron abbreviates to three significant digits, so its loss moves in steps; MLX counts 1 GB as
1e9 bytes; what MAE prints in brackets is a mean since the start and is left out.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "Epoch(train) [1][  40/735]  lr: 1.0e-05  time: 1.2  memory: 34123  loss: 1.25"
>>> step, values = rows_of(DIALECTS[-1], line)[-1]
>>> step, values["loss"], values["step_time_s"], values["mem_peak_allocated_bytes"]
(40, 1.25, 1.2, 35780558848.0)
"""

from __future__ import annotations

from msgspec.structs import replace

from loganalyze import lazy
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import PairFormat, PairReader, pair_dialect

_N = r"[-+]?(?:nan|inf|NaN|[\d.,]+(?:[eE][-+]?\d+)?)"

_NANOTRON = PairFormat(
    start=lazy.pattern(r"\biteration: (?P<step>\d+) / \d+ \| (?=consumed_)"),
    pair=lazy.pattern(rf"([a-z_]{{1,80}}): ({_N}[KMGBTP]?)"),
    names={
        "consumed_tokens": ("tokens_seen", 1.0),
        "elapsed_time_per_iteration_ms": ("step_time_s", 1e-3),
        "time_per_iteration_ms": ("step_time_s", 1e-3),
        "tokens_per_sec": ("tokens_per_s", 1.0),
        "tokens_per_sec_per_gpu": ("tokens_per_s_per_gpu", 1.0),
        "global_batch_size": ("global_batch_size", 1.0),
        "lm_loss": ("loss", 1.0),
        "lr": ("lr", 1.0),
        "model_tflops_per_gpu": ("tflops_per_gpu", 1.0),
        "grad_norm": ("grad_norm", 1.0),
        "cuda_memory_allocated": ("mem_allocated_bytes", 1.0),
        "cuda_max_memory_reserved": ("mem_peak_reserved_bytes", 1.0),
    },
    dropped=frozenset({"eta"}),
)
#: NVIDIA's DLLogger, as its examples of BERT use it.
_DLLOGGER = PairFormat(
    start=lazy.pattern(
        r"\bDLL \d{4}-\S{1,40} \S{1,40} - .{0,80}?Training Iteration: (?P<step>\d+) "
    ),
    pair=lazy.pattern(rf"([a-z_]{{1,80}}) : ({_N})"),
    names={
        "step_loss": ("loss", 1.0),
        "learning_rate": ("lr", 1.0),
        "average_loss": ("raw/average_loss", 1.0),
    },
)
_MAXTEXT = PairFormat(
    start=lazy.pattern(r"\bcompleted step: (?P<step>\d+), "),
    pair=lazy.pattern(rf"([\w/]{{1,120}}): ({_N})"),
    names={
        "seconds": ("step_time_s", 1.0),
        "TFLOP/s/device": ("tflops_per_gpu", 1.0),
        "TFLOP/s": ("tflops_per_gpu", 1.0),
        "Tokens/s/device": ("tokens_per_s_per_gpu", 1.0),
        "loss": ("loss", 1.0),
        "perplexity": ("perplexity", 1.0),
        "lm_loss": ("aux_loss/lm", 1.0),
    },
)
_MAXTEXT_EVALUATION = PairFormat(
    start=lazy.pattern(r"\beval metrics after step: (?P<step>\d+), "),
    pair=lazy.pattern(rf"([\w/]{{1,120}})=({_N})"),
    names={"loss": ("val_loss", 1.0)},
)
_MLX = PairFormat(
    start=lazy.pattern(r"\bIter (?P<step>\d+): (?=(?:Train|Val) loss)"),
    pair=lazy.pattern(
        r"(Train loss|Val loss|Learning Rate|It/sec|Tokens/sec|Trained Tokens|Peak mem|Val took|"
        r"Total rewards mean|Total rewards std|KL)"
        rf" ?({_N})"
    ),
    names={
        "Train loss": ("loss", 1.0),
        "Val loss": ("val_loss", 1.0),
        "Learning Rate": ("lr", 1.0),
        "Tokens/sec": ("tokens_per_s", 1.0),
        "Trained Tokens": ("tokens_seen", 1.0),
        "Peak mem": ("mem_peak_allocated_bytes", 1e9),
        "It/sec": ("raw/It/sec", 1.0),
        "Total rewards mean": ("reward", 1.0),
        "Total rewards std": ("reward_std", 1.0),
        "KL": ("kl", 1.0),
    },
    mend=lambda values: _from_rate(values, "raw/It/sec"),
)
_TINYGRAD = PairFormat(
    start=lazy.pattern(
        rf"^\s*(?P<step>\d+) (?P<time>{_N}) s run, (?P<loss>{_N}) loss, (?P<lr>{_N}) LR, "
        rf"(?P<used>{_N}) GB used, +(?P<gflops>{_N}) GFLOPS"
    ),
    pair=lazy.pattern(r"(?!)(.)(.)"),
    names={
        "time": ("step_time_s", 1.0),
        "loss": ("loss", 1.0),
        "lr": ("lr", 1.0),
        "used": ("mem_used_bytes", 1e9),
        "gflops": ("raw/gflops", 1.0),
    },
)
_LLAMACPP = PairFormat(
    start=lazy.pattern(r"^(?:train|val): \[[^\]]*\] data=\d+/\d+ (?=loss=)"),
    pair=lazy.pattern(rf"(loss|acc)=({_N})"),
    names={"loss": ("loss", 1.0), "acc": ("token_accuracy", 0.01)},
)
_MM_NAMES = {
    "loss": ("loss", 1.0),
    "total_loss": ("loss", 1.0),
    "closs": ("loss", 1.0),
    "lr": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "time": ("step_time_s", 1.0),
    "data_time": ("data_time_s", 1.0),
    "data": ("data_time_s", 1.0),
    "memory": ("mem_peak_allocated_bytes", 1024.0**2),
    "max mem": ("mem_peak_allocated_bytes", 1024.0**2),
    "max_memory": ("mem_peak_allocated_bytes", 1024.0**3),
    "reserved_memory": ("mem_peak_reserved_bytes", 1024.0**3),
    "tgs": ("tokens_per_s_per_gpu", 1.0),
    # PaddleDetection's meters, whose memory is in 1024**2 bytes
    "learning_rate": ("lr", 1.0),
    "batch_cost": ("step_time_s", 1.0),
    "data_cost": ("data_time_s", 1.0),
    "max_mem_allocated": ("mem_peak_allocated_bytes", 1024.0**2),
    "max_mem_reserved": ("mem_peak_reserved_bytes", 1024.0**2),
}
_MM_PAIR = lazy.pattern(rf"(max mem|[A-Za-z_][\w./]{{0,120}}): ({_N})(?=[\s,]|$)")
_MMENGINE = PairFormat(
    start=lazy.pattern(
        r"\b(?:Epoch {0,9}(?:\(train\))? {0,9}\[(?P<round>\d+)\]|Iter {0,9}(?:\(train\))? {0,9})"
        r"\[ *(?P<step>\d+)/(?P<total>\d+)\]"
    ),
    pair=_MM_PAIR,
    names=_MM_NAMES,
    dropped=frozenset({"eta"}),
)
_MAE = PairFormat(
    start=lazy.pattern(r"\bEpoch: \[(?P<epoch>\d+)\] +\[ *(?P<step>\d+)/(?P<total>\d+)\]"),
    pair=_MM_PAIR,
    names=_MM_NAMES,
    dropped=frozenset({"eta"}),
)
_XTUNER = PairFormat(
    start=lazy.pattern(r"\bEpoch (?P<number>\d+) Step (?P<step>\d+)/\d+ "),
    pair=_MM_PAIR,
    names=_MM_NAMES,
    dropped=frozenset({"eta", "number"}),
)


#: Levanter's bar; its counts are shortened, so a step of `12.3kit` is exact to three digits only.
_LEVANTER = PairFormat(
    start=lazy.pattern(r"\bProgress on:train (?P<step>\d+(?:\.\d+)?[kM]?)it/(?=\S+ rate:)"),
    pair=lazy.pattern(rf"(rate|loss)[:=] ?({_N})"),
    names={"loss": ("loss", 1.0), "rate": ("raw/rate", 1.0)},
)


class LlamaCppReader(PairReader):
    """llama.cpp counts nothing: the n-th line of a set is epoch n of it."""

    def __init__(self) -> None:
        """No epoch yet."""
        super().__init__((_LLAMACPP,))
        self._epochs = {"train": 0, "val": 0}

    def feed(self, line: Line) -> Taken | None:
        """The reading with its epoch as the step."""
        taken = super().feed(line)
        if taken is None or not taken.readings:
            return taken
        dataset = line.text.split(":", 1)[0]
        self._epochs[dataset] += 1
        step, (reading,) = self._epochs[dataset], taken.readings
        values = dict(reading.values)
        if dataset == "val":
            values = {"val_loss": values["loss"]}
        return Taken(readings=[replace(reading, step=step, values=values)])


def _from_rate(values: dict[str, float], rate: str) -> dict[str, float]:
    """A step's time is the inverse of the steps a second."""
    if values.get(rate, 0.0) > 0:
        values["step_time_s"] = 1.0 / values[rate]
    return values


DIALECTS = (
    pair_dialect("levanter", ("Progress on:train",), _LEVANTER, about="Levanter"),
    pair_dialect(
        "nanotron", ("iteration: ",), _NANOTRON, about="nanotron (values of three digits)"
    ),
    pair_dialect("dllogger", ("DLL ",), _DLLOGGER, about="NVIDIA's DLLogger (BERT)"),
    pair_dialect(
        "maxtext",
        ("completed step: ", "eval metrics after step: "),
        _MAXTEXT,
        _MAXTEXT_EVALUATION,
        about="MaxText",
    ),
    pair_dialect("mlx", ("Train loss ", "Val loss "), _MLX, about="MLX and mlx-lm"),
    pair_dialect("tinygrad", (" s run, ",), _TINYGRAD, about="tinygrad"),
    Dialect(
        name="llama_cpp", markers=("data=",), reader=LlamaCppReader, about="llama.cpp fine-tuning"
    ),
    pair_dialect(
        "mmengine",
        ("Epoch", "Iter(train)", "Iter ["),
        _MMENGINE,
        _MAE,
        _XTUNER,
        about="mmengine, xtuner, MAE-style meters",
    ),
)
