"""TensorBoard: event files by torch's own SummaryWriter, under the names Megatron-LM gives them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.faultlab.recipe import StepRecord
from benchmarks.faultlab.writers.base import Writer, mean_of

Scalar = tuple[str, float, int, float]  # tag, value, step, time


class TensorBoardWriter(Writer):
    """A file of events for each process; console lines only where it ends badly."""

    logs = (
        "loss", "val_loss", "lr", "grad_norm", "params_norm", "loss_scale", "step_time_s",
        "mem_allocated_bytes", "mem_reserved_bytes", "global_batch_size",
    )  # fmt: skip

    def launch(self, loaded: int | None = None) -> None:
        """A new file begins; steps go on from the checkpoint."""
        if self.processes == 0:
            self.files: list[tuple[float, list[Scalar]]] = []
        super().launch(loaded)
        self.files.append((self.clock.now.timestamp(), []))

    def _add(self, step: int, values: dict[str, float]) -> None:
        now = self.clock.now.timestamp()
        self.files[-1][1].extend((tag, value, step, now) for tag, value in values.items())

    def interval(self, window: list[StepRecord]) -> None:
        """The scalars of a step; memory every tenth."""
        last = window[-1]
        skipped = {} if last.skipped else {"grad-norm": last.grad_norm}
        self._add(last.number, {
            "learning-rate": last.lr, "batch-size": self.recipe.global_batch,
            "lm loss": mean_of(window), "loss-scale": last.loss_scale, **skipped,
            "params-norm": last.params_norm, "iteration-time": last.seconds, **last.extra,
        })  # fmt: skip
        if last.number % 10 == 0:
            self._add(last.number, {"mem-allocated-bytes": last.allocated,
                                    "mem-reserved-bytes": last.reserved})  # fmt: skip

    def evaluated(self, step: int, loss: float) -> None:
        """The validation loss."""
        super().evaluated(step, loss)
        self._add(step, {"lm loss validation": loss})

    def write(self, folder: Path) -> None:
        """Event files, and the console beside them where the run ended badly."""
        from torch.utils.tensorboard import SummaryWriter

        for number, (began, scalars) in enumerate(self.files):
            parts = folder / f"part-{number}"
            events = SummaryWriter(str(parts))  # type: ignore[no-untyped-call]
            for tag, value, step, wall in scalars:
                events.add_scalar(tag, value, step, walltime=wall)  # type: ignore[no-untyped-call]
            events.close()  # type: ignore[no-untyped-call]
            (made,) = parts.iterdir()  # its name holds the machine and the time of the writing
            made.rename(folder / f"events.out.tfevents.{int(began)}.gpu-07.3051.{number}")
            parts.rmdir()
        if self.lines:
            super().write(folder)
