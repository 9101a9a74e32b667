"""Runs variants of a step from saved states, and says how much of the unusual they take away."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from loganalyze.config import Thresholds
from loganalyze.replay import batches, environment, state
from loganalyze.replay.instruments import Probe
from loganalyze.replay.measured import Measured
from loganalyze.replay.recipe import Recorded, Step
from loganalyze.replay.result import Experiment
from loganalyze.replay.runner import Outcome, device_of, run_step


class Scale(Struct, frozen=True, kw_only=True):
    """What is unusual about the suspect step, against the usual loss and gradient norm."""

    measure: str  # loss or grad_norm
    usual: Outcome | None
    suspect: Outcome
    calm_share: float

    def unusual(self, outcome: Outcome, usual: Outcome | None = None) -> float:
        """Nats over the usual loss, or the logarithm of the ratio of norms; inf if not finite.

        usual: what is usual for a variant that has trained otherwise.
        """
        usual = usual or self.usual
        if not (math.isfinite(outcome.loss) and math.isfinite(outcome.grad_norm)):
            return math.inf
        if usual is None:
            return outcome.loss
        if self.measure == "loss":
            return outcome.loss - usual.loss
        return math.log(max(outcome.grad_norm, 1e-30) / max(usual.grad_norm, 1e-30))

    def is_unusual(self, ratio: float) -> bool:
        """Whether the suspect step's measure is more than `ratio` times the usual."""
        if self.usual is None or math.isinf(self.unusual(self.suspect)):
            return True
        now, usual = (getattr(item, self.measure) for item in (self.suspect, self.usual))
        return bool(now > ratio * usual)

    def gone(self, outcome: Outcome, usual: Outcome | None = None) -> float:
        """Share of the unusual that this outcome lacks; below 0 where it is worse."""
        whole, left = self.unusual(self.suspect), self.unusual(outcome, usual)
        if math.isinf(whole):
            return 0.0 if math.isinf(left) else 1.0
        if math.isinf(left):
            return -math.inf
        return 1 - left / whole if whole > 0 else 0.0

    def judge(
        self, name: str, outcome: Outcome, subject: str = "", usual: Outcome | None = None
    ) -> Experiment:
        """The outcome of a variant as an experiment."""
        gone = self.gone(outcome, usual)
        return Experiment(
            name=name, loss=outcome.loss, grad_norm=outcome.grad_norm, gone=gone,
            calm=gone >= self.calm_share, subject=subject,
        )  # fmt: skip


def scale(
    suspect: Outcome, usual: Outcome | None, history: Sequence[float], rules: Thresholds
) -> Scale:
    """Loss where it is out of the usual, else the gradient norm; the history's median if needed."""
    calm_share = rules.value("replay.calm_share")
    if usual is None:
        return Scale(measure="loss", usual=None, suspect=suspect, calm_share=calm_share)
    finite = [loss for loss in history[-8:] if math.isfinite(loss)]
    if finite:  # a single step's loss is noisy
        middle = sorted([*finite, usual.loss])[(len(finite) + 1) // 2]
        usual = replace(usual, loss=middle)
    ratio = rules.value("replay.excess_ratio")
    if not math.isfinite(suspect.loss):
        measure = "loss"
    elif not math.isfinite(suspect.grad_norm):
        measure = "grad_norm"
    else:
        measure = "loss" if suspect.loss > ratio * usual.loss else "grad_norm"
    return Scale(measure=measure, usual=usual, suspect=suspect, calm_share=calm_share)


class Bench:
    """A step with the states that experiments start from."""

    def __init__(self, step: Step, start: state.Snapshot, before: state.Snapshot) -> None:
        """start: before the first recorded step; before: right before the suspect."""
        self.step, self.start, self.before = step, start, before

    def run(self, data: Recorded, held: state.Snapshot | None = None, **options: Any) -> Outcome:
        """One step from a state (the suspect's by default)."""
        (held or self.before).restore(self.step.model, self.step.optimizer)
        with state.kept_rng():
            return run_step(self.step, data, **options)

    def without(self, data: Recorded, indices: Sequence[int]) -> Outcome | None:
        """The step without some samples (numbered over all micro-batches); None if none is left."""
        kept = []
        first, removed = 0, set(indices)
        pick = self.step.select or batches.select
        for batch in data.micro_batches:
            count = batches.sample_count(batch)
            stay = [i for i in range(count) if first + i not in removed]
            first += count
            if stay:
                kept.append(pick(batch, stay))
        return self.run(replace(data, micro_batches=tuple(kept))) if kept else None

    def only(self, data: Recorded, index: int) -> Outcome:
        """The step with one sample alone."""
        pick = self.step.select or batches.select
        for batch in data.micro_batches:
            count = batches.sample_count(batch)
            if index < count:
                return self.run(replace(data, micro_batches=(pick(batch, [index]),)))
            index -= count
        raise IndexError(index)

    def slower(self, data: Recorded, factor: float) -> tuple[Outcome, Outcome]:
        """All recorded steps again at a part of the learning rate: the last one, the suspect."""
        self.start.restore(self.step.model, self.step.optimizer)
        with state.kept_rng():
            earlier = [run_step(self.step, item, lr_factor=factor) for item in self.step.before]
            return earlier[-1], run_step(self.step, data, lr_factor=factor)

    def with_weights(self, data: Recorded, prefix: str) -> Outcome:
        """The suspect step with one layer's parameters and buffers of the start."""
        return self.run(data, mixed(self.before, self.start, prefix))

    def in_fp32(self, data: Recorded) -> tuple[Outcome, Measured]:
        """The suspect step in fp32, measured: no autocast, no TF32, narrower parameters widened."""
        halves = (torch.float16, torch.bfloat16)
        narrow = [p for p in self.step.model.parameters() if p.dtype in halves]
        self.before.restore(self.step.model, self.step.optimizer)
        step = self.step
        if narrow:
            step = replace(step, model=copy.deepcopy(step.model).float(), optimizer=None)
            data = replace(data, micro_batches=_widened(data))
        with state.kept_rng(), environment.full_fp32(), Probe(step.model) as probe:
            outcome = run_step(step, data, probe, precision="fp32")
        return outcome, probe.result()

    def with_layer_in_fp32(self, data: Recorded, name: str) -> Outcome:
        """The suspect step in its own precision, but for one layer in fp32."""
        with _fp32_layer(self.step, name):
            return self.run(data)


def mixed(into: state.Snapshot, source: state.Snapshot, prefix: str) -> state.Snapshot:
    """A state with the tensors below one name from another."""
    chosen = {
        name: source.tensors[name] if name.startswith(f"{prefix}.") else tensor
        for name, tensor in into.tensors.items()
    }
    return state.Snapshot(chosen, into.optimizer, into.modes)


def _widened(data: Recorded) -> tuple[Any, ...]:
    def wide(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.float() if value.is_floating_point() else value
        if isinstance(value, Mapping):
            return {key: wide(item) for key, item in value.items()}
        return type(value)(map(wide, value)) if isinstance(value, list | tuple) else value

    return tuple(wide(item) for item in data.micro_batches)


@contextmanager
def _fp32_layer(step: Step, name: str) -> Iterator[None]:
    module = step.model.get_submodule(name)
    plain = module.forward
    device = device_of(step.model)

    def wide(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            given = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a
                     for a in args]  # fmt: skip
            return plain(*given, **kwargs)

    module.forward = wide
    try:
        yield
    finally:
        del module.forward
