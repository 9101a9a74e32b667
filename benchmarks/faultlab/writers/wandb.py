"""Weights & Biases: the real package offline where it is there, else the old JSONL layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.faultlab.model import VOCABULARY
from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer, mean_of, real

_GIB = 1024**3


class WandbWriter(Writer):
    """Rows of history, configuration, system metrics; console lines only where it ends badly."""

    logs = (
        "loss", "val_loss", "lr", "grad_norm", "params_norm", "step_time_s", "data_time_s",
        "tokens_per_s", "mem_active_bytes", "mem_peak_reserved_bytes", "host_rss_bytes", "host_mem_used_bytes", "kl",
        "entropy", "reward", "response_length", "config",
        "vocab_size",
    )  # fmt: skip

    def launch(self, loaded: int | None = None) -> None:
        """Rows go on where they were: W&B's own counter never goes back."""
        if self.processes == 0:
            self.rows: list[dict[str, Any]] = []
            self.system: list[dict[str, Any]] = []
            self.began = self.clock.now.timestamp()
            self.exit_code = 0
        super().launch(loaded)

    def settings(self) -> dict[str, object]:
        """The run's configuration."""
        r = self.recipe
        precision = {"bf16": r.precision == "bf16", "fp16": r.precision == "fp16"}
        return {"learning_rate": r.peak_lr, "warmup_steps": r.warmup, "max_steps": r.total,
                "lr_scheduler_type": r.decay, "adam_beta1": r.betas[0], "adam_beta2": r.betas[1],
                "adam_epsilon": r.eps, "max_grad_norm": r.clip, "weight_decay": r.weight_decay,
                "per_device_train_batch_size": r.batch, "seed": r.seed, "vocab_size": VOCABULARY,
                "gradient_accumulation_steps": r.accumulation, **precision}  # fmt: skip

    def interval(self, window: list[StepRecord]) -> None:
        """A row of history; system metrics every tenth."""
        last = window[-1]
        row: dict[str, Any] = {
            "train/loss": mean_of(window), "train/grad_norm": last.grad_norm,
            "train/learning_rate": last.lr, "train/params_norm": last.params_norm,
            "train/step_time": last.seconds, "train/data_time": last.phases.get("data", 0.0),
            "train/tokens_per_sec": last.tokens / max(1e-9, last.seconds),
            "memory/max_active(GiB)": last.allocated / _GIB,
            "memory/max_reserved(GiB)": last.reserved / _GIB,
            "train/global_step": last.number,
            **{f"train/{name}": value for name, value in last.extra.items()},
        }  # fmt: skip
        if last.number % 10 == 0:
            row["perf/cpu_memory_used_gb"] = last.host / _GIB
        self._row(row)
        if last.number % 10 == 0:
            self.system.append({
                "system.proc.memory.rssMB": last.host / 1024**2,
                "system.gpu.0.memoryAllocatedBytes": last.reserved,
                "system.gpu.0.gpu": 97.0, "system.gpu.0.temp": 61.0,
                **self._when(), "_wandb": True,
            })  # fmt: skip

    def _row(self, row: dict[str, Any]) -> None:
        self.rows.append({**row, **self._when(), "_step": len(self.rows)})

    def _when(self) -> dict[str, float]:
        now = self.clock.now.timestamp()
        return {"_timestamp": now, "_runtime": round(now - self.began, 3)}

    def evaluated(self, step: int, loss: float) -> None:
        """A row of its own."""
        super().evaluated(step, loss)
        self._row({"eval/loss": loss, "train/global_step": step})

    def write(self, folder: Path) -> None:
        """A run folder, and the console beside it where the run ended badly."""
        if real("wandb"):
            self._real(folder)
        else:
            self._legacy(folder / "wandb" / f"run-20260504_211703-lab{self.recipe.seed:05d}")

    def _legacy(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        for name, rows in (("wandb-history.jsonl", self.rows), ("wandb-events.jsonl", self.system)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (run / name).write_text(text, encoding="utf-8")
        (run / "wandb-summary.json").write_text(json.dumps(self.rows[-1]), encoding="utf-8")
        values = "".join(
            f"{key}:\n  desc: null\n  value: {json.dumps(value)}\n"
            for key, value in self.settings().items()
        )
        (run / "config.yaml").write_text("wandb_version: 1\n\n" + values, encoding="utf-8")
        if self.lines:
            (run / "output.log").write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def _real(self, folder: Path) -> None:
        """The rows through the package itself, offline, on the run's clock.

        Its own monitor would measure this machine; host memory is among the rows instead.
        """
        import wandb

        shutil.rmtree(folder / "wandb", ignore_errors=True)
        run = wandb.init(
            project="lab", mode="offline", dir=folder, config=dict(self.settings()),
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True,
                                    x_start_time=self.began),
        )  # fmt: skip
        for row in self.rows:
            run.log({k: v for k, v in row.items() if k not in ("_step", "_runtime")})
        run.finish(exit_code=1 if self.lines else 0)
        if self.lines:
            text = "\n".join(self.lines) + "\n"
            (Path(run.dir) / "output.log").write_text(text, encoding="utf-8")
