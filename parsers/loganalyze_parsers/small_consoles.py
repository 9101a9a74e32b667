"""One line a step, in cells: nanochat, llama2.c, prime-rl, picotron, lingua, InternEvo.

    step 00042/21400 (0.20%) | loss: 6.123456 | dt: 512.50ms | tok/sec: 424,242 | mfu: 45.12
    Step 00250 | Validation bpb: 1.1234
    490 | loss 5.7543 | lr 4.900000e-05 | 806.78ms | mfu 31.21%
    SUCCESS Step 3 | Time: 5.13s | Loss: 12.25 | Grad. Norm: 8.2 | Throughput: 3324 tokens/s
    [rank 0] Step: 7 | Loss: 11.0235 | Global batch size: 1.0M | Tokens/s: 123.4K | MFU: 38.12%
    step: 100  acc: 1  loss:  5.1234  grad: 1.23e+00  flops: 3.21e+14  wps: 4.51e+04  iter:  0.712
    tflops=201.3 step=100 loss=3.1234 tgs (tokens/gpu/second)=4123.1 lr=0.0001 loss_scale=65536.0

nanochat's loss is smoothed over steps, its mfu a percentage without a sign. picotron counts a batch
in tokens and GB as 1e9 bytes; prime-rl's memory is in GiB. lingua's flops and wps
are one GPU's.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "step 00042/21400 (0.20%) | loss: 6.5 | lrm: 1.00 | dt: 512.50ms | mfu: 45.12"
>>> step, values = rows_of(DIALECTS[0], line)[-1]
>>> step, values["loss"], values["step_time_s"], values["mfu"]
(42, 6.5, 0.5125, 0.4512)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_GIB = 1024.0**3
_N = r"[-+]?(?:nan|inf|NaN|[\d.,]+(?:[eE][-+]?\d+)?)"

_NANOCHAT = PairFormat(
    start=lazy.pattern(r"\bstep (?P<step>\d+)(?:/\d+)? \([\d.]{1,9}%\) \| (?=loss: )"),
    pair=lazy.pattern(rf"(?<=\| )([a-z][a-z0-9_/ ]{{0,40}}): ({_N})"),
    names={
        "loss": ("loss", 1.0),
        "grad norm": ("grad_norm", 1.0),
        "lr": ("lr", 1.0),
        "dt": ("step_time_s", 1e-3),
        "tok/sec": ("tokens_per_s", 1.0),
        "mfu": ("mfu", 0.01),
        "bf16_mfu": ("mfu", 0.01),
    },
    dropped=frozenset({"total time", "eta"}),
    whole_line=True,
)
_NANOCHAT_EVALUATION = PairFormat(
    start=lazy.pattern(r"^Step (?P<step>\d+) *[|:] *(?=(?:Validation bpb|CORE metric): )"),
    pair=lazy.pattern(rf"(Validation bpb|CORE metric): ({_N})"),
    names={"Validation bpb": ("raw/val_bpb", 1.0), "CORE metric": ("raw/core_metric", 1.0)},
)
_LLAMA2C = PairFormat(
    start=lazy.pattern(
        rf"^(?P<step>\d+) \| loss (?P<loss>{_N}) \| lr (?P<lr>{_N}) \| (?P<ms>[\d.]+)ms"
        rf"(?: \| mfu (?P<mfu>{_N})%)?"
    ),
    pair=lazy.pattern(r"(?!)(.)(.)"),
    names={
        "loss": ("loss", 1.0),
        "lr": ("lr", 1.0),
        "ms": ("step_time_s", 1e-3),
        "mfu": ("mfu", 0.01),
    },
    mend=lambda values: _without_placeholder(values),
)
_PRIME_PAIR = lazy.pattern(rf"(?<=\| )([A-Z][A-Za-z. ]{{0,40}}): ({_N})")
_PRIME_NAMES = {
    "Loss": ("loss", 1.0),
    "Grad. Norm": ("grad_norm", 1.0),
    "LR": ("lr", 1.0),
    "Entropy": ("entropy", 1.0),
    "Reward": ("reward", 1.0),
    "Throughput": ("tokens_per_s", 1.0),
    "MFU": ("mfu", 0.01),
    "Peak Mem.": ("mem_peak_reserved_bytes", _GIB),
}
_PRIME = PairFormat(
    start=lazy.pattern(r"\bStep (?P<step>\d+) \| (?=Time: [^|]{1,20}\| Loss: )"),
    pair=_PRIME_PAIR,
    names={**_PRIME_NAMES, "Time": ("step_time_s", 1.0)},
    whole_line=True,
)
#: The orchestrator's step runs beside the trainer's, so its time and speed are another's.
_PRIME_ROLLOUTS = PairFormat(
    start=lazy.pattern(r"\bStep (?P<step>\d+) \| (?=Time: [^|]{1,20}\| Reward: )"),
    pair=_PRIME_PAIR,
    names={"Reward": ("reward", 1.0)},
    whole_line=True,
)
_PICOTRON = PairFormat(
    start=lazy.pattern(
        r"\bStep: (?P<step>\d+) *[|,] *"
        r"(?=Loss: [^|,]{1,20}[|,] *(?:LR|GradNorm|Time/step|Global batch size): )"
    ),
    pair=lazy.pattern(rf"([A-Z][A-Za-z/ ]{{1,40}}): +({_N}[KMBT]?)"),
    names={
        "Loss": ("loss", 1.0),
        "LR": ("lr", 1.0),
        "GradNorm": ("grad_norm", 1.0),
        "Time/step": ("step_time_s", 1e-3),
        "Tokens/s": ("tokens_per_s", 1.0),
        "Tok/s": ("tokens_per_s", 1.0),
        "Tokens/s/GPU": ("tokens_per_s_per_gpu", 1.0),
        "Tok/s/GPU": ("tokens_per_s_per_gpu", 1.0),
        "Tokens": ("tokens_seen", 1.0),
        "MFU": ("mfu", 0.01),
        "Memory usage": ("mem_reserved_bytes", 1e9),
        "Memory": ("mem_reserved_bytes", 1e9),
        "Global batch size": ("raw/batch tokens", 1.0),
    },
)
_LINGUA = PairFormat(
    start=lazy.pattern(r"\bstep: *(?P<step>\d+) +acc: *\d+ +(?=loss:)"),
    pair=lazy.pattern(rf"\b([a-z]{{2,20}}): *({_N})"),
    names={
        "loss": ("loss", 1.0),
        "grad": ("grad_norm", 1.0),
        "flops": ("tflops_per_gpu", 1e-12),
        "wps": ("tokens_per_s_per_gpu", 1.0),
        "iter": ("step_time_s", 1.0),
        "data": ("data_time_s", 1.0),
        "lr": ("lr", 1.0),
        "pow": ("gpu_power_w", 1.0),
        "mem": ("raw/mem share", 0.01),
    },
)
_INTERNEVO = PairFormat(
    start=lazy.pattern(rf"\btflops=(?P<tflops>{_N}) step=(?P<step>\d+) (?=loss=)"),
    pair=lazy.pattern(
        rf"([a-z_]{{1,60}}|tgs \(tokens/gpu/second\))=(?:\{{'[^']{{1,60}}': )?({_N})(?=[ ,}}]|$)"
    ),
    names={
        "tflops": ("tflops_per_gpu", 1.0),
        "loss": ("loss", 1.0),
        "tgs (tokens/gpu/second)": ("tokens_per_s_per_gpu", 1.0),
        "lr": ("lr", 1.0),
        "loss_scale": ("loss_scale", 1.0),
        "grad_norm": ("grad_norm", 1.0),
        "num_consumed_tokens": ("tokens_seen", 1.0),
    },
)


def _without_placeholder(values: dict[str, float]) -> dict[str, float]:
    """A negative mfu stands for one that is not measured yet."""
    if values.get("mfu", 0.0) < 0:
        del values["mfu"]
    return values


DIALECTS = (
    pair_dialect(
        "nanochat",
        ("%) | loss: ", "Validation bpb: ", "CORE metric: "),
        _NANOCHAT,
        _NANOCHAT_EVALUATION,
        about="nanochat",
    ),
    pair_dialect("llama2c", (" | loss ",), _LLAMA2C, about="llama2.c"),
    pair_dialect(
        "prime_rl", (" | Time: ",), _PRIME, _PRIME_ROLLOUTS, about="prime-rl's trainer and rollouts"
    ),
    pair_dialect("picotron", ("Global batch size: ",), _PICOTRON, about="picotron"),
    pair_dialect("lingua", (" acc: ",), _LINGUA, about="Meta's lingua"),
    pair_dialect("internevo", ("tflops=",), _INTERNEVO, about="InternEvo and InternLM"),
)
