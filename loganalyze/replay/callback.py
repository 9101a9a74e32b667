"""The recorder as a callback of a transformers Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loganalyze.errors import UsageError
from loganalyze.replay.recorder import Open, Recorder


def trainer_callback(folder: str | Path, **options: Any) -> Any:
    """A TrainerCallback that records every step; options are the Recorder's.

    Batches are taken where the model is called. Loss is the model's own; the gradient norm is
    known where the Trainer logs every step. Trainer(..., callbacks=[trainer_callback("blackbox")])
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UsageError("trainer_callback needs transformers", hint="pip install transformers") \
            from error  # fmt: skip
    made = type("LoganalyzeCallback", (_Recording, TrainerCallback), {})
    return made(folder, options)


class _Recording:
    """Opens a step when it begins and closes it when the next one does (logs come in between)."""

    def __init__(self, folder: str | Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.recorder: Recorder | None = None
        self._open: Open | None = None
        self._losses: list[Any] = []
        self._hooks: list[Any] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Hooks the model."""
        model, options = given["model"], dict(self.options)
        options.setdefault("precision", "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32")
        options.setdefault("clip", args.max_grad_norm or None)
        self.recorder = Recorder(self.folder, model, given.get("optimizer"), **options)
        self._hooks = [
            model.register_forward_pre_hook(self._called, with_kwargs=True),
            model.register_forward_hook(self._answered),
        ]

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The step before is over; this one begins."""
        self._close(control)
        if self.recorder is not None:
            if self.recorder.optimizer is None:
                self.recorder.optimizer = given.get("optimizer")
            self._open = self.recorder.step(state.global_step + 1, seed=args.seed)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        """The gradient norm, where it is logged."""
        norm = (logs or {}).get("grad_norm")
        if self._open is not None and norm is not None and self._open.number == state.global_step:
            self._open.log(grad_norm=float(norm))
            self._close(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The last step is over, the model is itself again."""
        self._close(control)
        if self.recorder is not None:
            self.recorder.close()
        for hook in self._hooks:
            hook.remove()

    def _called(self, model: Any, positional: Any, named: dict[str, Any]) -> None:
        if self._open is not None and model.training:
            self._open.add(dict(named))

    def _answered(self, model: Any, given: Any, result: Any) -> None:
        loss = getattr(result, "loss", None)
        if self._open is not None and model.training and loss is not None:
            self._losses.append(loss.detach())

    def _close(self, control: Any) -> None:
        opened, self._open = self._open, None
        if opened is None or self.recorder is None:
            return
        if self._losses:
            opened.log(loss=sum(self._losses[1:], self._losses[0]) / self._divisor(opened))
        self._losses = []
        self.recorder.close_step(opened, None)
        if self.recorder.should_stop:
            control.should_training_stop = True

    def _divisor(self, opened: Open) -> int:
        """Losses are means, unless the Trainer tells the model how many tokens there are."""
        summed = any("num_items_in_batch" in batch for batch in opened.micro_batches)
        return 1 if summed else len(self._losses)
