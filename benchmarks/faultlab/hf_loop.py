"""The real `transformers` Trainer around the lab's model: it accumulates, clips, steps, schedules,
logs, evaluates, saves and resumes. The lab gives batches, the loss, the fault's hands and the clock.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import tqdm
import transformers
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.faultlab.endings import ending
from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.injection import Ended, Injection
from benchmarks.faultlab.model import cross_entropy
from benchmarks.faultlab.schedule import learning_rate
from benchmarks.faultlab.training import Trainer
from benchmarks.faultlab.writers.base import EVALUATION_S, LAUNCH_S, SAVE_S
from benchmarks.faultlab.writers.hf import TRL

EVALUATIONS = 6  # batches
_RAISED = (IndexError, RuntimeError, ValueError)


class Rows(torch.utils.data.Dataset[int]):
    """As many rows as the text has; the lab itself knows which bytes a step sees."""

    def __init__(self, count: int) -> None:
        """count: of sequences."""
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> int:
        return row


def _collate(rows: list[int]) -> dict[str, Tensor]:
    return {"rows": torch.tensor(rows)}


class LabTrainer(transformers.Trainer):
    """`until`: the process dies before the step after this one, without a word."""

    def __init__(self, lab: Trainer, folder: Path, until: int) -> None:
        """lab: just built; folder: of the checkpoints."""
        self.lab, self.until, self.micro, self.losses = lab, until, 0, 0.0
        schedule = LambdaLR(lab.optimizer, self._share)
        rows = max(1, lab.data.windows // lab.recipe.batch) * lab.recipe.batch
        super().__init__(
            model=lab.model, args=arguments(lab, folder), train_dataset=Rows(rows),
            eval_dataset=Rows(EVALUATIONS * lab.recipe.batch), data_collator=_collate,
            optimizers=(lab.optimizer, schedule), callbacks=[Hands(lab, self)],
        )  # fmt: skip

    def _share(self, done: int) -> float:
        recipe, step = self.lab.recipe, done + 1
        wanted = self.lab.injection.rate(self.lab, step, learning_rate(recipe, step))
        return wanted / recipe.peak_lr

    def training_step(
        self, model: Any, inputs: Any, num_items_in_batch: Any = None
    ) -> Tensor:  # fmt: skip
        """Forward and backward of a micro-batch, as the lab's own loop does them."""
        lab, number = self.lab, self.state.global_step + 1
        if number > self.until:
            raise Ended("stopped")
        if self.micro == 0:
            lab.begin(number)
        loss = lab.forward_loss(number, self.micro) * lab.scale_loss
        if not loss.requires_grad:  # what people do about "does not require grad"
            loss.requires_grad_()
        with lab.clock.phase("backward", lab.share):
            self.accelerator.backward(loss)
        self.micro = (self.micro + 1) % lab.recipe.accumulation
        self.losses += float(loss.detach())
        if self.micro == 0:
            lab.injection.backward_done(lab, number)
        return loss.detach()

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Tensor, None, None]:
        """Loss of a held-out batch."""
        number = int(inputs["rows"][0]) // self.lab.recipe.batch
        self.lab.clock.skip(EVALUATION_S / EVALUATIONS)
        with torch.no_grad():
            batch = self.lab.data.held_out(number)
            return cross_entropy(self.lab.model(batch.inputs), batch.targets), None, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """A reinforcement loop's own measures beside the Trainer's, as TRL adds them."""
        if "loss" in logs:
            logs |= {TRL.get(k, k): v for k, v in self.lab.extra.items()}
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        extra = self.lab.injection.saving(self.lab, self.state.global_step)
        super()._save_checkpoint(model, trial)
        self.lab.clock.skip(SAVE_S + extra)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        state = self.lab.injection.loading(self.lab, {"optimizer": True})
        if not state["optimizer"]:
            self.optimizer.state.clear()


class Hands(transformers.TrainerCallback):
    """The places of a step where the lab has a say."""

    def __init__(self, lab: Trainer, trainer: LabTrainer) -> None:
        """lab and Trainer of the same run."""
        self.lab, self.trainer = lab, trainer

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Weights moved."""
        with self.lab.clock.phase("optimizer"):
            self.lab.round_weights()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The step is over: memory and clock. Raises Ended."""
        lab = self.lab
        lab.advanced = state.global_step
        with lab.clock.phase("after"):
            lab.injection.after(lab, state.global_step)
        lab.record(state.global_step, self.trainer.losses, 0.0, 0.0, skipped=False)
        self.trainer.losses = 0.0


