"""The training loop: AdamW, schedule, clipping, replicas, checkpoints, with room for a fault."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.data import Data
from benchmarks.faultlab.injection import Batch, Ended, Injection
from benchmarks.faultlab.memory import DeviceFull, Memory
from benchmarks.faultlab.model import LabGPT, cross_entropy
from benchmarks.faultlab.recipe import Recipe, StepRecord
from benchmarks.faultlab.schedule import Scaler, learning_rate
from benchmarks.faultlab.text import prose

_EVALUATIONS = 6  # batches


class Trainer:
    """State of a run; everything follows from the recipe and the injection."""

    def __init__(self, recipe: Recipe, injection: Injection, clock: Clock) -> None:
        """Builds model, optimizer and data."""
        torch.set_num_threads(1)
        self.recipe, self.injection, self.clock = recipe, injection, clock
        self.data = Data(recipe, prose(recipe.seed, recipe.sentences))
        self.memory = Memory(recipe.seed)
        self.size = 1.0  # tokens of the present step beside the usual
        self.extra: dict[str, float] = {}
        self.rank_losses: tuple[float, ...] = ()
        self.rank_work: list[float] = []
        self.rank_norms: tuple[float, ...] = ()
        self.shared = True  # whether replicas average all their gradients
        self.empty_is_nan = True
        self.scale_loss = 1.0 / recipe.accumulation
        self.build()

    def build(self) -> None:
        """A new process: fresh weights, optimizer and scaler."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed)
        self.models = [LabGPT(recipe)]
        self.models += [copy.deepcopy(self.models[0]) for _ in range(recipe.replicas - 1)]
        self.optimizers = [self._optimizer(model) for model in self.models]
        half = recipe.precision == "fp16"
        self.scaler = Scaler(scale=recipe.loss_scale if half else 1.0, dynamic=half)
        self.advanced = 0
        self.injection.built(self)
        self._round_weights()

    def _optimizer(self, model: LabGPT) -> torch.optim.AdamW:
        recipe = self.recipe
        return torch.optim.AdamW(
            model.parameters(), lr=recipe.peak_lr, betas=recipe.betas, eps=recipe.eps,
            weight_decay=recipe.weight_decay, fused=True,
        )  # fmt: skip

    @property
    def model(self) -> LabGPT:
        """The first replica."""
        return self.models[0]

    @property
    def parameters(self) -> list[Tensor]:
        """Of the first replica, those that train."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def step(self, number: int) -> StepRecord:
        """One optimizer step. Raises Ended."""
        lr = self._set_rate(number)
        self.size, self.extra, self.rank_work = 0.0, {}, []
        with self.clock.phase("data"):
            self.injection.before(self, number)
        losses = [self._passes(number, replica) for replica in range(len(self.models))]
        self.rank_losses = tuple(losses) if len(losses) > 1 else ()
        self.injection.backward_done(self, number)
        self._synchronise()
        norm, skipped = self._advance()
        with self.clock.phase("after"):
            self.injection.after(self, number)
        return self._record(number, sum(losses) / len(losses), norm, lr, skipped)

    def _set_rate(self, number: int) -> float:
        lr = learning_rate(self.recipe, self.advanced + 1)
        lr = self.injection.rate(self, number, lr)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
        return lr

    def _passes(self, number: int, replica: int) -> float:
        """Forward and backward over the step's micro-batches; the loss as the trainer logs it."""
        self.optimizers[replica].zero_grad()
        logged, spent = 0.0, sum(self.clock.phases.values())
        for micro in range(self.recipe.accumulation):
            with self.clock.phase("data"):
                batch = self.data.batch(number, micro, replica)
                batch = self.injection.batch(self, number, batch)
            loss = self._micro(batch, self.models[replica])
            logged += float(loss.detach()) * self.scale_loss
        self.rank_work.append(sum(self.clock.phases.values()) - spent)
        return logged

    def _micro(self, batch: Batch, model: LabGPT) -> Tensor:
        size = batch.inputs.numel() / (self.recipe.batch * self.recipe.length)
        self.size = max(self.size, size)
        share = size / self.recipe.accumulation
        with self.clock.phase("forward", share):
            loss = cross_entropy(model(batch.inputs), batch.targets, empty_is_nan=self.empty_is_nan)
            balance = model.balance()
            if balance is not None:
                self.extra["load_balancing_loss"] = float(balance.detach())
                loss = loss + self.recipe.balance * balance
        if loss.requires_grad:
            with self.clock.phase("backward", share):
                (loss * self.scale_loss).backward()  # type: ignore[no-untyped-call]
        return loss

    def _synchronise(self) -> None:
        """Average the replicas' gradients, as all-reduce would."""
        with self.clock.phase("comm"):
            if len(self.models) < 2 or not self.shared:
                return
            for group in zip(*(m.parameters() for m in self.models), strict=True):
                grads = [p.grad for p in group if p.grad is not None]
                if len(grads) < len(group):
                    continue
                mean = torch.stack(grads).mean(0)
                for p in group:
                    p.grad = mean.clone()

    def _advance(self) -> tuple[float, bool]:
        """Scale, clip and step; the gradient norm before clipping and whether it was skipped."""
        with self.clock.phase("optimizer"):
            parameters = [p for p in self.parameters if p.grad is not None]
            grads = [p.grad for p in parameters if p.grad is not None]
            largest = max((float(g.abs().max()) for g in grads), default=0.0)
            finite = largest == largest and largest != float("inf")
            if self.scaler.overflows(largest if finite else float("inf")):
                return 0.0, True
            norms = []
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                own = [p for p in model.parameters() if p.requires_grad and p.grad is not None]
                limit = self.recipe.clip or float("inf")
                total = float(torch.nn.utils.clip_grad_norm_(own, limit)) if own else 0.0
                norms.append(total)
                optimizer.step()
            self.advanced += 1
            self._round_weights()
        self.rank_norms = tuple(norms)
        return norms[0], False

    def _round_weights(self) -> None:
        """Without float32 master copies every update is rounded to bfloat16 and may vanish."""
        if self.recipe.master:
            return
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(p.bfloat16().float())

    def _record(
        self, number: int, loss: float, norm: float, lr: float, skipped: bool
    ) -> StepRecord:
        try:
            allocated, reserved = self.memory.step(self.size)
            self.memory.check()
        except DeviceFull as full:
            raise Ended("oom", self.memory.oom_text(full.want)) from full
        busiest = [experts.busiest for _, experts in self.model.mixtures()]
        if busiest:
            self.extra["moe_max_load"] = max(busiest)
        recipe, phases = self.recipe, self.clock.end_step()
        return StepRecord(
            number=number, loss=loss, grad_norm=norm, lr=lr, loss_scale=self.scaler.scale,
            skipped=skipped, params_norm=self.params_norm(), epoch=self.data.epoch(number),
            tokens=int(recipe.global_batch * recipe.length * self.size),
            seconds=sum(phases.values()), phases=phases, rank_seconds=tuple(self.rank_work),
            rank_losses=self.rank_losses, rank_norms=self.rank_norms, allocated=allocated, reserved=reserved,
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
            "optimizer": self.optimizers[0].state_dict(),
            "advanced": self.advanced,
            "scaler": self.scaler,
        }
        return copy.deepcopy(parts)

    def load(self, state: dict[str, Any]) -> None:
        """Into a process that was just built; a missing optimizer stays fresh."""
        state = self.injection.loading(self, copy.deepcopy(state))
        self.model.load_state_dict(state["model"])
        if state.get("optimizer"):
            self.optimizers[0].load_state_dict(state["optimizer"])
        self.advanced, self.scaler = state["advanced"], state["scaler"]
