"""Time and memory of each layer: when it ran forward and backward, what it kept for backward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from loganalyze.replay.state import cuda_in_use


class Spent(Struct):
    """Seconds, and the most bytes allocated on the GPU; 0 without one."""

    seconds: float = 0.0
    peak_bytes: float = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """Time and memory of a block, everything that it started on the GPU included."""
    made, cuda = Spent(), cuda_in_use()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    yield made
    if cuda:
        torch.cuda.synchronize()
        made.peak_bytes = float(torch.cuda.max_memory_allocated())
    made.seconds = time.perf_counter() - begun


class Clock:
    """Marks in time: host seconds on the CPU, events on a GPU; the looking itself is left out."""

    def __init__(self, cuda: bool) -> None:
        """cuda: whether the step runs on a GPU."""
        self._cuda = cuda
        self._looked = 0.0

    def mark(self) -> Any:
        """Now."""
        if not self._cuda:
            return time.perf_counter() - self._looked
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between(self, one: Any, two: Any) -> float:
        """Seconds between two marks; on a GPU only after it is done."""
        return float(one.elapsed_time(two)) / 1e3 if self._cuda else float(two - one)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Time in here is the instruments' own, on the CPU it counts for no layer."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._looked += time.perf_counter() - begun


class Costs:
    """Seconds and bytes per layer name; the layers inside a layer are part of it."""

    def __init__(self, clock: Clock, parameters: set[int]) -> None:
        """parameters: storage addresses that are the model's own, kept by no layer."""
        self.clock = clock
        self._own = parameters
        self._spans: dict[str, list[tuple[str, Any, Any]]] = {}
        self._begun: dict[str, Any] = {}
        self._kept: set[int] = set()
        self._now: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self.output_bytes: dict[str, int] = {}

    def micro_batch(self) -> None:
        """What the last forward pass kept is gone; the most of all passes counts."""
        for name, held in self._now.items():
            self._most[name] = max(held, self._most.get(name, 0))
        self._kept.clear()
        self._now.clear()

    def begin(self, what: str, name: str) -> None:
        """A layer begins; what: forward or backward."""
        self._begun[f"{what} {name}"] = self.clock.mark()

    def end(self, what: str, name: str) -> None:
        """It ends; without a beginning nothing is known."""
        begun = self._begun.pop(f"{what} {name}", None)
        if begun is not None:
            self._spans.setdefault(name, []).append((what, begun, self.clock.mark()))

    def keep(self, names: list[str], tensor: Tensor) -> None:
        """A tensor is kept for backward by the layers that are running, once for its storage."""
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place in self._own or place in self._kept:
            return
        self._kept.add(place)
        for name in names:
            self._now[name] = self._now.get(name, 0) + storage.nbytes()

    def told(self, name: str) -> dict[str, float]:
        """Seconds forward and backward, bytes of the output and kept for backward, of one layer.

        Backward is from the gradient at its output to the one at its input: layers that share an
        input end together.
        """
        kept = max(self._now.get(name, 0), self._most.get(name, 0))
        made = {
            "output_bytes": float(self.output_bytes.get(name, 0)), "kept_bytes": float(kept),
        }  # fmt: skip
        for what, begun, ended in self._spans.get(name, ()):
            key = f"{what}_seconds"
            made[key] = made.get(key, 0.0) + self.clock.between(begun, ended)
        return made
