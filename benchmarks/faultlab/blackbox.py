"""Some runs are recorded: a capsule of the fault's first steps, and a checkpoint from before it.

    loganalyze replay REPORT --recipe capsule:benchmarks/faultlab/blackbox.py:build \
        --checkpoint RUN/blackbox

`build` makes the model of the default recipe; faults whose recipe changes the model are not recorded.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.faultlab.model import LabGPT, cross_entropy
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.training import Trainer
from loganalyze.replay import Recorder, Step

_RING, _SNAPSHOTS = 32, 16  # steps


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean cross-entropy of a micro-batch, as the lab's loop computes it."""
    return cross_entropy(model(batch["inputs"]), batch["targets"])


def build() -> Step:
    """Model and optimizer of the default recipe; weights come from the capsule."""
    recipe = Recipe(seed=0)
    model = LabGPT(recipe)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_lr, betas=recipe.betas, eps=recipe.eps,
        weight_decay=recipe.weight_decay, fused=True,
    )  # fmt: skip
    return Step(model=model, optimizer=optimizer, loss_fn=loss_fn, clip=recipe.clip)


def record(trainer: Trainer, folder: Path) -> Recorder:
    """A recorder for the trainer's process, which writes into folder/blackbox."""
    return Recorder(
        folder / "blackbox", trainer.model, trainer.optimizer, builder=f"{__file__}:build",
        clip=trainer.recipe.clip, ring=_RING, snapshot_every=_SNAPSHOTS,
    )  # fmt: skip


def checkpoint(trainer: Trainer, folder: Path, step: int) -> None:
    """Weights and optimizer after a step into folder/checkpoint; the newest before the fault stays."""
    if step >= trainer.injection.onset > 1:
        return
    path = folder / "checkpoint" / "state.pt"
    path.parent.mkdir(exist_ok=True)
    state = trainer.state()
    torch.save({"model": state["model"], "optimizer": state["optimizer"], "step": step}, path)