def arguments(lab: Trainer, folder: Path) -> transformers.TrainingArguments:
    """The recipe in the Trainer's words."""
    r = lab.recipe
    return transformers.TrainingArguments(
        output_dir=str(folder), max_steps=r.total, per_device_train_batch_size=r.batch,
        per_device_eval_batch_size=r.batch, gradient_accumulation_steps=r.accumulation,
        learning_rate=r.peak_lr, adam_beta1=r.betas[0], adam_beta2=r.betas[1],
        adam_epsilon=r.eps, weight_decay=r.weight_decay, warmup_steps=r.warmup,
        max_grad_norm=r.clip, logging_steps=r.interval, save_steps=r.save, save_total_limit=2,
        eval_strategy="steps" if r.evaluate <= r.total else "no", eval_steps=r.evaluate,
        report_to=[], use_cpu=True, seed=r.seed, dataloader_drop_last=True,
        remove_unused_columns=False, prediction_loss_only=True,
    )  # fmt: skip


@contextlib.contextmanager
def _on_the_clock(lab: Trainer, console: io.StringIO) -> Iterator[None]:
    """The libraries print into `console` and take the time from the run's clock."""
    from transformers.utils import logging as said

    def now() -> float:
        return lab.clock.now.timestamp()

    clock = types.SimpleNamespace(time=now)
    tqdm.tqdm.monitor_interval = 0
    said.set_verbosity_info()
    logger = said.get_logger("transformers")
    kept, logger.handlers = logger.handlers, []
    said.add_handler(logging.StreamHandler(console))
    with (
        mock.patch("tqdm.std.time", now), mock.patch("transformers.trainer.time", clock),
        mock.patch("transformers.trainer_utils.time", clock),
        contextlib.redirect_stdout(console), contextlib.redirect_stderr(console),
    ):  # fmt: skip
        try:
            yield
        finally:
            logger.handlers = kept
            said.set_verbosity_warning()


def whole(lab: Trainer, fault: Fault, folder: Path) -> tuple[int, str]:
    """All processes of a run into folder/log; the last step begun and how it ended."""
    console, boxes = io.StringIO(), folder / "checkpoints"
    shutil.rmtree(boxes, ignore_errors=True)
    with _on_the_clock(lab, console):
        if fault.restart:
            last, how = _both(lab, fault, fault.saved(lab.recipe), boxes, console)
        else:
            last, how = _process(lab, boxes, None, lab.recipe.total, console)
    text = console.getvalue().replace(str(boxes), "/out/lab")
    (folder / "log" / "train.log").write_text(text, encoding="utf-8")
    _keep_state(boxes, folder / "log")
    return last, how


def _both(
    lab: Trainer, fault: Fault, saved: int, boxes: Path, console: io.StringIO
) -> tuple[int, str]:
    """A process that dies, and the one that resumes from its checkpoint with the fault in it."""
    injection, lab.injection = lab.injection, Injection(1)
    if fault.from_start:
        injection.built(lab)
    _process(lab, boxes, None, min(saved + 27, lab.recipe.total - 1), console)
    _end(console, ending(fault.restart_kind, "", lab.clock))
    lab.clock.skip(640)
    lab.injection = injection
    lab.build()
    return _process(lab, boxes, boxes / f"checkpoint-{saved}", lab.recipe.total, console)


def _process(
    lab: Trainer, boxes: Path, resume: Path | None, until: int, console: io.StringIO
) -> tuple[int, str]:
    from benchmarks.faultlab.faults_system import text_of

    lab.clock.skip(LAUNCH_S)
    trainer = LabTrainer(lab, boxes, until)
    try:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        trainer.save_state()
    except Ended as ended:
        _silence(trainer)
        if ended.kind != "stopped":
            _end(console, ending(ended.kind, ended.text, lab.clock))
        return _begun(lab, trainer), ended.kind
    except _RAISED as error:
        _silence(trainer)
        _end(console, ending("crash", text_of(error), lab.clock))
        return _begun(lab, trainer), "crash"
    return lab.recipe.total, "finished"


def _silence(trainer: LabTrainer) -> None:
    """A dead process draws no bar any more."""
    for callback in trainer.callback_handler.callbacks:
        for name in ("training_bar", "prediction_bar"):
            bar = getattr(callback, name, None)
            if bar is not None:
                bar.disable = True


def _begun(lab: Trainer, trainer: LabTrainer) -> int:
    """Last step begun: the one in work, or the one that had just ended."""
    done = int(trainer.state.global_step)
    return done + 1 if lab.clock.phases else done


def _end(console: io.StringIO, lines: list[str]) -> None:
    console.write("\n" + "\n".join(lines) + "\n")


def _keep_state(boxes: Path, log: Path) -> None:
    """trainer_state.json of the newest checkpoint, or of the end, into the log's folder."""
    found = [path for path in (boxes.rglob("trainer_state.json")) if path.is_file()]
    if found:
        newest = max(found, key=lambda p: json.loads(p.read_text("utf-8"))["global_step"])
        shutil.copy(newest, log / "trainer_state.json")
