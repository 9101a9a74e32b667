"""A home-made loop in build-nanogpt's manner: one line of pairs a step."""

from __future__ import annotations

from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer


class PlainWriter(Writer):
    """`step 40 | loss: 5.12 | lr 1.2e-04 | norm: 0.91 | dt: 512.33ms | tok/sec: 1023456.78`."""

    logs = ("loss", "val_loss", "lr", "grad_norm", "step_time_s", "tokens_per_s")

    def launch(self, loaded: int | None = None) -> None:
        """Some settings and what was loaded."""
        super().launch(loaded)
        recipe = self.recipe
        self.lines += [
            f"total desired batch size: {recipe.global_batch * recipe.length}",
            f"=> calculated gradient accumulation steps: {recipe.accumulation}",
            f"num decayed parameter tensors: {4 * recipe.layers + 3}",
            "using fused AdamW: True",
        ]
        if loaded is not None:
            self.lines.append(f"resuming training from step {loaded}")

    def interval(self, window: list[StepRecord]) -> None:
        """One step a line; with replicas, a line of each rank."""
        for record in window:
            if not record.ranks:
                self.lines.append(self._line(record, record.loss, record.grad_norm, record.seconds))
            for rank, (loss, norm, seconds) in enumerate(record.ranks):
                line = self._line(record, loss, norm, seconds)
                self.lines.append(f"[rank{rank}]: {line}")

    def _line(self, record: StepRecord, loss: float, norm: float, seconds: float) -> str:
        return (
            f"step {record.number:5d} | loss: {loss:.6f} | lr {record.lr:.4e} | "
            f"norm: {norm:.4f} | dt: {seconds * 1000:.2f}ms | "
            f"tok/sec: {record.tokens / max(1e-9, seconds):.2f}"
        )

    def evaluated(self, step: int, loss: float) -> None:
        """nanoGPT's evaluation line."""
        super().evaluated(step, loss)
        self.lines.append(f"step {step}: train loss {loss * 0.99:.4f}, val loss {loss:.4f}")

    def saved(self, step: int, seconds: float) -> None:
        """nanoGPT's words."""
        super().saved(step, seconds)
        self.lines.append("saving checkpoint to out")
