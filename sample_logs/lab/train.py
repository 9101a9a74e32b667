"""The training loop: Adam, warm-up and cosine, clipping, checkpoints, a hook for faults."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lab.model import LENGTH, TinyGPT
from lab.text import corpus

BATCH = 64


@dataclass(frozen=True, slots=True)
class Step:
    """What one step left behind; a skipped step has neither loss nor gradient norm."""

    number: int
    loss: float | None
    grad_norm: float | None
    lr: float
    loss_scale: float
    skipped: bool
    params_norm: float


@dataclass(slots=True)
class Scaler:
    """Dynamic loss scaling as Megatron does it: halve on overflow once the hysteresis is spent."""

    scale: float = 1.0
    hysteresis: int = 2
    left: int = 2
    dynamic: bool = False

    def overflows(self, largest: float) -> bool:
        """Whether the scaled gradient leaves float16's range; adjusts the scale if it does."""
        if not self.dynamic or largest * self.scale <= 65504:
            return False
        self.left -= 1
        if self.left <= 0:
            self.scale /= 2
        return True


@dataclass(slots=True)
class Trainer:
    """State of a training run; everything follows from the seed."""

    seed: int
    total: int
    peak_lr: float = 2e-3
    clip: float = 1.0
    advanced: int = 0  # steps not skipped: what the learning rate follows
    scaler: Scaler = field(default_factory=Scaler)
    model: TinyGPT = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    data: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Model, optimizer and data from the seed."""
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        self.model = TinyGPT()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.peak_lr, betas=(0.9, 0.99), weight_decay=0.01
        )
        text = corpus(self.seed, 20_000)
        self.data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def lr(self, step: int) -> float:
        """Linear warm-up over 2 %, cosine to a tenth."""
        warmup = max(1, self.total // 50)
        if step <= warmup:
            return self.peak_lr * step / warmup
        done = (step - warmup) / (self.total - warmup)
        return self.peak_lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))

    def batch(self, step: int, held_out: bool = False) -> torch.Tensor:
        """The batch of a step: the same step always gets the same bytes."""
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step + (10**9 * held_out))
        border = len(self.data) * 9 // 10
        low, high = (border, len(self.data)) if held_out else (0, border)
        starts = torch.randint(low, high - LENGTH - 1, (BATCH,), generator=draw)
        return torch.stack([self.data[s : s + LENGTH] for s in starts.tolist()])

    def step(self, number: int) -> Step:
        """One optimizer step."""
        lr = self.lr(self.advanced + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        loss = self.model.loss(self.batch(number))
        loss.backward()  # type: ignore[no-untyped-call]
        parameters = list(self.model.parameters())
        largest = max(float(p.grad.abs().max()) for p in parameters if p.grad is not None)
        if self.scaler.overflows(largest):
            held = self.lr(self.advanced)
            return Step(number, None, None, held, self.scaler.scale, True, self.params_norm())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.clip))
        self.optimizer.step()
        self.advanced += 1
        scale, params = self.scaler.scale, self.params_norm()
        return Step(number, float(loss.detach()), norm, lr, scale, False, params)

    def params_norm(self) -> float:
        """Norm of all parameters together."""
        squares = (float(p.detach().pow(2).sum()) for p in self.model.parameters())
        return math.sqrt(sum(squares))

    def validation_loss(self) -> float:
        """Mean loss of eight held-out batches."""
        with torch.no_grad():
            losses = [float(self.model.loss(self.batch(k, held_out=True))) for k in range(8)]
        return sum(losses) / len(losses)

    def state(self) -> dict[str, Any]:
        """A checkpoint."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return copy.deepcopy({**parts, "advanced": self.advanced})

    def load(self, state: dict[str, Any]) -> None:
        """Back to a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.advanced = state["advanced"]


Fault = Callable[[Trainer, int], None]


def steps(trainer: Trainer, first: int, last: int, fault: Fault | None = None) -> Iterator[Step]:
    """Steps first to last; the fault, if any, has its hand in before each of them."""
    for number in range(first, last + 1):
        if fault is not None:
            fault(trainer, number)
        yield trainer.step(number)


def shrinking_second_moment(first: int, last: int, factor: float) -> Fault:
    """Adam's second moments shrink before each step first to last, so its steps grow too long.

    The sharpest directions begin to swing: the gradient norm shows it before the loss does.
    """

    def fault(trainer: Trainer, number: int) -> None:
        if first <= number <= last:
            for state in trainer.optimizer.state.values():
                state["exp_avg_sq"].mul_(factor)

    return fault


def exploding_layer(at: int, factor: float) -> Fault:
    """One feed-forward layer grows every step, its output rounded to float16, until it is Inf."""

    def fault(trainer: Trainer, number: int) -> None:
        block = trainer.model.blocks[0]
        block.half = True
        if number >= at:
            with torch.no_grad():
                block.down.weight.mul_(factor)
                block.down.bias.mul_(factor)

    return fault
