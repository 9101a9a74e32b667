"""Runs one optimizer step, and replays recorded steps up to the suspect one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from msgspec import Struct
from torch import Tensor, nn

from loganalyze.replay.recipe import Recorded, Step
from loganalyze.replay.state import restore_rng

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Observer(Protocol):
    """What may watch a step without changing it (see instruments.Probe)."""

    def micro_batch(self, batch: Any) -> None:
        """Before a micro-batch's forward pass."""

    def backward_done(self, scale: float) -> None:
        """After all backward passes, before gradients are unscaled (by 1/scale) and clipped."""

    def update_done(self) -> None:
        """After the optimizer's step."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What one step gave; exact floats. updated: False where a scaler skipped the update."""

    step: int
    loss: float
    losses: tuple[float, ...]  # per micro-batch
    grad_norm: float
    updated: bool = True

    def same(self, other: Outcome) -> bool:
        """Bit-equal, NaN equal to NaN."""
        return (
            _same(self.loss, other.loss)
            and _same(self.grad_norm, other.grad_norm)
            and all(_same(*pair) for pair in zip(self.losses, other.losses, strict=True))
        )


def _same(one: float, two: float) -> bool:
    return one == two or (one != one and two != two)


def run_step(
    step: Step, data: Recorded, observer: Observer | None = None, *, lr_factor: float = 1.0,
    precision: str | None = None,
) -> Outcome:  # fmt: skip
    """Forward, backward, clip and update as recorded, from the model's present state.

    Micro-batches' losses are averaged, or summed if the step says so.
    Generators and learning rates are put as recorded.
    """
    parameters = [p for p in step.model.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.grad = None
    restore_rng(data.rng, data.seed)
    _set_lrs(step, data.lrs, lr_factor)
    losses = _backward(step, data, observer, precision or step.precision)
    if observer is not None:
        observer.backward_done(data.loss_scale or 1.0)
    _unscale(parameters, data.loss_scale)
    norm = _clipped_norm(parameters, step.clip)
    updated = step.optimizer is not None and not (data.loss_scale and _overflowed(parameters))
    if updated and step.optimizer is not None:
        step.optimizer.step()
    if observer is not None:
        observer.update_done()
    values = tuple(float(item) for item in losses)
    whole = torch.stack(losses)
    loss = float(whole.sum() if step.accumulate == "sum" else whole.mean())
    loss = values[0] if len(values) == 1 else loss
    return Outcome(step=data.step, loss=loss, losses=values, grad_norm=float(norm), updated=updated)


def _backward(
    step: Step, data: Recorded, observer: Observer | None, precision: str
) -> list[Tensor]:
    losses = []
    count = len(data.micro_batches)
    for batch in data.micro_batches:
        if observer is not None:
            observer.micro_batch(batch)
        with autocast(step.model, precision):
            loss = step.loss_fn(step.model, batch)
        part = loss if step.accumulate == "sum" or count == 1 else loss / count
        scaled = part if data.loss_scale is None else part * data.loss_scale
        scaled.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    return losses


def autocast(model: nn.Module, precision: str) -> Any:
    """The autocast context of a precision on the model's device; none for fp32."""
    if precision not in _TYPES:
        return nullcontext()
    return torch.autocast(device_of(model), _TYPES[precision])


def device_of(model: nn.Module) -> str:
    """`cpu` or `cuda`, by the first parameter."""
    first = next(model.parameters(), None)
    return first.device.type if first is not None else "cpu"


def _set_lrs(step: Step, lrs: Sequence[float], factor: float) -> None:
    groups = step.optimizer.param_groups if step.optimizer is not None else []
    wanted = lrs if len(lrs) == len(groups) else [group["lr"] for group in groups]
    for group, lr in zip(groups, wanted, strict=True):
        group["lr"] = lr * factor if factor != 1.0 else lr


def _unscale(parameters: Iterable[nn.Parameter], scale: float | None) -> None:
    if scale is not None and scale != 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 / scale)


def _overflowed(parameters: Iterable[nn.Parameter]) -> bool:
    return any(not bool(p.grad.isfinite().all()) for p in parameters if p.grad is not None)


def total_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """L2 norm of all gradients, the norm of the norms as torch's clipping computes it."""
    norms = [torch.linalg.vector_norm(p.grad) for p in parameters if p.grad is not None]
    if not norms:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))
    return norm


def _clipped_norm(parameters: list[nn.Parameter], clip: float | None) -> Tensor:
    if clip is None:
        return total_norm(parameters)
    return nn.utils.clip_grad_norm_(parameters, clip)
