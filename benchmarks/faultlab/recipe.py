"""What a run is asked to do, and what each of its steps leaves behind: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TRAINERS = ("megatron", "deepspeed", "hf", "wandb", "plain", "tensorboard")
#: Steps between two log lines, by trainer: as people set them, not all one.
LOG_INTERVAL = {"megatron": 1, "deepspeed": 2, "hf": 2, "wandb": 1, "plain": 1,
                "tensorboard": 1}  # fmt: skip
DEVICE_BYTES = 80 * 1024**3  # of the modelled GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of a run; `seed` decides weights, text, order of batches and the clock's jitter."""

    seed: int
    trainer: str = "plain"
    total: int = 400  # steps
    planned: int = 0  # steps the schedule was made for, 0: total
    batch: int = 12  # sequences per micro-batch
    length: int = 32  # bytes per sequence
    width: int = 32
    layers: int = 2
    experts: int = 0  # 0: dense feed-forward layers
    balance: float = 0.01  # weight of the experts' balancing loss
    peak_lr: float = 3e-3
    min_lr_share: float = 0.1
    warmup: int = 20  # steps
    decay: str = "cosine"  # cosine | constant | cycles
    cycles: int = 4  # of decay="cycles"
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0  # 0: no clipping
    precision: str = "bf16"  # bf16 | fp16
    master: bool = True  # float32 copies of the weights
    loss_scale: float = 2.0**16  # at the start, of fp16
    init_std: float = 0.02
    accumulation: int = 1  # micro-batches per step
    ranks: int = 8  # that the log speaks of
    replicas: int = 1  # processes that really train side by side
    sentences: int = 6000  # of training text
    evaluate: int = 100  # steps between evaluations
    save: int = 100  # steps between checkpoints
    measured: bool = False  # whether the clock measures work and waits, or models them
    warmup_bumps: bool = False

    @property
    def schedule(self) -> int:
        """Steps over which the learning rate falls."""
        return self.planned or self.total

    @property
    def interval(self) -> int:
        """Steps between two log lines."""
        return LOG_INTERVAL[self.trainer]

    @property
    def global_batch(self) -> int:
        """Sequences per optimizer step, as the log states them."""
        return self.batch * self.accumulation * self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimizer step. Times in seconds of the lab's clock, memory in bytes."""

    number: int
    loss: float
    grad_norm: float
    lr: float
    loss_scale: float
    skipped: bool
    params_norm: float
    epoch: float
    tokens: int  # of all ranks
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    #: Of each process: loss, gradient norm (all alike while in step), seconds without waiting.
    ranks: tuple[tuple[float, ...], ...] = ()
    allocated: int = 0
    reserved: int = 0
    host: int = 0
    extra: Mapping[str, float] = field(default_factory=dict)  # losses and rewards of other makes
