"""Writes steps as Megatron-LM prints them, on a modelled clock, so that bytes come out alike."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lab.model import HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH
from lab.train import BATCH, Step

RANKS = 8  # modelled: one process trains, the log speaks of eight
CHECKPOINTS = "/ckpt/tiny"
_START = datetime(2026, 3, 14, 1, 59, 1, tzinfo=UTC)
_COMPILATION_S = 9.5
_SAVE_S = 4.0
_MEMORY = (
    "memory (MB) | allocated: 20310.25 | max allocated: 33124.50 | reserved: 35210.00 | "
    "max reserved: 35210.00"
)
_NOISE = (
    "/opt/env/lib/python3.12/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the "
    "inputs have requires_grad=True. Gradients will be None",
    "gpu-03:2177:2291 [0] NCCL INFO Channel 00/08 :    0   1   2   3",
    "WARNING:megatron.core.utils:fused kernel not found, falling back to the plain one",
)


@dataclass(slots=True)
class MegatronLog:
    """Lines so far and the clock."""

    total: int
    seed: int
    interval: int = 1
    seconds: float = 0.62
    lines: list[str] = field(default_factory=list)
    now: datetime = _START
    draw: random.Random = field(init=False)
    window: list[tuple[Step, float]] = field(default_factory=list)
    started: bool = False  # whether this process has done its first iteration
    memory_reports: int = 2  # still to come in this process
    saves: int = 0  # of this process

    def __post_init__(self) -> None:
        """The clock's jitter has a seed of its own."""
        self.draw = random.Random(self.seed)

    def launch(self, arguments: dict[str, object], loaded: int | None = None) -> None:
        """A new process: launcher noise, the argument dump, a checkpoint to load or none."""
        self.started, self.memory_reports, self.saves, self.window = False, 2, 0, []
        sizes = "tensor-model-parallel size: 1, pipeline-model-parallel size: 1"
        self.lines += ["", *_NOISE]
        self._rank0(f"using world size: {RANKS}, data-parallel size: {RANKS}, {sizes}")
        rule = "-" * 24
        self._rank0(f"{rule} arguments {rule}")
        for name, value in sorted(arguments.items()):
            self._rank0(f"  {name} {'.' * (48 - len(name))} {value}")
        self._rank0(f"{'-' * 20} end of arguments {'-' * 21}")
        self.now += timedelta(seconds=21.3)
        self._load(loaded)
        self._phase("after model, optimizer, and learning rate scheduler are built")
        self._rank0("> building train, validation, and test datasets for GPT ...")
        self.now += timedelta(seconds=3.4)
        self._phase("before the start of training step")

    def _load(self, step: int | None) -> None:
        if step is None:
            self._rank0(
                f"WARNING: could not find the metadata file "
                f"{CHECKPOINTS}/latest_checkpointed_iteration.txt"
            )
            self._rank0("    will not load any checkpoints and will start from random")
            return
        self._rank0(f" loading checkpoint from {CHECKPOINTS} at iteration {step}")
        self.now += timedelta(seconds=6.2)
        self._rank0(
            f"  successfully loaded checkpoint from {CHECKPOINTS} [ t 1/1, p 1/1 ] "
            f"at iteration {step}"
        )

    def step(self, step: Step, extra_seconds: float = 0.0) -> None:
        """Take a step in; prints a line at the end of each interval and after the first one."""
        first, self.started = not self.started, True
        seconds = self.seconds * (1 + 0.012 * self.draw.gauss(0, 1)) + extra_seconds
        seconds += _COMPILATION_S if first else 0.0
        self.now += timedelta(seconds=seconds)
        self.window.append((step, seconds))
        if first or step.number % self.interval == 0:
            self.lines.append(f"[default7]: {self._training_line()}")
            self._memory_after(step.number)
            if not first:  # the first line is an extra one, its step counts in the second again
                self.window = []
        if self.draw.random() < 0.01:
            self.lines.append(self.draw.choice(_NOISE))

    def _training_line(self) -> str:
        last = self.window[-1][0]
        seconds = sum(s for _, s in self.window) / len(self.window)
        fields = [
            f"iteration {last.number:8d}/{self.total:8d}",
            f"consumed samples: {last.number * BATCH * RANKS:12d}",
            f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
            f"throughput per GPU (TFLOP/s/GPU): {251.0 * self.seconds / seconds:.1f}",
            f"learning rate: {last.lr:.6E}",
            f"global batch size: {BATCH * RANKS:5d}",
            *self._measured(last),
            f"number of skipped iterations: {sum(s.skipped for s, _ in self.window):3d}",
            f"number of nan iterations: {0:3d}",
        ]
        return f" [{self._stamp()}] " + " | ".join(fields) + " |"

    def _measured(self, last: Step) -> list[str]:
        losses = [s.loss for s, _ in self.window if s.loss is not None]
        loss = sum(losses) / len(losses) if losses else math.nan
        fields = [f"lm loss: {loss:.6E}"] if loss >= 0 else []  # a NaN compares false: no field
        fields.append(f"loss scale: {last.loss_scale:.1f}")
        if last.grad_norm is not None:
            fields.append(f"grad norm: {last.grad_norm:.3f}")
        return [*fields, f"params norm: {last.params_norm:.3f}"]

    def _memory_after(self, step: int) -> None:
        if self.memory_reports > 0:
            self.memory_reports -= 1
            self._rank0(f"[Rank 0] (after {step} iterations) {_MEMORY}")

    def validation(self, step: int, loss: float) -> None:
        """A validation line between dashes."""
        text = (
            f" validation loss at iteration {step} | lm loss value: {loss:.6E} | "
            f"lm loss PPL: {math.exp(min(20, loss)):.6E} | "
        )
        rule = "-" * len(text)
        self.now += timedelta(seconds=1.6)
        self.lines += [f"[default7]:{part}" for part in (rule, text, rule)]

    def saved(self, step: int) -> None:
        """A checkpoint, begun and confirmed, with memory reports (thrice at most) and its timer."""
        self.saves += 1
        seconds = _SAVE_S + 0.2 * self.draw.random()
        self._memory_at_save("before", step)
        where = f"to {CHECKPOINTS}"
        self._rank0(f"saving checkpoint at iteration {step:7d} {where} in torch_dist format")
        self.now += timedelta(seconds=seconds)
        self._rank0(
            f"  [{self._stamp()}] successfully saved checkpoint from iteration {step:7d} {where}"
        )
        self._memory_at_save("after", step)
        dots = "." * 32
        low, high = seconds * 1000 + 1.2, seconds * 1000 + 1.4
        self.lines += [
            "[default7]:INFO:megatron.core.timers:(min, max) time across ranks (ms):",
            f"[default7]:    save-checkpoint {dots}: ({low:.2f}, {high:.2f})",
        ]

    def _memory_at_save(self, when: str, step: int) -> None:
        if self.saves <= 3:
            self._rank0(f"[Rank 0] ({when} save_checkpoint for iteration {step}) {_MEMORY}")

    def finished(self) -> None:
        """The run comes to its end."""
        self._phase("after training is done")

    def raw(self, lines: Sequence[str]) -> None:
        """Lines of other makes."""
        self.lines += lines

    def text(self) -> str:
        """The whole log."""
        return "\n".join(self.lines) + "\n"

    def _phase(self, name: str) -> None:
        self._rank0(f"[{name}] datetime: {self._stamp()} ")

    def _stamp(self) -> str:
        return self.now.strftime("%Y-%m-%d %H:%M:%S.%f")

    def _rank0(self, text: str) -> None:
        self.lines.append(f"[default0]:{text}")


ARGUMENTS: dict[str, object] = {
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "clip_grad": 1.0,
    "global_batch_size": BATCH * RANKS,
    "hidden_size": WIDTH,
    "load": CHECKPOINTS,
    "log_interval": 1,
    "log_params_norm": True,
    "log_throughput": True,
    "lr": 0.002,
    "lr_decay_style": "cosine",
    "max_position_embeddings": LENGTH,
    "micro_batch_size": BATCH,
    "num_attention_heads": HEADS,
    "num_layers": LAYERS,
    "padded_vocab_size": VOCABULARY,
    "pipeline_model_parallel_size": 1,
    "save": CHECKPOINTS,
    "seq_length": LENGTH,
    "tensor_model_parallel_size": 1,
    "weight_decay": 0.01,
    "world_size": RANKS,
}
