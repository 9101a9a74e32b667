"""Faults of the reinforcement loop."""

from __future__ import annotations

from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.injection import Injection
from benchmarks.faultlab.rl import PolicyTrainer
from benchmarks.faultlab.training import Trainer


class EntropyCollapse(Injection):
    """The entropy's weight turns against it at the onset, and the reference lets go."""

    def before(self, trainer: Trainer, step: int) -> None:
        """A wrong sign."""
        if step == self.onset and isinstance(trainer, PolicyTrainer):
            trainer.entropy_weight, trainer.kl_weight = -0.2, 0.0


class KLBlowup(Injection):
    """No hold on the reference any more, and a rate six times as high."""

    def before(self, trainer: Trainer, step: int) -> None:
        """The penalty is gone."""
        if step == self.onset and isinstance(trainer, PolicyTrainer):
            trainer.kl_weight = 0.0

    def rate(self, trainer: Trainer, step: int, lr: float) -> float:
        """Visible in the log."""
        return lr * 6 if step >= self.onset else lr


_LOOP = {"total": 200, "peak_lr": 1e-3, "warmup": 5, "decay": "constant", "evaluate": 10**6,
         "save": 100}  # fmt: skip
_TRAINERS = ("hf", "wandb")

FAULTS = (
    Fault(name="entropy_collapse", family="rl", make=EntropyCollapse, recipe=_LOOP, loop="rl",
          trainers=_TRAINERS, kinds=("entropy_collapse",), metrics=("entropy",), at=0.5,
          causes=("C.RL.ENTROPY",)),
    # The rate is a part of the fault: a diagnosis that names it is right.
    Fault(name="kl_blowup", family="rl", make=KLBlowup, recipe=_LOOP, loop="rl",
          trainers=_TRAINERS, at=0.5, metrics=("kl", "lr"),
          kinds=("kl_blowup", "reward_anomaly", "entropy_collapse", "lr_schedule",
                 "grad_explosion"),
          causes=("C.RL.KL_DRIFT", "C.RL.UNSTABLE_UPDATE", "C.LR.TOO_HIGH", "C.LR.SCHEDULE")),
    Fault(name="healthy_rl", family="healthy", recipe=_LOOP, loop="rl", trainers=_TRAINERS,
          healthy=True),
)  # fmt: skip
