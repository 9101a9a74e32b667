"""Where a fault may lay hands on a training run; by default it does nothing anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from benchmarks.faultlab.training import Trainer


class Ended(Exception):
    """The run ends here. kind: a key of endings.py; text: lines that the process printed itself."""

    def __init__(self, kind: str, text: str = "") -> None:
        """kind and what was printed."""
        super().__init__(kind)
        self.kind, self.text = kind, text


@dataclass(slots=True)
class Batch:
    """(batch, length) input bytes and the bytes to predict, -100 where none counts."""

    inputs: Tensor
    targets: Tensor


class Injection:
    """A fault's hands. `onset` is the first step at which anything differs."""

    def __init__(self, onset: int) -> None:
        """onset: first step that differs from the healthy twin, 1 if all do."""
        self.onset = onset

    def built(self, trainer: Trainer) -> None:
        """The model and optimizer of a process were just built."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """The micro-batch that the step will see."""
        return batch

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """The learning rate of the step."""
        return lr

    def before(self, trainer: Trainer, step: int) -> None:
        """Before the forward pass; the place of waits for data."""

    def backward_done(self, trainer: Trainer, step: int) -> None:
        """Gradients are there, not yet synchronised or clipped."""

    def after(self, trainer: Trainer, step: int) -> None:
        """After the optimizer's step, inside the step's time."""

    def saving(self, trainer: Trainer, step: int) -> float:
        """Seconds of the save beyond the usual; may raise Ended."""
        return 0.0

    def loading(self, trainer: Trainer, state: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint as the new process will see it."""
        return state
