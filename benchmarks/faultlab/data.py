"""Which bytes each step trains on."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.faultlab.injection import Batch
from benchmarks.faultlab.recipe import Recipe


class Data:
    """Windows into a text: drawn at random, or in an order of epochs, or straight through.

    `text` may be swapped by a fault; the last tenth is held out.
    """

    def __init__(self, recipe: Recipe, text: bytes) -> None:
        """text: the whole corpus."""
        self.recipe = recipe
        self.order = "random"  # random | epochs | file
        self.offset = 0  # added to the step: a resumed run may look elsewhere
        self.swap(text)

    def swap(self, text: bytes) -> None:
        """Another text from now on."""
        self.bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.border = len(self.bytes) * 9 // 10

    @property
    def windows(self) -> int:
        """Training sequences in an epoch."""
        return self.border // self.recipe.length

    def epoch(self, step: int) -> float:
        """Passes over the text after so many steps."""
        return step * self.recipe.batch * self.recipe.accumulation / max(1, self.windows)

    def batch(self, step: int, micro: int = 0, replica: int = 0) -> Batch:
        """The same step, micro-batch and replica always get the same bytes."""
        return self._cut(self._starts(step + self.offset, micro, replica))

    def held_out(self, number: int) -> Batch:
        """A held-out batch."""
        draw = torch.Generator().manual_seed(10**12 + self.recipe.seed * 101 + number)
        high = len(self.bytes) - self.recipe.length - 1
        return self._cut(torch.randint(self.border, high, (self.recipe.batch,), generator=draw))

    def _starts(self, step: int, micro: int, replica: int) -> Tensor:
        size, length = self.recipe.batch, self.recipe.length
        at = ((step - 1) * self.recipe.accumulation + micro) * size
        if self.order == "random":
            seed = self.recipe.seed * 1_000_003 + at * 17 + replica
            draw = torch.Generator().manual_seed(seed)
            return torch.randint(0, self.border - length - 1, (size,), generator=draw)
        places = torch.arange(at, at + size)
        if self.order == "file":
            stride = max(1, (self.border - length - 1) // (self.recipe.total * size))
            return places * stride % (self.border - length - 1)
        return torch.stack([self._shuffled(int(place)) for place in places])

    def _shuffled(self, place: int) -> Tensor:
        epoch, inside = divmod(place, self.windows - 1)
        draw = torch.Generator().manual_seed(self.recipe.seed * 7 + epoch)
        return torch.randperm(self.windows - 1, generator=draw)[inside] * self.recipe.length

    def _cut(self, starts: Tensor) -> Batch:
        window = torch.arange(self.recipe.length + 1)
        rows = self.bytes[starts[:, None] + window]
        return Batch(rows[:, :-1], rows[:, 1:].clone())
