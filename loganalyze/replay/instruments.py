"""Measures every layer in one forward and backward pass, and leaves the step as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from loganalyze.replay import embeddings
from loganalyze.replay.batches import sample_count
from loganalyze.replay.costs import Clock, Costs
from loganalyze.replay.measured import Measured
from loganalyze.replay.readout import Seen, read
from loganalyze.replay.taps import Taps

#: Python's own dispatch is off while the instruments compute: nothing of theirs is listened to.
_unheard = torch._C.DisableTorchFunction


class Probe:
    """Hooks on a model for one step; `result()` makes the single transfer to the host.

    Watched: modules that own parameters, members of a ModuleList, and modules without children.
    Costs one copy of the parameters (for the update), some 2 million sampled values that wait to be
    reduced together, 16 numbers per tensor seen, and a Gram matrix of at most 512 x 512 per
    embedding. reference: parameters that embeddings drift from, by name.
    """

    def __init__(self, model: nn.Module, reference: Mapping[str, Tensor] | None = None) -> None:
        """Nothing is hooked before `with`."""
        self._model, self._reference = model, reference or {}
        self._names = dict(_watched(model))
        self._stack = ExitStack()
        self._running: list[str] = []
        self._before: dict[str, Tensor] = {}
        cuda = any(parameter.is_cuda for parameter in model.parameters())
        own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._costs = Costs(Clock(cuda), own)
        self._taps = Taps(self._where, self._costs.clock.looking)
        self._seen = Seen(modules=self._names, taps=self._taps, costs=self._costs)

    def __enter__(self) -> Probe:
        for name, module in self._names.items():
            for handle in (
                module.register_forward_pre_hook(self._entering(name)),
                module.register_forward_hook(self._leaving(name)),
            ):
                self._stack.callback(handle.remove)
        keeping = torch.autograd.graph.saved_tensors_hooks(self._kept, _as_it_is)
        self._stack.enter_context(keeping)
        self._stack.enter_context(self._taps)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._stack.close()
        self._running.clear()

    def micro_batch(self, batch: Any) -> None:
        """Tells how many samples the next forward pass holds."""
        self._taps.next_batch(sample_count(batch))
        self._costs.micro_batch()

    def backward_done(self, scale: float) -> None:
        """Gradients and weights, before clipping; scale: the loss scale still in the gradients."""
        with _unheard():
            for name, parameter in self._model.named_parameters():
                self._see("weight", name, parameter)
                if parameter.grad is not None:
                    grad = parameter.grad.detach()
                    self._see("gradient", name, grad if scale == 1.0 else grad / scale)
                self._before[name] = parameter.detach().clone()
            for name, table in embeddings.tables(self._model).items():
                then = self._reference.get(f"{name}.weight")
                self._seen.embeddings[name] = (*embeddings.look(table.weight, then), table.weight)

    def update_done(self) -> None:
        """What the optimizer changed."""
        with _unheard():
            for name, parameter in self._model.named_parameters():
                self._see("update", name, parameter.detach() - self._before.pop(name))

    def result(self) -> Measured:
        """Everything seen, as numbers."""
        return read(self._seen, self._model)

    def _where(self) -> str:
        return self._running[-1] if self._running else ""

    def _see(self, what: str, name: str, tensor: Tensor) -> None:
        if tensor.is_floating_point():
            self._seen.rows.add((what, name), tensor)

    def _kept(self, tensor: Tensor) -> Tensor:
        with _unheard(), self._costs.clock.looking():
            self._costs.keep(self._running, tensor)
        return tensor

    def _entering(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any) -> None:
            with _unheard(), self._costs.clock.looking():
                self._running.append(name)
                for tensor in _floating(given):
                    if tensor.requires_grad:
                        tensor.register_hook(  # type: ignore[no-untyped-call]
                            lambda grad: self._costs.end("backward", name)
                        )
                        break
            self._costs.begin("forward", name)

        return hook

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            self._costs.end("forward", name)
            with _unheard(), self._costs.clock.looking():
                if self._running and self._running[-1] == name:
                    self._running.pop()
                tensor = next(_floating(result), None)
                if tensor is not None:
                    self._output(name, tensor)

        return hook

    def _output(self, name: str, tensor: Tensor) -> None:
        self._seen.order.setdefault(name, len(self._seen.order))
        self._costs.output_bytes[name] = tensor.numel() * tensor.element_size()
        self._see("activation", name, tensor)
        if tensor.requires_grad:
            tensor.register_hook(  # type: ignore[no-untyped-call]
                lambda grad: self._backward(name, grad)
            )

    def _backward(self, name: str, grad: Tensor) -> None:
        with _unheard(), self._costs.clock.looking():
            self._see("output_gradient", name, grad)
        self._costs.begin("backward", name)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


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


def _floating(value: Any) -> Iterator[Tensor]:
    """The floating tensors of what a module takes or gives, in order."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _floating(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floating(item)
