"""Faults of the learning rate, the optimizer, precision and resuming."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.injection import Batch, Injection
from benchmarks.faultlab.schedule import learning_rate
from benchmarks.faultlab.training import Trainer

_UNSTABLE = ("loss_spike", "loss_divergence", "grad_explosion", "loss_plateau", "no_learning",
             "loss_oscillation", "loss_nonfinite")  # fmt: skip
_NAN = ("loss_nonfinite", "grad_nonfinite", "loss_scale_collapse", "skipped_steps",
        "grad_explosion", "loss_divergence", "loss_spike")  # fmt: skip
_RESUMED = ("loss_discontinuity", "loss_spike", "loss_divergence", "grad_explosion")


class RateJump(Injection):
    """The learning rate is 25 times as high from the onset on."""

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """The jump stands in the log."""
        return lr * 25 if step >= self.onset else lr


class RateReset(Injection):
    """After the resume the schedule begins anew, at its peak and without warm-up."""

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """Peak, 8 times what the model has seen of late."""
        return trainer.recipe.peak_lr * 3 if step >= self.onset else lr


class NoOptimizer(Injection):
    """The checkpoint comes without moments: the first steps are as long as Adam's first ever."""

    def loading(self, trainer: Trainer, state: dict[str, Any]) -> dict[str, Any]:
        """Weights only."""
        return {**state, "optimizer": None}


class Replayed(Injection):
    """The resumed loader starts at its first batch: text that was learnt already, in small."""

    def built(self, trainer: Trainer) -> None:
        """Epoch order on a text that one run barely covers."""
        trainer.data.order = "epochs"

    def loading(self, trainer: Trainer, state: dict[str, Any]) -> dict[str, Any]:
        """Back to the start of the data."""
        trainer.data.offset = -(self.onset - 1)
        return state


class OtherOrder(Injection):
    """The resumed loader lost its shuffling: the file's order, topic by topic."""

    def loading(self, trainer: Trainer, state: dict[str, Any]) -> dict[str, Any]:
        """One block of another topic first."""
        from benchmarks.faultlab.text import listing, prose

        seed = trainer.recipe.seed
        trainer.data.swap(listing(seed, 1500) + prose(seed, 1500))
        trainer.data.order, trainer.data.offset = "file", -self.onset
        return state


class Overflowing(Injection):
    """A feed-forward layer grows by a quarter a step until its output leaves float16's range."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Grow the second layer of the first block."""
        if step >= self.onset:
            with torch.no_grad():
                trainer.model.dense(0).down.weight.mul_(1.25)


class ScaleCollapse(Injection):
    """One layer's gradient is infinite from the onset on: every step halves the scale."""

    def backward_done(self, trainer: Trainer, step: int) -> None:
        """As a kernel that divides by zero."""
        grad = trainer.model.block(1).out.weight.grad
        if step >= self.onset and grad is not None:
            grad[0, 0] = float("inf")


class MaskedRow(Injection):
    """One batch holds a sequence whose attention mask is empty: softmax over nothing is NaN."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """A padding mask of the whole row, at the onset only; the weights are lost after it."""
        trainer.model.mask = None
        if step == self.onset:
            rows, length = batch.inputs.shape
            mask = torch.ones(length, length, dtype=torch.bool).tril().repeat(rows, 1, 1, 1)
            mask[0] = False
            trainer.model.mask = mask
        return batch


class Frozen(Injection):
    """Nothing trains: gradients are off in the whole model."""

    def built(self, trainer: Trainer) -> None:
        """requires_grad is off."""
        trainer.model.requires_grad_(False)


class DeadLayer(Injection):
    """A block's output is cut to nothing at the onset and gets no gradient any more."""

    def before(self, trainer: Trainer, step: int) -> None:
        """The tap zeroes what layer 1 gives."""
        if step == self.onset:
            trainer.model.tap = lambda layer, x: x * 0.0 if layer == 1 else x


class Exploding(Injection):
    """A layer's weights grow by 12 % a step for 40 steps."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Faster than training can pull it back."""
        if self.onset <= step < self.onset + 40:
            with torch.no_grad():
                trainer.model.block(1).out.weight.mul_(1.12)


class Unscaled(Injection):
    """Micro-batches are summed and not averaged."""

    def built(self, trainer: Trainer) -> None:
        """The division is missing."""
        trainer.scale_loss = 1.0


def _flip(tensor: Tensor, place: int, bit: int) -> None:
    """Flip one bit of a float32 tensor in place."""
    flat = tensor.detach().view(-1).view(torch.int32)
    flat[place % flat.numel()] ^= 1 << bit


