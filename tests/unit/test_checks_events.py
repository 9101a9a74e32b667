"""Checks on what was said, on restarts, memory messages and time-outs: read from whole logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synth import make_run
from textlogs import megatron_line, run_of

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import kinds, load_thresholds
from loganalyze.model import CheckResult, Finding, RunLog

THRESHOLDS = load_thresholds("pretrain")
WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:633] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, "
    "Timeout(ms)=600000) ran for 600071 milliseconds before timing out."
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted} GiB. GPU 1 has a total "
    "capacity of 80.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process "
    "has 78.90 GiB memory in use. Of the allocated memory {held} GiB is allocated by PyTorch, and "
    "{idle} GiB is reserved by PyTorch but unallocated."
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/job/a.py", line 3, in {function}\n    go()\n'
)


def steps(count: int = 30, first: int = 1, loss: float = 3.0, **fields: str) -> str:
    """Lines of quiet training steps."""
    return "\n".join(
        megatron_line(n, learning_rate="1.0E-04", lm_loss=f"{loss + 0.01 * (n % 3):.4f}", **fields)
        for n in range(first, first + count)
    )  # fmt: skip


def finding(kind: str, first: int | None = None, segment: int = 0, **told: float) -> Finding:
    """A finding of one step."""
    return Finding(
        id=f"{kind}-1", code=kinds()[kind].code, kind=kind, metric=None, severity="critical",
        step_first=first, step_last=first, segment=segment, statistics=told,
    )  # fmt: skip


def ask(run: RunLog, check: str, about: Finding) -> CheckResult:
    """A check's answer."""
    context = CheckContext(run=run, findings=(about,), finding=about, thresholds=THRESHOLDS)
    return CHECKS[check](context)


@pytest.mark.parametrize(
    ("check", "text", "state"),
    [
        ("rank_died_first", TRACEBACK.format(function="step") + "ValueError: bad shape\n"
         + WATCHDOG.format(rank=1, seq=900, op="ALLREDUCE", size=512), "supported"),
        ("rank_died_first", WATCHDOG.format(rank=1, seq=900, op="ALLREDUCE", size=512) + "\n"
         + TRACEBACK.format(function="step") + "ValueError: bad shape", "ruled_out"),
        ("waited_to_the_limit", WATCHDOG.format(rank=1, seq=9, op="ALLREDUCE", size=512),
         "supported"),
        ("one_element", WATCHDOG.format(rank=1, seq=9, op="ALLREDUCE", size=1), "supported"),
        ("one_element", WATCHDOG.format(rank=1, seq=9, op="ALLREDUCE", size=512), "ruled_out"),
        ("operations_differ", WATCHDOG.format(rank=1, seq=9, op="ALLREDUCE", size=512) + "\n"
         + WATCHDOG.format(rank=2, seq=9, op="ALLGATHER", size=64), "supported"),
        ("operations_differ", WATCHDOG.format(rank=1, seq=9, op="ALLREDUCE", size=512) + "\n"
         + WATCHDOG.format(rank=2, seq=9, op="ALLREDUCE", size=512), "ruled_out"),
        ("operations_differ", "nothing", "not_checkable"),
        ("broadcast_waits", WATCHDOG.format(rank=1, seq=9, op="BROADCAST", size=512), "supported"),
        ("before_first_step", WATCHDOG.format(rank=1, seq=4000, op="ALLREDUCE", size=1),
         "ruled_out"),
        ("oom_fragmented", OOM.format(wanted="2.00", held="70.00", idle="6.00"), "supported"),
        ("oom_fragmented", OOM.format(wanted="8.00", held="77.00", idle="1.00"), "ruled_out"),
        ("oom_full", OOM.format(wanted="8.00", held="77.00", idle="1.00"), "supported"),
        ("oom_full", OOM.format(wanted="8.00", held="50.00", idle="1.00"), "ruled_out"),
        ("vocabulary_sized", OOM.format(wanted="30.00", held="50.00", idle="1.00"), "supported"),
        ("vocabulary_sized", "nothing", "not_checkable"),
        ("memory_fault_said", "NVRM: Xid (PCI:0000:3b:00): 64, pid=1, Row Remapper Error",
         "supported"),
        ("memory_fault_said", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
         "ruled_out"),
        ("memory_fault_said", "nothing", "not_checkable"),
        ("bus_fault_said", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
         "supported"),
        ("labels_said", "All labels in your dataset are -100. Training losses will be all 0.",
         "supported"),
        ("labels_said", "nothing", "ruled_out"),
        ("disk_full_said", TRACEBACK.format(function="save")
         + "OSError: [Errno 28] No space left on device", "supported"),
        ("code_said", TRACEBACK.format(function="main") + "TypeError: got an unexpected keyword",
         "supported"),
        ("import_said", TRACEBACK.format(function="main")
         + "ModuleNotFoundError: No module named 'apex'", "supported"),
        ("recompile_said", "W0101 torch._dynamo hit config.recompile_limit (8)", "supported"),
        ("no_reason_said", "nothing", "supported"),
    ],
)  # fmt: skip
def test_check_reads_the_log(check: str, text: str, state: str, tmp_path: Path) -> None:
    """A check of failure texts finds the line, denies it, or names the log that would hold it."""
    run = run_of(f"{text}\n", tmp_path)
    told = ask(run, check, finding("crash"))
    assert told.state == state
    assert bool(told.missing) == (state == "not_checkable")


