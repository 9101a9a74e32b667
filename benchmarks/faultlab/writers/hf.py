"""Hugging Face's Trainer: console dictionaries beside a progress bar, and trainer_state.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer

#: Keys of TRL that the lab's reinforcement loop fills.
TRL = {"reward": "reward", "kl": "kl", "entropy": "entropy", "length": "completions/mean_length"}


class HFWriter(Writer):
    """The NaN filter is on, as by default: a NaN loss is logged as the window's mean so far."""

    logs = ("loss", "val_loss", "lr", "grad_norm", "epoch", "kl", "entropy", "reward",
            "response_length")  # fmt: skip

    def launch(self, loaded: int | None = None) -> None:
        """The head of a training."""
        if self.processes == 0:
            self.history: list[dict[str, Any]] = []
            self.epoch = 0.0
        super().launch(loaded)
        r = self.recipe
        self.began, self.shown = self.clock.now, loaded or 0
        if loaded is not None:  # the state is read back: later rows were never saved
            self.history = [row for row in self.history if row["step"] <= loaded]
        self.lines += [
            "***** Running training *****",
            f"  Num examples = {r.sentences * 11 // 10:,}",
            f"  Instantaneous batch size per device = {r.batch}",
            "  Total train batch size (w. parallel, distributed & accumulation) = "
            f"{r.global_batch:,}",
            f"  Gradient Accumulation steps = {r.accumulation}",
            f"  Total optimization steps = {r.total:,}",
        ]

    def interval(self, window: list[StepRecord]) -> None:
        """A dictionary behind the bar."""
        last = window[-1]
        row: dict[str, Any] = {"loss": round(filtered(window), 4)}
        row["grad_norm"] = last.grad_norm
        row["learning_rate"] = last.lr
        row.update({TRL.get(k, k): round(v, 6) for k, v in last.extra.items()})
        self.epoch = round(last.epoch, 4)
        row["epoch"] = self.epoch
        self._bar(last.number)
        self.lines[-1] += str(row)
        self.history.append({**row, "step": last.number})

    def _bar(self, step: int) -> None:
        total, spent = self.recipe.total, int((self.clock.now - self.began).total_seconds())
        rate = (step - self.shown) / max(1, spent)
        left = int((total - step) / max(rate, 1e-6))
        share = 100 * step // total
        self.lines.append(
            f"\r{share:3d}%|{'█' * (share // 10):10s}| {step}/{total} [{spent // 60:02d}:"
            f"{spent % 60:02d}<{left // 60:02d}:{left % 60:02d}, {rate:5.2f}it/s]"
        )

    def evaluated(self, step: int, loss: float) -> None:
        """The evaluation's dictionary."""
        super().evaluated(step, loss)
        row = {
            "eval_loss": loss, "eval_runtime": 2.4, "eval_samples_per_second": 30.1,
            "eval_steps_per_second": 2.508,
            "epoch": self.epoch,
        }  # fmt: skip
        self.lines.append(str(row))
        self.history.append({**row, "step": step})

    def saved(self, step: int, seconds: float) -> None:
        """The log says where."""
        super().saved(step, seconds)
        self.lines.append(f"Saving model checkpoint to /out/lab/checkpoint-{step}")

    def finished(self) -> None:
        """The summary."""
        spent = (self.clock.now - self.began).total_seconds()
        rate = self.recipe.total / max(1.0, spent)
        row = {"train_runtime": round(spent, 4), "train_samples_per_second": round(rate * 96, 3),
               "train_steps_per_second": round(rate, 3), "train_loss": 1.5}  # fmt: skip
        losses = [x["loss"] for x in self.history if "loss" in x]
        row["train_loss"] = sum(losses) / max(1, len(losses))
        self.lines.append(str({**row, "epoch": self.epoch}))

    def write(self, folder: Path) -> None:
        """The console and the state beside it."""
        super().write(folder)
        step = self.history[-1]["step"] if self.history else 0
        state = {
            "best_metric": None, "best_model_checkpoint": None, "epoch": 1.0,
            "eval_steps": self.recipe.evaluate, "global_step": step,
            "is_hyper_param_search": False, "is_local_process_zero": True,
            "is_world_process_zero": True, "log_history": self.history,
            "logging_steps": self.recipe.interval, "max_steps": self.recipe.total,
            "num_train_epochs": 1, "save_steps": self.recipe.save, "total_flos": 0.0,
            "train_batch_size": self.recipe.batch, "trial_name": None, "trial_params": None,
        }  # fmt: skip
        (folder / "trainer_state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")


def filtered(window: list[StepRecord]) -> float:
    """Mean of the window with the Trainer's NaN filter (logging_nan_inf_filter)."""
    total = 0.0
    for count, record in enumerate(window, 1):
        bad = not math.isfinite(record.loss) or record.skipped
        total += total / count if bad else record.loss
    return total / len(window)