class FlipWeight(Injection):
    """The highest exponent bit of one weight flips, once: 2^128 times as large."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Some small weight becomes enormous."""
        if step == self.onset:
            _flip(trainer.model.block(0).qkv.weight, trainer.recipe.seed * 101, 30)


class FlipActivation(Injection):
    """A lane of a matrix unit gives wrong exponents in one step."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Only that step's forward pass."""
        if step == self.onset:
            trainer.model.tap = lambda layer, x: self._spoil(x, trainer) if layer == 0 else x
        elif step == self.onset + 1:
            trainer.model.tap = None

    def _spoil(self, x: Tensor, trainer: Trainer) -> Tensor:
        spoilt = x.clone()
        with torch.no_grad():
            spoilt[..., trainer.recipe.seed % x.shape[-1]].mul_(2.0**16)
        return spoilt


class FlipGradient(Injection):
    """An exponent bit flips in one gradient, so clipping turns all others to nothing."""

    def backward_done(self, trainer: Trainer, step: int) -> None:
        """One step in six, as a broken adder would."""
        grad = trainer.model.block(0).qkv.weight.grad
        if step >= self.onset and (step - self.onset) % 6 == 0 and grad is not None:
            grad.view(-1)[trainer.recipe.seed * 101 % grad.numel()] = 3.1e4


class HotWarmup(Injection):
    """Healthy: a rate near the edge makes bumps until the warm-up is over."""

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """Three times the rate for a short while, early on."""
        return lr * 3 if 12 <= step <= 26 else lr


class SavedRestarts(Injection):
    """Healthy: nothing; the schedule itself restarts as planned."""

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """The schedule's own."""
        return learning_rate(trainer.recipe, trainer.advanced + 1)


_LR_HIGH = ("C.LR.TOO_HIGH", "C.LR.TOO_HIGH_LATE", "C.RECIPE.UNSTABLE")
_SDC = ("C.HW.SDC", "C.SPIKE.TRANSIENT", "C.STATE.NAN_WEIGHTS", "C.STATE.NAN_FORWARD")
_WITH_NORM = ("megatron", "hf", "wandb", "plain", "tensorboard")
_FP16 = {"precision": "fp16", "loss_scale": 2.0**12}
_SCALED = ("megatron", "deepspeed")

