"""Writes steps as Megatron-LM prints them, on a modelled clock, so that bytes come out alike."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lab.train import BATCH, LENGTH, Step

_START = datetime(2026, 3, 14, 1, 59, 26, tzinfo=UTC)
_NOISE = (
    "/opt/env/lib/python3.12/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the "
    "inputs have requires_grad=True. Gradients will be None",
    "gpu-03:2177:2291 [0] NCCL INFO Channel 00/08 :    0   1   2   3",
    "WARNING:megatron.core.utils:fused kernel not found, falling back to the plain one",
)


@dataclass(slots=True)
class MegatronLog:
    """Lines so far and the clock."""

    total: int
    seed: int
    interval: int = 1
    seconds: float = 0.62
    lines: list[str] = field(default_factory=list)
    now: datetime = _START
    draw: random.Random = field(init=False)
    window: list[tuple[Step, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The clock's jitter has a seed of its own."""
        self.draw = random.Random(self.seed)

    def preamble(self, arguments: dict[str, object]) -> None:
        """Launcher noise, the argument dump, the phases before training."""
        self.lines += ["", "using world size: 8, data-parallel size: 8", *_NOISE]
        rule = "-" * 24
        self._rank0(f"{rule} arguments {rule}")
        for name, value in sorted(arguments.items()):
            self._rank0(f"  {name} {'.' * (48 - len(name))} {value}")
        self._rank0(f"{'-' * 20} end of arguments {'-' * 21}")
        self._rank0("> building train, validation, and test datasets for GPT ...")
        stamp = self.now.strftime("%Y-%m-%d %H:%M:%S")
        self._rank0(f"[before the start of training step] datetime: {stamp} ")

    def step(self, step: Step, extra_seconds: float = 0.0) -> None:
        """Take a step in; prints a line at the end of each interval."""
        seconds = self.seconds * (1 + 0.012 * self.draw.gauss(0, 1)) + extra_seconds
        if step.number == 1:
            seconds += 9.5  # compilation and allocation
        self.now += timedelta(seconds=seconds)
        self.window.append((step, seconds))
        if step.number % self.interval == 0:
            self.lines.append(f"[default7]: {self._training_line()}")
            self.window = []
        if self.draw.random() < 0.01:
            self.lines.append(self.draw.choice(_NOISE))

    def _training_line(self) -> str:
        last = self.window[-1][0]
        seconds = sum(s for _, s in self.window) / len(self.window)
        losses = [s.loss for s, _ in self.window if s.loss is not None]
        loss = sum(losses) / len(losses) if losses else None
        fields = [
            f"iteration {last.number:8d}/{self.total:8d}",
            f"consumed samples: {last.number * BATCH * 8:12d}",
            f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
            f"throughput per GPU (TFLOP/s/GPU): {251.0 * self.seconds / seconds:.1f}",
            f"learning rate: {last.lr:.6E}",
            f"global batch size: {BATCH * 8:5d}",
        ]
        if loss is not None and loss >= 0:  # a NaN compares false, so the field vanishes
            fields.append(f"lm loss: {loss:.6E}")
        fields += [
            f"loss scale: {last.loss_scale:.1f}",
            f"grad norm: {last.grad_norm:.3f}",
            f"params norm: {last.params_norm:.3f}",
            f"number of skipped iterations: {sum(s.skipped for s, _ in self.window):3d}",
            f"number of nan iterations: {0:3d}",
        ]
        stamp = self.now.strftime("%Y-%m-%d %H:%M:%S.%f")
        return f" [{stamp}] " + " | ".join(fields) + " |"

    def memory(self, step: int) -> None:
        """The memory report after the first steps."""
        self._rank0(
            f"[Rank 0] (after {step} iterations) memory (MB) | allocated: 20310.25 | "
            "max allocated: 33124.50 | reserved: 35210.00 | max reserved: 35210.00"
        )

    def timers(self) -> None:
        """A timer block."""
        self.lines.append("[default7]:(min, max) time across ranks (ms):")
        for name, share in (("forward-compute", 0.3), ("backward-compute", 0.58)):
            low = self.seconds * share * 1000
            high = low * (1.01 + 0.01 * self.draw.random())
            self.lines.append(f"[default7]:    {name} {'.' * (48 - len(name))}: "
                              f"({low:.2f}, {high:.2f})")  # fmt: skip

    def validation(self, step: int, loss: float) -> None:
        """A validation line between dashes."""
        text = (
            f" validation loss at iteration {step} | lm loss value: {loss:.6E} | "
            f"lm loss PPL: {math.exp(min(20, loss)):.6E} | "
        )
        rule = "-" * len(text)
        self.lines += [f"[default7]:{part}" for part in (rule, text, rule)]

    def saved(self, step: int, confirmed: bool = True) -> None:
        """A checkpoint: begun, and confirmed if it was."""
        self._rank0(f"saving checkpoint at iteration {step:7d} to /ckpt/tiny in torch_dist format")
        self.now += timedelta(seconds=4)
        if confirmed:
            self._rank0(f"  successfully saved checkpoint from iteration {step:7d} to /ckpt/tiny")

    def loaded(self, step: int) -> None:
        """A checkpoint load at a new start."""
        self.now += timedelta(minutes=11)
        self._rank0(f" loading checkpoint from /ckpt/tiny at iteration {step}")
        self._rank0(
            f"  successfully loaded checkpoint from /ckpt/tiny [ t 0/1, p 0/1 ] at iteration {step}"
        )

    def raw(self, lines: Sequence[str]) -> None:
        """Lines of other makes."""
        self.lines += lines

    def text(self) -> str:
        """The whole log."""
        return "\n".join(self.lines) + "\n"

    def _rank0(self, text: str) -> None:
        self.lines.append(f"[default0]:{text}")


ARGUMENTS: dict[str, object] = {
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "clip_grad": 1.0,
    "global_batch_size": BATCH * 8,
    "hidden_size": 64,
    "log_interval": 1,
    "lr": 0.002,
    "lr_decay_style": "cosine",
    "micro_batch_size": BATCH,
    "num_attention_heads": 4,
    "num_layers": 2,
    "padded_vocab_size": 256,
    "pipeline_model_parallel_size": 1,
    "seq_length": LENGTH,
    "tensor_model_parallel_size": 1,
    "weight_decay": 0.01,
    "world_size": 8,
}
