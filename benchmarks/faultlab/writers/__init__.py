"""Logs as the real trainers write them, one module a trainer, an explicit table."""

from __future__ import annotations

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.writers.base import Writer, real
from benchmarks.faultlab.writers.deepspeed import DeepSpeedWriter
from benchmarks.faultlab.writers.hf import HFWriter
from benchmarks.faultlab.writers.megatron import MegatronWriter
from benchmarks.faultlab.writers.plain import PlainWriter
from benchmarks.faultlab.writers.tensorboard import TensorBoardWriter
from benchmarks.faultlab.writers.wandb import WandbWriter

__all__ = ["WRITERS", "real", "writer_for"]

WRITERS: dict[str, type[Writer]] = {
    "megatron": MegatronWriter,
    "deepspeed": DeepSpeedWriter,
    "hf": HFWriter,
    "wandb": WandbWriter,
    "plain": PlainWriter,
    "tensorboard": TensorBoardWriter,
}


def writer_for(recipe: Recipe, clock: Clock) -> Writer:
    """The writer of the recipe's trainer."""
    return WRITERS[recipe.trainer](recipe, clock)