FAULTS = (
    Fault(name="lr_too_high", family="rate", recipe={"peak_lr": 1.0, "clip": 0.0}, at=0.0,
          kinds=(*_UNSTABLE, "config_audit"), causes=_LR_HIGH, metrics=("loss", "lr")),
    Fault(name="lr_jump", family="rate", make=RateJump, kinds=(*_UNSTABLE, "lr_schedule"),
          causes=(*_LR_HIGH, "C.LR.SCHEDULE"), metrics=("loss", "lr")),
    Fault(name="lr_no_warmup", family="rate", recipe={"warmup": 0, "peak_lr": 0.03, "clip": 0.0}, at=0.0,
          kinds=(*_UNSTABLE, "lr_schedule", "config_audit"), causes=(*_LR_HIGH, "C.LR.SCHEDULE"),
          metrics=("loss", "lr")),
    Fault(name="lr_too_low", family="rate", recipe={"peak_lr": 2e-6}, at=0.0,
          kinds=("loss_plateau", "no_learning", "loss_frozen"), causes=("C.LR.TOO_LOW",),
          metrics=("loss", "lr")),
    Fault(name="lr_schedule_short", family="rate", at=0.0,
          recipe={"planned": 60, "min_lr_share": 0.0},
          kinds=("lr_schedule", "loss_plateau", "no_learning"),
          causes=("C.LR.SCHEDULE_SHRUNK", "C.LR.SCHEDULE", "C.LR.TOO_LOW"),
          metrics=("loss", "lr")),
    Fault(name="betas_eps", family="rate", recipe={"betas": (0.5, 0.999999), "eps": 0.3}, at=0.0,
          kinds=("loss_plateau", "no_learning", "config_audit"),
          causes=("C.CONFIG.UNUSUAL", "C.RECIPE.UNSTABLE", "C.LR.TOO_LOW"), metrics=("config",)),
    Fault(name="lr_reset_on_resume", family="resume", make=RateReset, restart=0.6,
          kinds=(*_RESUMED, "lr_schedule"), causes=("C.RESUME.LR_RESET",),
          metrics=("loss", "lr")),
    Fault(name="resume_without_optimizer", family="resume", make=NoOptimizer, restart=0.6,
          recipe={"decay": "constant", "betas": (0.9, 0.999), "peak_lr": 8e-3}, kinds=_RESUMED,
          causes=("C.RESUME.OPT_STATE",)),
    Fault(name="resume_replays_data", family="resume", make=Replayed, restart=0.6, from_start=True,
          recipe={"sentences": 900, "weight_decay": 0.0}, kinds=(*_RESUMED, "loss_too_low"),
          causes=("C.RESUME.DATA_REPLAY", "C.DATA.EPOCH_MEMORISE")),
    Fault(name="resume_wrong_order", family="resume", make=OtherOrder, restart=0.6,
          kinds=_RESUMED, causes=("C.RESUME.DATA_ORDER", "C.RESUME.DATA_REPLAY",
                                  "C.DATA.SHUFFLE", "C.DATA.SHIFT")),
    Fault(name="fp16_overflow", family="precision", make=Overflowing, recipe=_FP16, kinds=_NAN,
          causes=("C.PREC.FP16_OVERFLOW", "C.GRAD.EXPLODE_LAYER"), metrics=("loss", "loss_scale"),
          trainers=_SCALED),
    Fault(name="loss_scale_collapse", family="precision", make=ScaleCollapse, recipe=_FP16,
          kinds=_NAN, metrics=("loss", "loss_scale"), trainers=_SCALED,
          causes=("C.PREC.FP16_OVERFLOW", "C.STATE.NAN_WEIGHTS", "C.STATE.NAN_FORWARD",
                  "C.GRAD.EXPLODE_LAYER", "C.KERNEL.ATTN", "C.MASK.ALL_INF")),
    Fault(name="bf16_without_master", family="precision", at=0.0,
          recipe={"master": False, "peak_lr": 4e-4},
          kinds=("loss_plateau", "no_learning", "loss_frozen", "update_ratio"),
          causes=("C.PREC.NO_MASTER",), metrics=("params_norm",)),
    Fault(name="mask_all_inf", family="precision", make=MaskedRow, kinds=_NAN,
          causes=("C.MASK.ALL_INF", "C.STATE.NAN_WEIGHTS", "C.STATE.NAN_FORWARD")),
    Fault(name="frozen_model", family="layers", make=Frozen, at=0.0, trainers=_WITH_NORM,
          kinds=("grad_vanishing", "no_learning", "loss_frozen", "loss_plateau"),
          causes=("C.GRAD.NO_GRAPH", "C.GRAD.DEAD_MODULE"), metrics=("loss", "grad_norm")),
    Fault(name="dead_layer", family="layers", make=DeadLayer,
          kinds=("loss_spike", "loss_divergence", "grad_vanishing", "loss_plateau",
                 "loss_frozen"),
          causes=("C.GRAD.DEAD_MODULE", "C.GRAD.VANISHING", "C.GRAD.NO_GRAPH")),
    Fault(name="exploding_layer", family="layers", make=Exploding,
          kinds=_UNSTABLE, causes=("C.GRAD.EXPLODE_LAYER", "C.GRAD.EXPLOSION", "C.GRAD.DRIFT")),
    Fault(name="bad_init", family="layers", recipe={"init_std": 0.8}, at=0.0,
          kinds=(*_UNSTABLE, "config_audit"), causes=("C.INIT.STD",),
          metrics=("vocab_size",)),  # without it, 12 nat may be chance
    Fault(name="accumulation_unscaled", family="scale", make=Unscaled, at=0.0,
          recipe={"accumulation": 4, "batch": 4}, kinds=("loss_misscaled",),
          causes=("C.SCALE.GRAD_ACCUM", "C.SCALE.FUSED_LOSS", "C.SCALE.TOKEN_NORM")),
    Fault(name="bitflip_weight", family="hardware", make=FlipWeight, kinds=_NAN, causes=_SDC, recorded=True),
    Fault(name="bitflip_activation", family="hardware", make=FlipActivation, kinds=_NAN,
          causes=_SDC, trainers=_WITH_NORM),
    Fault(name="bitflip_gradient", family="hardware", make=FlipGradient, causes=(*_SDC,
          "C.GRAD.EXPLODE_LAYER"), kinds=("grad_explosion", "grad_oscillation", "loss_spike",
          "grad_clip_rate"), metrics=("grad_norm",), trainers=_WITH_NORM),
    Fault(name="healthy", family="healthy", healthy=True),
    Fault(name="healthy_warmup_bumps", family="healthy", make=HotWarmup, healthy=True),
    Fault(name="healthy_lr_restarts", family="healthy", make=SavedRestarts, healthy=True,
          recipe={"decay": "cycles"}),
    Fault(name="healthy_resume", family="healthy", healthy=True, restart=0.6,
          restart_kind="time_limit"),
    Fault(name="healthy_fp16_search", family="healthy", healthy=True, trainers=_SCALED,
          recipe={"precision": "fp16", "loss_scale": 2.0**24}),
)  # fmt: skip
