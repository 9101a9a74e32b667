"""The training loop: AdamW, schedule, clipping, replicas, checkpoints, with room for a fault."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.data import Data
from benchmarks.faultlab.injection import Ended, Injection
from benchmarks.faultlab.memory import DeviceFull, Memory
from benchmarks.faultlab.model import LabGPT, cross_entropy
from benchmarks.faultlab.recipe import Recipe, StepRecord
from benchmarks.faultlab.schedule import Scaler, learning_rate
from benchmarks.faultlab.text import prose
from loganalyze.replay.recorder import Open, Recorder

_EVALUATIONS = 6  # batches


class Alone:
    """The exchange of a run with one process. `ranks.Gloo` is that of several."""

    rank = 0
    world = 1

    def average(self, parameters: list[Tensor], *, joined: bool) -> None:
        """Replace the gradients by their mean over all ranks, on those that are joined."""

    def gather(self, *values: float) -> list[tuple[float, ...]]:
        """Every rank's values, by rank."""
        return [values]


class Exchange(Protocol):
    """How the processes of a run speak with each other."""

    rank: int
    world: int

    def average(self, parameters: list[Tensor], *, joined: bool) -> None:
        """As of Alone."""

    def gather(self, *values: float) -> list[tuple[float, ...]]:
        """As of Alone."""


