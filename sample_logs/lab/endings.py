"""How runs end badly: what the program, its launcher and Slurm print, on the log's own clock."""

from __future__ import annotations

from datetime import timedelta

from lab.megatron_log import MegatronLog

_RULE, _THIN = "=" * 60, "-" * 60


def given_up(log: MegatronLog, nan_steps: int) -> None:
    """A guard in the training script gives up after so many NaN losses; the launcher reports it."""
    log.raw(
        [
            "[rank5]: Traceback (most recent call last):",
            '[rank5]:   File "/workspace/pretrain_gpt.py", line 310, in <module>',
            "[rank5]:     pretrain(train_valid_test_datasets_provider, model_provider)",
            '[rank5]:   File "/workspace/pretrain_gpt.py", line 152, in loss_func',
            "[rank5]:     nan_guard.see(loss)",
            '[rank5]:   File "/workspace/nan_guard.py", line 27, in see',
            f"[rank5]: RuntimeError: loss is NaN for {nan_steps} iterations in a row, giving up",
        ]
    )
    log.now += timedelta(seconds=4.1)
    where = "torch/distributed/elastic/multiprocessing/api.py:869]"
    log.raw(
        [
            f"E{log.now:%m%d %H:%M:%S.%f} 2177 {where} failed (exitcode: 1) local_rank: 5 "
            "(pid: 2182) of binary: /opt/env/bin/python",
            *_launcher_summary(f"{log.now:%Y-%m-%d_%H:%M:%S}"),
        ]
    )


def _launcher_summary(stamp: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/opt/env/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        _RULE,
        "/workspace/pretrain_gpt.py FAILED",
        _THIN,
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        _THIN,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {stamp}",
        "  host      : gpu-03",
        "  rank      : 5 (local_rank: 5)",
        "  exitcode  : 1 (pid: 2182)",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html",
        _RULE,
    ]


def node_failure(log: MegatronLog) -> None:
    """Slurm notices a lost node some seconds later, and takes minutes to start the job again."""
    log.now += timedelta(seconds=19)
    stamp = f"{log.now:%Y-%m-%dT%H:%M:%S}"
    log.raw(
        [
            f"slurmstepd: error: *** STEP 4711.0 ON gpu-03 CANCELLED AT {stamp} "
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        ]
    )
    log.now += timedelta(minutes=11)