def test_evidence_of_a_line_names_it(tmp_path: Path) -> None:
    """What a line says is quoted with its place in the input."""
    run = run_of(steps() + "\nNVRM: Xid (PCI:0000:3b:00): 79, GPU lost\n", tmp_path)
    (line,) = ask(run, "bus_fault_said", finding("hardware_error", 30)).evidence
    assert line.ref is not None
    assert line.ref.line == 31
    assert "Xid" in str(line.value)


def test_phase_of_an_out_of_memory(tmp_path: Path) -> None:
    """A stack inside an evaluation, or a save right before, tell the phase."""
    message = OOM.format(wanted="2.00", held="60.00", idle="1.00")
    evaluation = run_of(
        steps() + "\n" + TRACEBACK.format(function="evaluation_loop") + message + "\n", tmp_path
    )
    about = finding("oom", 30)
    assert ask(evaluation, "oom_in_evaluation", about).state == "supported"
    assert ask(evaluation, "oom_in_save", about).state == "ruled_out"
    assert ask(evaluation, "oom_at_start", about).state == "ruled_out"
    saving = "saving checkpoint at iteration      30 to /ckpt/a in torch_dist format\n"
    save = run_of(steps() + "\n" + saving + message + "\n", tmp_path, "save.log")
    assert ask(save, "oom_in_save", about).state == "supported"


def test_killed_within_a_save(tmp_path: Path) -> None:
    """A kill right behind the beginning of a save points to the save's memory."""
    saving = "saving checkpoint at iteration      30 to /ckpt/a in torch_dist format\n"
    killed = "failed (exitcode: -9) local_rank: 3 (pid: 77) of binary: /usr/bin/python\n"
    run = run_of(steps() + "\n" + saving + killed, tmp_path)
    assert ask(run, "saves_before_kill", finding("killed", 30)).state == "supported"
    other = run_of(saving + steps(400) + "\n" + killed, tmp_path, "late.log")
    assert ask(other, "saves_before_kill", finding("killed", 400)).state == "ruled_out"


