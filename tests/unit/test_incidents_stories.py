"""Stories that cross families: numbers to aborts, leaks to kills, ranks to time-outs, returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from synth import make_run

from loganalyze.config import kinds
from loganalyze.incidents import Story, stories
from loganalyze.model import Finding, RunLog, Severity

RUN: RunLog = make_run({"loss": np.full(2000, 3.0), "step_time_s": np.full(2000, 2.0)})
Told = tuple[str, int, int, Severity]


def findings(told: Sequence[Told]) -> list[Finding]:
    """Findings of kind, first step, last step, severity."""
    return [
        Finding(
            id=f"{kinds()[kind].code}-{n}", code=kinds()[kind].code, kind=kind, metric=None,
            severity=severity, step_first=first, step_last=last, segment=0,
        )
        for n, (kind, first, last, severity) in enumerate(told, 1)
    ]  # fmt: skip


def told_of(told: Sequence[Told]) -> tuple[Story, ...]:
    """The stories of these findings."""
    return stories(RUN, findings(told))


@pytest.mark.parametrize(
    ("told", "kind", "mover"),
    [
        # the loss scale collapses, the numbers break, a guard stops the run
        ((("loss_scale_collapse", 900, 930, "critical"), ("loss_nonfinite", 931, 990, "critical"),
          ("crash", 990, 990, "critical")), "loss_nonfinite", "loss_scale_collapse"),
        # memory leaks until a request fails
        ((("memory_leak", 10, 1500, "warning"), ("oom", 1990, 1990, "critical")), "oom",
         "memory_leak"),
        # host memory leaks until the kernel kills a process
        ((("host_memory_leak", 10, 1500, "warning"), ("killed", 1990, 1990, "critical")),
         "killed", "host_memory_leak"),
        # one rank gets slow, then the others time out
        ((("straggler_rank", 1800, 1990, "warning"), ("comm_timeout", 1995, 1995, "critical")),
         "comm_timeout", "straggler_rank"),
        # a GPU overheats, slows down, and the step time shifts
        ((("gpu_overheat", 400, 900, "warning"), ("gpu_throttle", 410, 900, "warning"),
          ("throughput_drop", 415, 900, "warning")), "throughput_drop", "gpu_overheat"),
        # the norm rises three steps before the loss
        ((("grad_explosion", 700, 712, "warning"), ("loss_spike", 703, 715, "critical")),
         "loss_spike", "grad_explosion"),
    ],
)  # fmt: skip
def test_one_story_and_its_first_mover(told: tuple[Told, ...], kind: str, mover: str) -> None:
    """Findings that a mechanism joins are one incident, named by the gravest, led by the first."""
    (story,) = told_of(told)
    assert (story.kind, story.first_mover.kind) == (kind, mover)
    assert len(story.findings) == len(told)


def test_restart_repeats_and_loses_work() -> None:
    """A crash, the restart, the steps done again and the work lost are one story."""
    told: tuple[Told, ...] = (
        ("crash", 1000, 1000, "critical"), ("restart", 900, 1000, "info"),
        ("work_lost", 900, 1000, "warning"),
    )  # fmt: skip
    (story,) = told_of(told)
    assert story.first_mover.kind == "crash"
    assert {f.kind for f in story.findings} == {"crash", "restart", "work_lost"}


def test_spread_findings_do_not_glue_a_run_together() -> None:
    """Skipped steps all over a run join only what follows their beginning."""
    told: tuple[Told, ...] = (
        ("skipped_steps", 1, 1900, "warning"), ("loss_spike", 800, 810, "warning"),
        ("loss_spike", 1600, 1610, "warning"),
    )  # fmt: skip
    assert [len(story.findings) for story in told_of(told)] == [1, 1, 1]


def test_what_returns_has_one_root() -> None:
    """Spikes that come back again and again are one incident, not one alarm each."""
    told: list[Told] = []
    for start in range(100, 2000, 300):
        told += [("grad_explosion", start, start + 9, "warning"),
                 ("loss_spike", start + 3, start + 12, "critical")]  # fmt: skip
    (story,) = told_of(told)
    assert len(story.findings) == len(told)
    assert story.first_mover.step_first == 100
    assert story.last == told[-1][2]
    assert len(told_of(told[:6])) == 3
