"""Many runs: which, and in how many processes; what is there already is not made again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.faultlab.catalogue import BY_NAME, FAULTS
from benchmarks.faultlab.driver import run
from benchmarks.faultlab.fault import TWIN

FIRST_SEED = 5000  # seeds below are for tuning, those from here on for scoring
HEALTHY_EACH = 4  # times as often as a fault: false alarms need many healthy runs to show

Task = tuple[str, int, str]


def tasks(first_seed: int) -> Iterator[Task]:
    """Fault, seed and trainer without end: all kinds in turn, each with its next trainer.

    A fault's healthy twin follows it, with the same seed and trainer.
    """
    for turn in count():
        for number, fault in enumerate(FAULTS):
            for extra in range(HEALTHY_EACH if fault.name == "healthy" else 1):
                place = turn + number + extra
                trainer = fault.trainers[place % len(fault.trainers)]
                seed = first_seed + turn * HEALTHY_EACH + extra
                yield fault.name, seed, trainer
                if not fault.healthy:
                    yield f"{TWIN}{fault.name}", seed, trainer


def _one(task: Task, out: Path) -> str:
    name, seed, trainer = task
    run(BY_NAME[name], seed, trainer, out)
    return f"{name}-{trainer}-{seed}"


def run_all(wanted: int, jobs: int, out: Path, first_seed: int, only: list[str]) -> None:
    """The first `wanted` tasks that are not done yet, in so many processes."""
    chosen = (task for task in tasks(first_seed) if not only or task[0] in only)
    listed = list(islice(chosen, wanted))
    left = [t for t in listed if not (out / f"{t[0]}-{t[2]}-{t[1]}" / "label.json").exists()]
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_one, task, out) for task in left]
        for done, future in enumerate(as_completed(futures), 1):
            spent = time.monotonic() - began
            print(f"[{done}/{len(left)}] {future.exception() or future.result()} {spent:.0f}s, about "
                  f"{spent / done * (len(left) - done):.0f}s to go", file=sys.stderr)  # fmt: skip
    print(f"{len(listed)} runs in {out}")
