"""Replicas as real processes that exchange their gradients over gloo, on one machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.training import Trainer

_TIMEOUT = timedelta(seconds=300)  # a loaded machine is slow, not dead


class Gloo:
    """The exchange of one process; see training.Alone for what each part means."""

    def __init__(self, rank: int, world: int, meeting: Path) -> None:
        """meeting: a file that all of them know."""
        self.rank, self.world = rank, world
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=_TIMEOUT
        )

    def average(self, parameters: list[Tensor], *, joined: bool) -> None:
        """All-reduce the gradients; a rank that is not joined takes part and keeps its own."""
        grads = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        if joined:
            flat /= self.world
            for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                grad.copy_(part.view_as(grad))

    def gather(self, *values: float) -> list[tuple[float, ...]]:
        """Every rank's values, by rank."""
        own = torch.tensor(values, dtype=torch.float64)
        rows = [torch.zeros_like(own) for _ in range(self.world)]
        dist.all_gather(rows, own)
        return [tuple(row.tolist()) for row in rows]


def _follow(rank: int, name: str, recipe: Recipe, onset: int, meeting: Path) -> None:
    """A process other than the first: trains, and leaves logging and saving to the first."""
    from benchmarks.faultlab.catalogue import BY_NAME

    torch.set_num_threads(1)
    exchange = Gloo(rank, recipe.replicas, meeting)
    clock = Clock(recipe.seed * 64 + rank, recipe.measured)
    trainer = Trainer(recipe, BY_NAME[name].make(onset), clock, exchange)
    for step in range(1, recipe.total + 1):
        trainer.step(step)
    dist.destroy_process_group()


@contextmanager
def processes(name: str, recipe: Recipe, onset: int) -> Iterator[Gloo]:
    """Start the other replicas of a run; gives the first one's exchange.

    Raises RuntimeError where one of them failed.
    """
    spawn: Any = get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        others = [
            spawn.Process(target=_follow, args=(rank, name, recipe, onset, meeting), daemon=False)
            for rank in range(1, recipe.replicas)
        ]
        for process in others:
            process.start()
        try:
            yield Gloo(0, recipe.replicas, meeting)
        finally:
            dist.destroy_process_group()
            for process in others:
                process.join(_TIMEOUT.total_seconds())
    if any(process.exitcode for process in others):
        raise RuntimeError(f"a replica of {name} failed: {[p.exitcode for p in others]}")
