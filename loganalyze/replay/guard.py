"""Keeps the weights from right before an update whose gradients aren't finite."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Guard:
    """A hook of the optimizer; `kept` are the parameters before the first of such updates.

    Such an update may turn every weight into NaN, and what was wrong before it is seen no more. One
    small gradient is looked at: a loss that isn't finite spoils them all. Only on the CPU: to look
    would make a GPU's queue run empty.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        """An optimizer that wraps another has its hook there; one that takes none has none."""
        self.kept: Mapping[str, Tensor] = {}
        self._model, self._bad = model, False
        trained = [p for p in model.parameters() if p.requires_grad and p.device.type == "cpu"]
        self._small = min(trained, key=lambda p: p.numel(), default=None)
        self._handle: Any = None
        if self._small is not None:
            with suppress(AttributeError):
                inner = getattr(optimizer, "optimizer", optimizer)
                self._handle = inner.register_step_pre_hook(self.look)

    def close(self) -> None:
        """The optimizer is itself again."""
        if self._handle is not None:
            self._handle.remove()

    def look(self, *given: Any) -> None:
        """Right before an update: keeps the weights where its gradients are the first bad ones."""
        grad = self._small.grad if self._small is not None else None
        bad = grad is not None and not bool(torch.isfinite(grad.sum()))
        if bad and not self._bad:  # a run that stays broken is copied once
            named = self._model.named_parameters()
            self.kept = {name: parameter.detach().clone() for name, parameter in named}
        elif not bad:
            self.kept = {}
        self._bad = bad