def resumed(after: np.ndarray, lr_after: float = 1e-4, samples: float | None = None) -> RunLog:
    """100 steps at a loss of 3, then a resume at step 81 with other values."""
    rng = np.random.default_rng(3)
    n = len(after)
    values = {
        "loss": np.concatenate([3 + 0.01 * rng.standard_normal(100), after]),
        "lr": np.concatenate([np.full(100, 1e-4), np.full(n, lr_after)]),
    }
    if samples is not None:
        before = 8.0 * np.arange(1, 101)
        values["samples_seen"] = np.concatenate([before, samples + 8.0 * np.arange(n)])
    return make_run(
        values,
        steps=np.concatenate([np.arange(1, 101), np.arange(81, 81 + n)]),
        segments=np.concatenate([np.zeros(100, dtype=int), np.ones(n, dtype=int)]),
        relations=("start", "resume"),
    )


FLAT = np.full(300, 3.0)
BUMP = 3.0 + 0.5 * np.exp(-np.arange(300) / 15)
LONG = 3.0 + 0.5 * np.exp(-np.arange(300) / 400)
EXPLODES = np.concatenate([[3.0], np.full(299, 900.0)])


@pytest.mark.parametrize(
    ("check", "run", "state"),
    [
        ("after_resume", resumed(BUMP), "supported"),
        ("loss_higher_after", resumed(BUMP), "supported"),
        ("loss_higher_after", resumed(FLAT), "ruled_out"),
        ("loss_lower_after", resumed(FLAT - 0.8), "supported"),
        ("loss_lower_after", resumed(BUMP), "ruled_out"),
        ("loss_like_new", resumed(FLAT + 7.6), "supported"),
        ("loss_like_new", resumed(BUMP), "ruled_out"),
        ("same_then_worse", resumed(EXPLODES), "supported"),
        ("same_then_worse", resumed(BUMP), "ruled_out"),
        ("bump_is_short", resumed(BUMP), "supported"),
        ("bump_is_short", resumed(LONG), "ruled_out"),
        ("bump_is_long", resumed(LONG), "supported"),
        ("bump_is_long", resumed(BUMP[:40]), "not_checkable"),
        ("lr_jumps_at_segment", resumed(FLAT, lr_after=1e-6), "supported"),
        ("lr_jumps_at_segment", resumed(FLAT), "ruled_out"),
        ("samples_restart", resumed(FLAT, samples=0.0), "supported"),
        ("samples_restart", resumed(FLAT, samples=640.0), "ruled_out"),
        ("samples_restart", resumed(FLAT), "not_checkable"),
    ],
)
def test_check_looks_at_both_sides_of_a_restart(check: str, run: RunLog, state: str) -> None:
    """What was restored shows in the first lines behind the border beside the last ones before."""
    assert ask(run, check, finding("loss_discontinuity", 81, segment=1)).state == state


def test_newest_sound_checkpoint(tmp_path: Path) -> None:
    """The save to go back to is the newest confirmed one before anything moved."""
    saved = "  successfully saved checkpoint from iteration {n:7d} to /ckpt/a [ t 1/2, p 1/2 ]"
    text = "\n".join(
        [steps(20), saved.format(n=20), steps(20, 21), saved.format(n=40), steps(20, 41)]
    )
    run = run_of(text + "\n", tmp_path)
    told = ask(run, "sound_checkpoint", finding("loss_nonfinite", 35))
    assert told.state == "supported"
    assert told.evidence[0].value == 20
    assert ask(run, "sound_checkpoint", finding("loss_nonfinite", 10)).state == "ruled_out"


def test_failures_of_another_attempt_do_not_count(tmp_path: Path) -> None:
    """A line of the first attempt says nothing of a finding in the second, but of the restart."""
    text = "\n".join(
        [steps(60), OOM.format(wanted="2.00", held="60.00", idle="1.00"), steps(60, 41)]
    )
    run = run_of(text + "\n", tmp_path)
    assert len(run.meta.segments) == 2
    assert ask(run, "oom_said", finding("loss_spike", 70, segment=1)).state == "ruled_out"
    assert ask(run, "oom_said", finding("restart", 41, segment=1)).state == "supported"
