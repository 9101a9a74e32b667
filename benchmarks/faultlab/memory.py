"""Memory of the modelled GPU: a caching allocator in small, fed by what the run really holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from benchmarks.faultlab.recipe import DEVICE_BYTES

GIB = 1024**3
_STATIC = 42.0 * GIB  # weights, gradients, optimizer
_ACTIVATIONS = 8.0 * GIB  # of a step at the usual length
_HOST = 61 * GIB


class DeviceFull(Exception):
    """An allocation did not fit. want: bytes asked for."""

    def __init__(self, want: int) -> None:
        """want: bytes."""
        super().__init__(want)
        self.want = want


@dataclass(slots=True)
class Memory:
    """Bytes held on the device and on the host.

    `retained` and `host_extra` are what a fault really keeps alive, already scaled to the device;
    `cached` are the allocator's blocks for activations, each reused only for about its own size.
    """

    seed: int
    retained: int = 0
    host_extra: int = 0
    cached: list[int] = field(default_factory=list)
    splitting: bool = True  # False: blocks of other sizes are never reused, memory falls to pieces
    peak: int = 0
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Jitter of the host's figures."""
        self._draw = random.Random(self.seed * 31 + 9)

    def step(self, size: float) -> tuple[int, int]:
        """Allocated and reserved bytes at the end of a step of that size (1: the usual).

        Raises DeviceFull.
        """
        want = int(_ACTIVATIONS * size)
        if not any(want <= block <= want * 1.2 for block in self.cached):
            self._reserve(want)
        allocated = int(_STATIC) + self.retained
        self.peak = max(self.peak, allocated + want)
        return allocated, allocated + sum(self.cached)

    def _reserve(self, want: int) -> None:
        if self.splitting:
            self.cached = []  # a healthy allocator gives its blocks back before it asks for more
        if int(_STATIC) + self.retained + sum(self.cached) + want > DEVICE_BYTES:
            raise DeviceFull(want)
        self.cached.append(want)

    def check(self) -> None:
        """Raises DeviceFull when what is kept alive no longer leaves room."""
        if int(_STATIC) + self.retained + sum(self.cached) > DEVICE_BYTES:
            raise DeviceFull(int(0.4 * GIB))

    def host(self) -> int:
        """Host memory in use."""
        return int(_HOST * (1 + 0.001 * self._draw.gauss(0, 1))) + self.host_extra

    def oom_text(self, want: int) -> str:
        """The message of an allocation that failed, in the words of the allocator."""
        allocated = int(_STATIC) + self.retained
        idle = sum(self.cached)
        free = max(0, DEVICE_BYTES - allocated - idle)
        return (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {want / GIB:.2f} GiB. "
            f"GPU 0 has a total capacity of {DEVICE_BYTES / GIB:.2f} GiB of which "
            f"{free / 1024**2:.2f} MiB is free. Including non-PyTorch memory, this process has "
            f"{(allocated + idle) / GIB:.2f} GiB memory in use. Of the allocated memory "
            f"{allocated / GIB:.2f} GiB is allocated by PyTorch, and {idle / GIB:.2f} GiB is "
            "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
            "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
        )
