"""The cases: each a run that is really trained, with or without a fault."""

from __future__ import annotations

from collections.abc import Callable

from lab.megatron_log import ARGUMENTS, MegatronLog
from lab.train import Fault, Scaler, Trainer, exploding_layer, shrinking_second_moment, steps

_EVALUATE, _SAVE = 200, 200


def _train(
    log: MegatronLog, trainer: Trainer, first: int, last: int, fault: Fault | None = None
) -> None:
    for step in steps(trainer, first, last, fault):
        log.step(step, 0.9 if step.number % _SAVE == 1 and step.number > 1 else 0.0)
        if step.number == 2:
            log.memory(2)
        if step.number % _EVALUATE == 0:
            log.timers()
            log.validation(step.number, trainer.validation_loss())
        if step.number % _SAVE == 0:
            log.saved(step.number)


def _arguments(total: int, **other: object) -> dict[str, object]:
    warmup = {"lr_warmup_iters": total // 50, "lr_decay_iters": total, "min_lr": 0.0002}
    return {**ARGUMENTS, "train_iters": total, "bf16": True, "fp16": False, **warmup, **other}


def healthy() -> str:
    """Nothing happens."""
    total = 800
    log, trainer = MegatronLog(total, seed=11), Trainer(seed=11, total=total)
    log.preamble(_arguments(total))
    _train(log, trainer, 1, total)
    log.raw(["[default0]:[after training is done] datetime: 2026-03-14 02:08:01 "])
    return log.text()


def spike() -> str:
    """Adam's second moments shrink at steps 521 to 527: the gradient norm grows before the loss."""
    total = 900
    log, trainer = MegatronLog(total, seed=23), Trainer(seed=23, total=total)
    log.preamble(_arguments(total))
    _train(log, trainer, 1, total, shrinking_second_moment(521, 527, 0.1))
    return log.text()


def nan_death() -> str:
    """A layer grows from step 430 on until its float16 output overflows: NaN for good."""
    total = 900
    log, trainer = MegatronLog(total, seed=31), Trainer(seed=31, total=total)
    log.preamble(_arguments(total))
    _train(log, trainer, 1, 480, exploding_layer(430, 2.0))
    log.raw(
        [
            "[rank5]: Traceback (most recent call last):",
            '[rank5]:   File "/workspace/pretrain_gpt.py", line 310, in <module>',
            "[rank5]:     pretrain(train_valid_test_datasets_provider, model_provider)",
            '[rank5]:   File "/workspace/megatron/training/training.py", line 1999, in train',
            "[rank5]:     check_for_nan(loss_dict, iteration)",
            "[rank5]: RuntimeError: loss is NaN for 40 iterations in a row, giving up",
            "E0314 02:04:40.511000 2177 torch/distributed/elastic/multiprocessing/api.py:869] "
            "failed (exitcode: 1) local_rank: 5 (pid: 2182) of binary: /opt/env/bin/python",
        ]
    )
    return log.text()


def resume() -> str:
    """Killed at step 463, resumed from the checkpoint of step 400: 63 steps are run twice."""
    total = 700
    log, trainer = MegatronLog(total, seed=47), Trainer(seed=47, total=total)
    log.preamble(_arguments(total))
    _train(log, trainer, 1, 400)
    saved = trainer.state()
    _train(log, trainer, 401, 463)
    log.raw(
        [
            "slurmstepd: error: *** STEP 4711.0 ON gpu-03 CANCELLED AT 2026-03-14T02:04:51 "
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        ]
    )
    log.preamble(_arguments(total))
    log.loaded(400)
    trainer.load(saved)
    _train(log, trainer, 401, total)
    return log.text()


def fp16_start() -> str:
    """Healthy; the first steps are skipped while the dynamic loss scale looks for its place."""
    total = 800
    trainer = Trainer(seed=59, total=total, scaler=Scaler(scale=2.0**32, dynamic=True))
    log = MegatronLog(total, seed=59, interval=5)
    log.preamble(_arguments(total, bf16=False, fp16=True, log_interval=5, initial_loss_scale=2**32))
    _train(log, trainer, 1, total)
    return log.text()


CASES: dict[str, Callable[[], str]] = {
    "healthy": healthy,
    "spike": spike,
    "nan_death": nan_death,
    "resume": resume,
    "fp16_start": fp16_start,
}
