"""Measures every layer in one forward and backward pass, and leaves the step as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from loganalyze.replay import stats
from loganalyze.replay.batches import sample_count
from loganalyze.replay.measured import Layer, Measured, Parameter, Samples, group_of
from loganalyze.replay.taps import Taps

_Key = tuple[str, str]  # what was measured, name


class Probe:
    """Hooks on a model for one step; `result()` makes the single transfer to the host.

    Watched: modules that own parameters, members of a ModuleList, and modules without children.
    Costs one copy of the parameters (for the update) and 14 numbers per tensor seen.
    """

    def __init__(self, model: nn.Module) -> None:
        """Nothing is hooked before `with`."""
        self._model = model
        self._names = dict(_watched(model))
        self._handles: list[RemovableHandle] = []
        self._keys: list[_Key] = []
        self._rows: list[Tensor] = []
        self._running: list[str] = []
        self._before: dict[str, Tensor] = {}
        self._order: dict[str, int] = {}
        self._taps = Taps(lambda: self._running[-1] if self._running else "")

    def __enter__(self) -> Probe:
        for name, module in self._names.items():
            self._handles += [
                module.register_forward_pre_hook(self._entering(name)),
                module.register_forward_hook(self._leaving(name)),
            ]
        self._taps.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._taps.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()
        self._running.clear()

    def micro_batch(self, batch: Any) -> None:
        """Tells how many samples the next forward pass holds."""
        self._taps.samples = sample_count(batch)

    def backward_done(self, scale: float) -> None:
        """Gradients and weights, before clipping; scale: the loss scale still in the gradients."""
        for name, parameter in self._model.named_parameters():
            self._see("weight", name, parameter)
            if parameter.grad is not None:
                grad = parameter.grad.detach()
                self._see("gradient", name, grad if scale == 1.0 else grad / scale)
            self._before[name] = parameter.detach().clone()

    def update_done(self) -> None:
        """What the optimizer changed."""
        for name, parameter in self._model.named_parameters():
            self._see("update", name, parameter.detach() - self._before.pop(name))

    def _see(self, what: str, name: str, tensor: Tensor) -> None:
        if tensor.is_floating_point():
            self._keys.append((what, name))
            self._rows.append(stats.row(tensor))

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any) -> None:
            self._running.append(name)

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            if self._running and self._running[-1] == name:
                self._running.pop()
            tensor = _first(result)
            if tensor is None:
                return
            self._order.setdefault(name, len(self._order))
            with torch._C.DisableTorchFunction():
                self._see("activation", name, tensor)
            if tensor.requires_grad:
                tensor.register_hook(  # type: ignore[no-untyped-call]
                    lambda grad: self._see("output_gradient", name, grad)
                )

        return hook

    def result(self) -> Measured:
        """Everything seen, as numbers."""
        rows: dict[_Key, list[dict[str, float]]] = {}
        for key, row in zip(self._keys, stats.transfer(self._rows), strict=True):
            rows.setdefault(key, []).append(row)
        table = {key: stats.summary(stats.merged(found)) for key, found in rows.items()}
        return Measured(
            layers=self._layers(table), parameters=self._parameters(table), samples=self._samples()
        )

    def _layers(self, table: Mapping[_Key, dict[str, float]]) -> tuple[Layer, ...]:
        attention = self._attention()
        return tuple(
            Layer(
                name=name, kind=type(self._names[name]).__name__, group=group_of(name), order=order,
                activation=table.get(("activation", name), {}),
                output_gradient=table.get(("output_gradient", name), {}),
                attention=attention.get(name, {}),
            )
            for name, order in self._order.items()
        )  # fmt: skip

    def _parameters(self, table: Mapping[_Key, dict[str, float]]) -> tuple[Parameter, ...]:
        return tuple(
            _parameter(name, table)
            for name, _ in self._model.named_parameters()
            if ("weight", name) in table
        )

    def _attention(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for name, heads in self._taps.attention:
            entropy, logit = heads.float().cpu().unbind(1)
            found[name] = {
                "entropy": float(entropy.mean()), "entropy_min": float(entropy.min()),
                "largest_logit": float(logit.max()), "heads": float(len(entropy)),
            }  # fmt: skip
        return found

    def _samples(self) -> Samples | None:
        """Per sample and position; the last cross-entropy call of each micro-batch counts."""
        if not self._taps.token_losses:
            return None
        losses: list[float] = []
        for _, values, counted in self._taps.token_losses:
            losses += (values.sum(1) / counted.sum(1).clamp(min=1)).tolist()
        widths = {values.shape[1] for _, values, _ in self._taps.token_losses}
        positions: list[float] = []
        if len(widths) == 1:
            whole = torch.cat([values for _, values, _ in self._taps.token_losses])
            counts = torch.cat([counted for _, _, counted in self._taps.token_losses])
            positions = (whole.sum(0) / counts.sum(0).clamp(min=1)).tolist()
        return Samples(losses=tuple(losses), positions=tuple(positions))


def _parameter(name: str, table: Mapping[_Key, dict[str, float]]) -> Parameter:
    weight, update = table["weight", name], table.get(("update", name))
    moved = update["l2"] if update else None
    return Parameter(
        name=name, layer=name.rpartition(".")[0], group=group_of(name), weight=weight,
        gradient=table.get(("gradient", name), {}), update_l2=moved,
        update_ratio=moved / weight["l2"] if moved is not None and weight["l2"] > 0 else None,
    )  # fmt: skip


def _watched(model: nn.Module) -> list[tuple[str, nn.Module]]:
    members = {
        id(child) for m in model.modules() if isinstance(m, nn.ModuleList) for child in m.children()
    }
    return [
        (name, module)
        for name, module in model.named_modules()
        if name and not isinstance(module, nn.ModuleList)
        and (
            id(module) in members
            or next(module.parameters(recurse=False), None) is not None
            or next(module.children(), None) is None
        )
    ]  # fmt: skip


def _first(result: Any) -> Tensor | None:
    """The first floating tensor of an output."""
    if isinstance(result, Tensor):
        return result if result.is_floating_point() else None
    if isinstance(result, Mapping):
        result = tuple(result.values())
    if isinstance(result, list | tuple):
        return next((t for t in map(_first, result) if t is not None), None)
    return None
