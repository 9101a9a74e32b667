"""nanoGPT, build-nanogpt and llm.c: short console lines and their one-value-a-line logs.

    iter 40: loss 3.2101, time 211.43ms, mfu 31.20%
    step 250: train loss 3.1002, val loss 3.2204
    step    40 | loss: 5.123456 | lr 1.2e-04 | norm: 0.9123 | dt: 512.33ms | tok/sec: 1023456.78
    step   40/19560 | loss 5.12 (+1.3z)| norm 0.91 (-0.2z)| lr 1.2e-04 | 512.3 ms | 61.2% bf16 MFU
    40 train 5.123456
    s:40 trl:5.12 lr:0.000123 norm:0.91

An mfu of -100 % stands for "not measured yet". The train loss of an evaluation is an estimate on
other batches, not a step's loss.

>>> from loganalyze_parsers.samples import rows_of
>>> step, values = rows_of(DIALECT, "iter 40: loss 3.2101, time 211.50ms, mfu 31.25%")[-1]
>>> step, values["loss"], values["step_time_s"], values["mfu"]
(40, 3.2101, 0.2115, 0.3125)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.generic_pairs import values_of
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_NAMES = {
    "loss": ("loss", 1.0),
    "trl": ("loss", 1.0),
    "train": ("loss", 1.0),
    "tel": ("val_loss", 1.0),
    "val": ("val_loss", 1.0),
    "val loss": ("val_loss", 1.0),
    "validation loss": ("val_loss", 1.0),
    "train loss": ("raw/train loss estimate", 1.0),
    "lr": ("lr", 1.0),
    "norm": ("grad_norm", 1.0),
    "time": ("step_time_s", 1e-3),
    "dt": ("step_time_s", 1e-3),
    "step time": ("step_time_s", 1e-3),
    "ms": ("step_time_s", 1e-3),
    "mfu": ("mfu", 0.01),
    "tok/sec": ("tokens_per_s", 1.0),
    "tok/s": ("tokens_per_s", 1.0),
}
_NUMBER = r"[-+]?(?:nan|inf|[\d.,]+(?:[eE][-+]?\d+)?)"


def _mend(values: dict[str, float]) -> dict[str, float]:
    """Negative mfu is a placeholder of the first iterations."""
    if values.get("mfu", 0.0) < 0:
        del values["mfu"]
    return values


_ITER = PairFormat(
    start=lazy.pattern(r"\biter (?P<step>\d+): (?=loss )"),
    pair=lazy.pattern(rf"(?:\A|(?<=[,:|] ))(loss|time|mfu) ({_NUMBER})(?:ms|%)?"),
    names=_NAMES,
    mend=_mend,
    others=values_of,
)
_EVALUATION = PairFormat(
    start=lazy.pattern(r"\bstep (?P<step>\d+): (?=train loss )"),
    pair=lazy.pattern(rf"(train loss|val loss) ({_NUMBER})"),
    names=_NAMES,
)
_BARS = PairFormat(
    start=lazy.pattern(
        r"\bstep(?<![Vv]al step)(?<![Tt]est step) +(?P<step>\d+)(?:/\d+)? *\| *(?=(?:train )?loss)"
    ),
    pair=lazy.pattern(rf"(?<!\w)(loss|lr|norm|dt|step time|tok/sec):? +({_NUMBER})(?:ms)?"),
    names=_NAMES,
    others=values_of,
)
_LLMC_CONSOLE = PairFormat(
    start=lazy.pattern(
        rf"\bstep +(?P<step>\d+)/\d+ \| loss (?P<loss>{_NUMBER}) \([^)]*\)\| norm "
        rf"(?P<norm>{_NUMBER}) \([^)]*\)\| lr (?P<lr>{_NUMBER}) \| (?P<ms>[\d.]+) ms"
        rf"(?: \| (?P<mfu>[-\d.]+)% \w+ MFU)?(?: \| (?P<toks>[\d.]+) tok/s)?"
    ),
    pair=lazy.pattern(r"(?!)(.)(.)"),
    names={**_NAMES, "toks": ("tokens_per_s", 1.0)},
    mend=_mend,
)
_ONE_VALUE = PairFormat(
    start=lazy.pattern(r"^(?P<step>\d+) (?=(?:train|val|hella) [\d.naif-]+$)"),
    pair=lazy.pattern(rf"(train|val|hella) ({_NUMBER})"),
    names={**_NAMES, "hella": ("raw/hellaswag", 1.0)},
)
_MAIN_LOG = PairFormat(
    start=lazy.pattern(r"^s:(?P<step>\d+) (?=(?:tel|trl|eval):)"),
    pair=lazy.pattern(rf"(tel|trl|eval|lr|norm):({_NUMBER})"),
    names={**_NAMES, "eval": ("raw/hellaswag", 1.0)},
)
_VALIDATION = PairFormat(
    start=lazy.pattern(r"^(?=(?:validation loss:|val loss) [\d.]+$)"),
    pair=lazy.pattern(rf"(validation loss|val loss):? ({_NUMBER})"),
    names=_NAMES,
)
_HELLASWAG = PairFormat(
    start=lazy.pattern(r"^HellaSwag accuracy: \d+/\d+(?==)"),
    pair=lazy.pattern(rf"(=)({_NUMBER})"),
    names={"=": ("raw/hellaswag", 1.0)},
)

DIALECT = pair_dialect(
    "nanogpt",
    (
        "iter ", "step ", " train ", " val ", " hella ", "s:", "validation loss", "val loss",
        "HellaSwag",
    ),
    _ITER, _EVALUATION, _LLMC_CONSOLE, _BARS, _ONE_VALUE, _MAIN_LOG, _VALIDATION, _HELLASWAG,
    about="nanoGPT, build-nanogpt and llm.c: console lines and log files",
)  # fmt: skip
