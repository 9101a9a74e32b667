"""How runs end: what the process, its launcher and the scheduler print, on the log's own clock."""

from __future__ import annotations

from benchmarks.faultlab.clock import Clock

_RULE = "=" * 60


def ending(kind: str, text: str, clock: Clock) -> list[str]:
    """Lines of an ending. kind: crash | oom | disk_full | killed | oom_killed | time_limit | node."""
    clock.skip(3.7)
    if kind in ("crash", "oom", "disk_full"):
        lines = [f"[rank0]: {line}" for line in _traceback(kind, text)]
        clock.skip(4.4)
        return lines + _torchrun(clock, "exitcode  : 1 (pid: 3051)")
    clock.skip(11.0)
    return {
        "killed": _killed(clock),
        "oom_killed": [
            "slurmstepd: error: Detected 1 oom_kill event in StepId=5120.0. "
            "Some of the step tasks have been OOM Killed.",
            "srun: error: gpu-07: task 0: Out Of Memory",
        ],
        "time_limit": [
            f"slurmstepd: error: *** JOB 5120 ON gpu-07 CANCELLED AT "
            f"{clock.stamp('%Y-%m-%dT%H:%M:%S')} DUE TO TIME LIMIT ***"
        ],
        "node": [
            f"slurmstepd: error: *** STEP 5120.0 ON gpu-07 CANCELLED AT "
            f"{clock.stamp('%Y-%m-%dT%H:%M:%S')} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR "
            "DETAILS ***"
        ],
    }[kind]


def _traceback(kind: str, text: str) -> list[str]:
    if kind == "crash":  # a real one
        return text.rstrip().split("\n")
    where = "train_step" if kind == "oom" else "save_checkpoint"
    return [
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 318, in <module>',
        "    main()",
        '  File "/workspace/train.py", line 241, in main',
        f"    {where}(state)",
        *text.split("\n"),
    ]


def _torchrun(clock: Clock, how: str) -> list[str]:
    where = "torch/distributed/elastic/multiprocessing/api.py:874]"
    return [
        f"E{clock.stamp('%m%d %H:%M:%S.%f')} 3044 {where} failed ({how.replace('  ', '')}) "
        "local_rank: 0 of binary: /opt/env/bin/python",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        _RULE,
        "/workspace/train.py FAILED",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {clock.stamp('%Y-%m-%d_%H:%M:%S')}",
        "  host      : gpu-07",
        "  rank      : 0 (local_rank: 0)",
        f"  {how}",
        "  error_file: <N/A>",
        _RULE,
    ]


def _killed(clock: Clock) -> list[str]:
    return [
        *_torchrun(clock, "exitcode  : -9 (pid: 3051)"),
        "  traceback : Signal 9 (SIGKILL) received by PID 3051",
        "srun: error: gpu-07: task 0: Killed",
    ]
