"""Inputs for the speed benchmark: logs as trainers print them, of any length, always the same."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

_BEGIN = datetime(2031, 3, 4, 5, 6, 7, tzinfo=UTC)
_NOISE: tuple[Callable[[random.Random, int], str], ...] = (
    lambda r, step: "",
    lambda r, step: f"[rank{r.randrange(8)}]: NCCL INFO Channel {r.randrange(24):02d}/0 : 3 -> 4",
    lambda r, step: "WARNING:megatron.core.utils:fused kernel is not built, the plain one is used",
    lambda r, step: f"node{r.randrange(64):02d}:41:97 [{r.randrange(8)}] NCCL INFO comm 0x7f rank 5",
    lambda r, step: "/opt/lib/functional.py:88: UserWarning: padding_side is deprecated",
    lambda r, step: " > building indices of the blend, this may take a while",
    lambda r, step: f"  saving checkpoint at iteration {step:7d} to /data/ckpt",
    lambda r, step: "(min, max) time across ranks (ms):",
    lambda r, step: f"    forward-backward ....: ({r.uniform(900, 990):.2f}, {r.uniform(990, 1100):.2f})",
)  # fmt: skip


def megatron(path: Path, steps: int, seed: int = 1) -> None:
    """A Megatron console: a line a step, one line in ten noise, launcher prefixes on a part."""
    made = random.Random(seed)
    moment = _BEGIN
    with path.open("w") as file:
        for step in range(1, steps + 1):
            seconds = 1.35 + 0.03 * made.gauss(0, 1)
            moment += timedelta(seconds=seconds)
            prefix = "[default7]:" if made.random() < 0.2 else ""
            file.write(prefix + _megatron_line(made, step, steps, seconds, moment))
            if made.random() < 1 / 9:
                weight = made.random()  # rare: check-points and timers
                kind = made.randrange(6) if weight < 0.99 else made.randrange(6, len(_NOISE))
                file.write(_NOISE[kind](made, step) + "\n")


def _megatron_line(
    made: random.Random, step: int, steps: int, seconds: float, moment: datetime
) -> str:
    fields = (
        f"consumed samples: {step * 1024:12d}",
        f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
        f"throughput per GPU (TFLOP/s/GPU): {540 / seconds:.1f}",
        f"learning rate: {3e-4 * (1 - step / steps / 1.1):.6E}",
        f"global batch size: {1024:5d}",
        f"lm loss: {2 + 8 * step**-0.1 + made.gauss(0, 0.03):.6E}",
        f"load_balancing_loss: {1 + 0.01 * made.random():.6E}",
        "loss scale: 1.0",
        f"grad norm: {abs(0.4 + 0.1 * made.gauss(0, 1)):.3f}",
        f"num zeros: {made.randint(0, 99999)}",
        f"params norm: {600 + step / 1e4:.3f}",
        "number of skipped iterations:   0",
        "number of nan iterations:   0",
    )
    stamp = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return f" [{stamp}] iteration {step:8d}/{steps:8d} | {' | '.join(fields)} |\n"


def huggingface(path: Path, rows: int, seed: int = 1) -> None:
    """A Trainer's console without a bar: dictionaries and a little noise."""
    made = random.Random(seed)
    with path.open("w") as file:
        for index in range(rows):
            row = {
                "loss": round(2 + made.gauss(0, 0.1), 4), "grad_norm": made.uniform(0.1, 2.0),
                "learning_rate": 1e-4 * (1 - index / rows), "epoch": round(3 * index / rows, 4),
            }  # fmt: skip
            file.write(f"{row}\n")
            if made.random() < 0.02:
                file.write("Some tokens of the batch were cut off\n")


def loop(path: Path, steps: int, seed: int = 1) -> None:
    """The console of a loop of one's own: a line a step, and a check-point now and then."""
    made = random.Random(seed)
    with path.open("w") as file:
        for step in range(1, steps + 1):
            file.write(
                f"step {step:7d} | loss {2 + 8 * step**-0.1 + made.gauss(0, 0.03):.6f} | "
                f"lr {3e-4 * (1 - step / steps / 1.1):.2e} | norm {made.uniform(0.1, 2):.4f} | "
                f"dt {made.gauss(203, 3):.2f}ms | tok/s {made.gauss(12050, 100):.1f}\n"
            )
            if step % 1000 == 0:
                file.write(f"saving checkpoint to out/ckpt_{step}.pt\n")


def epochs(path: Path, steps: int, seed: int = 1) -> None:
    """The console of a loop whose batches begin anew in each of ten epochs."""
    made = random.Random(seed)
    size = max(1, steps // 10)
    with path.open("w") as file:
        for epoch in range(1, 11):
            for step in range(1, size + 1):
                loss = 2 + 8 * (epoch * size + step) ** -0.1 + made.gauss(0, 0.03)
                file.write(
                    f"Epoch [{epoch}/10], Step [{step}/{size}], Loss: {loss:.4f}, lr: 0.0003, "
                    f"time: {made.gauss(0.5, 0.01):.3f}s\n"
                )
            file.write(f"Epoch [{epoch}/10] finished, val_loss: {loss:.4f}\n")


def deepspeed(path: Path, steps: int, seed: int = 1) -> None:
    """An engine's console: a progress line and a throughput line each step."""
    made = random.Random(seed)
    moment = _BEGIN
    with path.open("w") as file:
        for step in range(1, steps + 1):
            moment += timedelta(seconds=1.2)
            stamp = moment.strftime("%Y-%m-%d %H:%M:%S,") + f"{made.randrange(1000):03d}"
            file.write(
                f"[{stamp}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, "
                f"lr=[{3e-4 * made.random()!r}], mom=[(0.9, 0.95)]\n"
            )
            file.write(
                f"[{stamp}] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step="
                f"{step}, RunningAvgSamplesPerSec={made.uniform(7, 9)!r}, CurrSamplesPerSec="
                f"{made.uniform(6, 10)!r}, MemAllocated=20.11GB, MaxMemAllocated=31.5GB\n"
            )


def _records(rows: int, seed: int) -> Iterator[dict[str, float]]:
    made = random.Random(seed)
    for step in range(1, rows + 1):
        row = {f"metrics/m{k}": made.uniform(0, 9) for k in range(16)}
        yield {
            "_step": step, "train/loss": made.uniform(1, 3), "train/lr": made.random() * 1e-4, **row
        }  # fmt: skip


def history_json(path: Path, rows: int, seed: int = 1) -> None:
    """An exported history: one JSON object a line."""
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in _records(rows, seed))


def history_csv(path: Path, rows: int, seed: int = 1) -> None:
    """An exported history as a table."""
    with path.open("w") as file:
        for number, row in enumerate(_records(rows, seed)):
            if not number:
                file.write(",".join(row) + "\n")
            file.write(",".join(map(repr, row.values())) + "\n")


def trainer_state(path: Path, rows: int, seed: int = 1) -> None:
    """A Trainer's state file."""
    made = random.Random(seed)
    history = [
        {"epoch": 3 * k / rows, "grad_norm": made.uniform(0.1, 2), "learning_rate": 1e-4 * made.random(),
         "loss": made.uniform(1, 3), "step": k}
        for k in range(1, rows + 1)
    ]  # fmt: skip
    document = {"epoch": 3.0, "global_step": rows, "log_history": history, "max_steps": rows}
    path.write_text(json.dumps(document, indent=2))


def nothing(path: Path, rows: int) -> None:
    """Made by a peer: see make_events() in speed_peers.py."""
