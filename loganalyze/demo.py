"""A small run that goes wrong, made by a seeded generator: what `demo` diagnoses.

600 steps as Megatron-LM prints them. The learning rate is raised tenfold at RAISED; the gradient
norm answers within a few steps, then the loss, until it is NaN and the program gives up.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from random import Random

from msgspec import Struct, field

SEED = 20260314
STEPS, RAISED, GIVEN_UP = 600, 420, 475
_NAN_FROM = 462
_WARM_UP, _PEAK_LR, _FACTOR = 40, 3e-4, 10.0
_BATCH, _LENGTH, _RANKS = 256, 2048, 8
_SAVE_EVERY, _EVALUATE_EVERY = 100, 100
_SECONDS, _COMPILATION_S, _SAVE_S = 1.84, 21.0, 9.0
_ARGUMENTS: dict[str, object] = {
    "adam_beta2": 0.95, "bf16": True, "clip_grad": 1.0, "eval_interval": _EVALUATE_EVERY,
    "global_batch_size": _BATCH, "hidden_size": 2048, "lr": _PEAK_LR, "lr_decay_style": "cosine",
    "lr_warmup_iters": _WARM_UP, "micro_batch_size": 4, "num_layers": 24,
    "save_interval": _SAVE_EVERY, "seed": 1234, "seq_length": _LENGTH,
    "tensor_model_parallel_size": 1, "train_iters": STEPS, "weight_decay": 0.1,
    "world_size": _RANKS,
}  # fmt: skip


class _Log(Struct):
    """Lines so far, the clock and the draws."""

    draw: Random
    now: datetime = datetime(2026, 3, 14, 22, 4, 9, tzinfo=UTC)
    lines: list[str] = field(default_factory=list)

    def add(self, text: str, rank: int = _RANKS - 1) -> None:
        self.lines.append(f"[default{rank}]: {text}")

    def stamp(self) -> str:
        return self.now.strftime("%Y-%m-%d %H:%M:%S.%f")


def demo_log(seed: int = SEED) -> str:
    """The log as text; the same for the same seed, on every machine."""
    log = _Log(Random(seed))
    _launch(log)
    for step in range(1, GIVEN_UP + 1):
        _step(log, step)
        if step % _EVALUATE_EVERY == 0:
            _evaluation(log, step)
        if step % _SAVE_EVERY == 0:
            _save(log, step)
    _end(log)
    return "\n".join(log.lines) + "\n"


def learning_rate(step: int) -> float:
    """Warm-up, cosine to a tenth, and the mistake: tenfold from RAISED on."""
    if step <= _WARM_UP:
        return _PEAK_LR * step / _WARM_UP
    share = (step - _WARM_UP) / (STEPS - _WARM_UP)
    rate = _PEAK_LR * (0.55 + 0.45 * math.cos(math.pi * share))
    return rate * (_FACTOR if step >= RAISED else 1.0)


def _launch(log: _Log) -> None:
    log.add(f"using world size: {_RANKS}, data-parallel size: {_RANKS}, "
            "tensor-model-parallel size: 1, pipeline-model-parallel size: 1", 0)  # fmt: skip
    log.add("------------------------ arguments ------------------------", 0)
    for name, value in _ARGUMENTS.items():
        log.add(f"  {name} {'.' * (48 - len(name))} {value}", 0)
    log.add("-------------------- end of arguments ---------------------", 0)
    log.add("training ...", 0)


def _step(log: _Log, step: int) -> None:
    seconds = _SECONDS * (1 + 0.008 * log.draw.gauss(0, 1)) + (_COMPILATION_S if step == 1 else 0)
    log.now += timedelta(seconds=seconds)
    loss, norm = _measured(log.draw, step)
    fields = [
        f"iteration {step:8d}/{STEPS:8d}",
        f"consumed samples: {step * _BATCH:12d}",
        f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
        f"learning rate: {learning_rate(step):.6E}",
        f"global batch size: {_BATCH:5d}",
        *([] if math.isnan(loss) else [f"lm loss: {loss:.6E}"]),
        "loss scale: 1.0",
        f"grad norm: {norm:.3f}",
        "number of skipped iterations:   0",
        f"number of nan iterations: {int(math.isnan(loss)):3d}",
    ]
    log.add(f"[{log.stamp()}] {' | '.join(fields)} |")


def _measured(draw: Random, step: int) -> tuple[float, float]:
    """Loss and gradient norm: a power law with noise; after RAISED the norm leads by some steps."""
    noise, wobble = draw.gauss(0, 1), draw.gauss(0, 1)
    if step >= _NAN_FROM:
        return math.nan, math.nan
    loss = 2.6 + 8.2 * (step + 4) ** -0.42 + 0.012 * noise
    norm = (0.42 + 2.2 / math.sqrt(step)) * math.exp(0.06 * wobble)
    since = step - RAISED
    if since >= 2:
        norm *= min(400.0, 1.18 ** (since - 1))
    if since >= 8:
        loss += min(6.5, 0.05 * 1.2 ** (since - 8)) * (1 + 0.05 * noise)
    return loss, norm


def _evaluation(log: _Log, step: int) -> None:
    loss = 2.65 + 8.2 * (step + 4) ** -0.42
    log.now += timedelta(seconds=6.1)
    log.add(f" validation loss at iteration {step} | lm loss value: {loss:.6E} | "
            f"lm loss PPL: {math.exp(loss):.6E} | ")  # fmt: skip


def _save(log: _Log, step: int) -> None:
    where = "to /ckpt/demo in torch_dist format"
    log.add(f"saving checkpoint at iteration {step:7d} {where}", 0)
    log.now += timedelta(seconds=_SAVE_S)
    log.add(f"  successfully saved checkpoint from iteration {step:7d} {where}", 0)


def _end(log: _Log) -> None:
    count = GIVEN_UP - _NAN_FROM + 1
    log.lines += [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/opt/train/pretrain.py", line 214, in check_loss',
        '[rank0]:     raise RuntimeError(f"no finite loss for {count} iterations, giving up")',
        f"[rank0]: RuntimeError: no finite loss for {count} iterations, giving up",
    ]
