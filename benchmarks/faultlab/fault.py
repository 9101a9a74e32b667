"""What a fault is: an entry of the catalogue, and what its label says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.faultlab.injection import Injection
from benchmarks.faultlab.recipe import TRAINERS

Make = Callable[[int], Injection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault, or of healthy run.

    causes: entries of the trees that count as right, the best one first. kinds: kinds of finding
    that count as seeing it. metrics: what it shows in; a log without all of them can't tell.
    at: share of the run at which it begins, 0 from the start. recipe: settings it changes.
    """

    name: str
    family: str
    make: Make = Injection
    causes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("loss",)
    at: float = 0.6
    recipe: dict[str, Any] = field(default_factory=dict)
    trainers: tuple[str, ...] = TRAINERS
    restart: float = 0.0  # share of the run at which the process dies and a new one resumes
    restart_kind: str = "node"
    loop: str = "pretrain"  # pretrain | rl
    healthy: bool = False

    def onset(self, total: int, seed: int) -> int:
        """First step that differs; a little different for each seed."""
        if self.at == 0:
            return 1
        return max(2, int(total * self.at) + seed * 37 % 41 - 20)
