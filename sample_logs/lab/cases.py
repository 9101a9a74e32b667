"""The cases: each a run that is really trained, with or without a fault."""

from __future__ import annotations

import math
from collections.abc import Callable

from lab.endings import given_up, node_failure
from lab.megatron_log import ARGUMENTS, MegatronLog
from lab.train import (
    Fault,
    Scaler,
    Step,
    Trainer,
    exploding_layer,
    shrinking_second_moment,
    steps,
)

_EVALUATE, _SAVE = 200, 200


def _train(
    log: MegatronLog, trainer: Trainer, first: int, last: int, fault: Fault | None = None
) -> list[Step]:
    """Train and log the steps; evaluate and save when it is time."""
    done = []
    for step in steps(trainer, first, last, fault):
        done.append(step)
        # The first step after a save is slow in real logs too; a new process has other reasons.
        after_save = step.number % _SAVE == 1 and log.started
        log.step(step, 0.9 if after_save else 0.0)
        if step.number % _EVALUATE == 0:
            log.validation(step.number, trainer.validation_loss())
        if step.number % _SAVE == 0:
            log.saved(step.number)
    return done


def _arguments(total: int, **other: object) -> dict[str, object]:
    schedule = {"lr_warmup_iters": total // 50, "lr_decay_iters": total, "min_lr": 0.0002}
    rhythm = {"train_iters": total, "eval_interval": _EVALUATE, "save_interval": _SAVE}
    return {**ARGUMENTS, **schedule, **rhythm, "bf16": True, "fp16": False, **other}


def healthy() -> str:
    """Nothing happens."""
    total = 800
    log, trainer = MegatronLog(total, seed=11), Trainer(seed=11, total=total)
    log.launch(_arguments(total))
    _train(log, trainer, 1, total)
    log.finished()
    return log.text()


def spike() -> str:
    """Adam's second moments shrink at steps 521 to 527: the gradient norm grows before the loss."""
    total = 900
    log, trainer = MegatronLog(total, seed=23), Trainer(seed=23, total=total)
    log.launch(_arguments(total))
    _train(log, trainer, 1, total, shrinking_second_moment(521, 527, 0.1))
    log.finished()
    return log.text()


def nan_death() -> str:
    """A layer grows from step 430 on until its float16 output overflows: NaN for good."""
    total = 900
    log, trainer = MegatronLog(total, seed=31), Trainer(seed=31, total=total)
    log.launch(_arguments(total))
    done = _train(log, trainer, 1, 510, exploding_layer(430, 1.25))
    given_up(log, sum(step.loss is not None and math.isnan(step.loss) for step in done))
    return log.text()


def resume() -> str:
    """Killed at step 463, resumed from the checkpoint of step 400: 63 steps are run twice."""
    total = 700
    log, trainer = MegatronLog(total, seed=47), Trainer(seed=47, total=total)
    log.launch(_arguments(total))
    _train(log, trainer, 1, 400)
    saved = trainer.state()
    _train(log, trainer, 401, 463)
    node_failure(log)
    log.launch(_arguments(total), loaded=400)
    trainer.load(saved)
    _train(log, trainer, 401, total)
    log.finished()
    return log.text()


def fp16_start() -> str:
    """Healthy; the first steps are skipped while the dynamic loss scale looks for its place."""
    total = 800
    trainer = Trainer(seed=59, total=total, scaler=Scaler(scale=2.0**32, dynamic=True))
    log = MegatronLog(total, seed=59, interval=5)
    half = {"bf16": False, "fp16": True, "initial_loss_scale": 2**32, "hysteresis": 2}
    log.launch(_arguments(total, log_interval=5, **half))
    _train(log, trainer, 1, total)
    log.finished()
    return log.text()


CASES: dict[str, Callable[[], str]] = {
    "healthy": healthy,
    "spike": spike,
    "nan_death": nan_death,
    "resume": resume,
    "fp16_start": fp16_start,
}