class Trainer:
    """State of a run; everything follows from the recipe and the injection."""

    def __init__(
        self, recipe: Recipe, injection: Injection, clock: Clock, exchange: Exchange | None = None
    ) -> None:
        """Builds model, optimizer and data."""
        torch.set_num_threads(1)
        self.exchange = exchange or Alone()
        self.recipe, self.injection, self.clock = recipe, injection, clock
        self.data = Data(recipe, prose(recipe.seed, recipe.sentences))
        self.memory = Memory(recipe.seed)
        self.size = self.share = 1.0  # tokens of the step, of the micro-batch, beside the usual
        self.extra: dict[str, float] = {}
        self.joined = True  # whether this rank takes the mean of all gradients
        self.empty_is_nan = True
        self.balance_weight = recipe.balance
        self.recorder: Recorder | None = None
        self.opened: Open | None = None
        self.scale_loss = 1.0 / recipe.accumulation
        self.build()

    def build(self) -> None:
        """A new process: fresh weights, optimizer and scaler."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed)
        self.model = LabGPT(recipe)
        self.optimizer = self.new_optimizer()
        half = recipe.precision == "fp16"
        self.scaler = Scaler(scale=recipe.loss_scale if half else 1.0, dynamic=half)
        self.advanced = 0
        self.injection.built(self)
        self.round_weights()

    def new_optimizer(self) -> torch.optim.AdamW:
        """Without any state."""
        recipe = self.recipe
        return torch.optim.AdamW(
            self.model.parameters(), lr=recipe.peak_lr, betas=recipe.betas, eps=recipe.eps,
            weight_decay=recipe.weight_decay, fused=True,
        )  # fmt: skip

    @property
    def parameters(self) -> list[Tensor]:
        """Those that train."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def step(self, number: int) -> StepRecord:
        """One optimizer step. Raises Ended."""
        lr = self._set_rate(number)
        self.begin(number)
        self.opened = self.recorder.step(number) if self.recorder else None
        loss = self._passes(number)
        self.injection.backward_done(self, number)
        self._synchronise()
        norm, skipped = self._advance()
        if self.opened is not None:
            with self.opened as opened:
                opened.log(loss=loss, grad_norm=norm)
        with self.clock.phase("after"):
            self.injection.after(self, number)
        return self.record(number, loss, norm, lr, skipped)

    def begin(self, number: int) -> None:
        """A step begins; the place of waits for data."""
        self.size, self.extra = 0.0, {}
        with self.clock.phase("data"):
            self.injection.before(self, number)

    def rate(self, number: int) -> float:
        """The learning rate of a step: the schedule's, unless the fault has its way."""
        return self.injection.rate(self, number, learning_rate(self.recipe, self.advanced + 1))

    def _set_rate(self, number: int) -> float:
        lr = self.rate(number)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _passes(self, number: int) -> float:
        """Forward and backward over the step's micro-batches; the loss as the trainer logs it."""
        self.optimizer.zero_grad()
        logged = 0.0
        for micro in range(self.recipe.accumulation):
            loss = self.forward_loss(number, micro)
            if loss.requires_grad:
                with self.clock.phase("backward", self.share):
                    (loss * self.scale_loss).backward()  # type: ignore[no-untyped-call]
            logged += float(loss.detach()) * self.scale_loss
        return logged

    def forward_loss(self, number: int, micro: int) -> Tensor:
        """Load a micro-batch and run the model on it: what is to be differentiated."""
        with self.clock.phase("data"):
            batch = self.data.batch(number, micro, self.exchange.rank)
            batch = self.injection.batch(self, number, batch)
        size = batch.inputs.numel() / (self.recipe.batch * self.recipe.length)
        self.size = max(self.size, size)
        self.share = size / self.recipe.accumulation
        if self.opened is not None:
            self.opened.add({"inputs": batch.inputs, "targets": batch.targets})
        model = self.model
        with self.clock.phase("forward", self.share):
            loss = cross_entropy(model(batch.inputs), batch.targets, empty_is_nan=self.empty_is_nan)
            balance = model.balance()
            if balance is not None:
                self.extra["load_balancing_loss"] = float(balance.detach())
                loss = loss + self.balance_weight * balance
        return loss

    def _synchronise(self) -> None:
        """Average the replicas' gradients."""
        with self.clock.phase("comm"):
            self.exchange.average(self.parameters, joined=self.joined)

    def _advance(self) -> tuple[float, bool]:
        """Scale, clip and step; the gradient norm before clipping and whether it was skipped."""
        with self.clock.phase("optimizer"):
            parameters = [p for p in self.parameters if p.grad is not None]
            grads = [p.grad for p in parameters if p.grad is not None]
            largest = max((float(g.abs().max()) for g in grads), default=0.0)
            finite = largest == largest and largest != float("inf")
            if self.scaler.overflows(largest if finite else float("inf")):
                return 0.0, True
            limit = self.recipe.clip or float("inf")
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit)) if parameters else 0.0
            self.optimizer.step()
            self.advanced += 1
            self.round_weights()
        return norm, False

    def round_weights(self) -> None:
        """Without float32 master copies every update is rounded to bfloat16 and may vanish."""
        if self.recipe.master:
            return
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(p.bfloat16().float())

    def record(
        self, number: int, loss: float, norm: float, lr: float, skipped: bool
    ) -> StepRecord:
        """What the step leaves behind; the clock moves on. Raises Ended when memory is full."""
        try:
            allocated, reserved = self.memory.step(self.size)
            self.memory.check()
        except DeviceFull as full:
            raise Ended("oom", self.memory.oom_text(full.want)) from full
        busiest = [experts.busiest for _, experts in self.model.mixtures()]
        if busiest:
            self.extra["moe_max_load"] = max(busiest)
        recipe, phases = self.recipe, self.clock.end_step()
        ranks = self.exchange.gather(loss, norm, sum(phases.values()))
        return StepRecord(
            number=number, loss=sum(r[0] for r in ranks) / len(ranks), grad_norm=norm, lr=lr, loss_scale=self.scaler.scale,
            skipped=skipped, params_norm=self.params_norm(), epoch=self.data.epoch(number),
            tokens=int(recipe.global_batch * recipe.length * self.size),
            seconds=max(r[2] for r in ranks), phases=phases,
            ranks=tuple(ranks) if len(ranks) > 1 else (), allocated=allocated, reserved=reserved,
            host=self.memory.host(), extra=dict(self.extra),
        )  # fmt: skip

    def params_norm(self) -> float:
        """Norm of all parameters together."""
        return float(torch.nn.utils.get_total_norm([p.detach() for p in self.model.parameters()]))

    def validation_loss(self) -> float:
        """Mean loss of held-out batches."""
        with torch.no_grad():
            batches = [self.data.held_out(k) for k in range(_EVALUATIONS)]
            losses = [float(cross_entropy(self.model(b.inputs), b.targets)) for b in batches]
        return sum(losses) / len(losses)

    def state(self) -> dict[str, Any]:
        """A checkpoint."""
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "advanced": self.advanced,
            "scaler": self.scaler,
        }
        return copy.deepcopy(parts)

    def load(self, state: dict[str, Any]) -> None:
        """Into a process that was just built; a missing optimizer stays fresh."""
        state = self.injection.loading(self, copy.deepcopy(state))
        self.model.load_state_dict(state["model"])
        if state.get("optimizer"):
            self.optimizer.load_state_dict(state["optimizer"])
        self.advanced, self.scaler = state["advanced"], state["scaler"]
