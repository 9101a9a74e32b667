"""The lab's command.

    python -m benchmarks.faultlab list
    python -m benchmarks.faultlab run FAULT [--seed 5000] [--trainer plain] [--out DIR]
    python -m benchmarks.faultlab all [--runs 300] [--jobs 2] [--out DIR]

`all` skips runs whose label.json is there already, so it can be stopped and called again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.faultlab.catalogue import BY_NAME, FAULTS
from benchmarks.faultlab.driver import run
from benchmarks.faultlab.recipe import TRAINERS

DEFAULT_OUT = Path(tempfile.gettempdir()) / "faultlab"
FIRST_SEED = 5000  # seeds below are for tuning, those from here on for scoring
HEALTHY_EACH = 4  # times as often as a fault: false alarms need many healthy runs to show

Task = tuple[str, int, str]


def tasks(first_seed: int) -> Iterator[Task]:
    """Fault, seed and trainer without end: all kinds in turn, each with its next trainer."""
    for turn in count():
        for number, fault in enumerate(FAULTS):
            for extra in range(HEALTHY_EACH if fault.name == "healthy" else 1):
                place = turn + number + extra
                trainer = fault.trainers[place % len(fault.trainers)]
                yield fault.name, first_seed + turn * HEALTHY_EACH + extra, trainer


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
            print(f"[{done}/{len(left)}] {future.result()} {spent:.0f}s, about "
                  f"{spent / done * (len(left) - done):.0f}s to go", file=sys.stderr)  # fmt: skip
    print(f"{len(listed)} runs in {out}")


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="faultlab", description=__doc__.split("\n", 1)[0])
    orders = parser.add_subparsers(dest="order", required=True)
    orders.add_parser("list", help="names and acceptable causes")
    one = orders.add_parser("run", help="one run")
    one.add_argument("fault", choices=sorted(BY_NAME), metavar="FAULT")
    one.add_argument("--trainer", choices=TRAINERS)
    many = orders.add_parser("all", help="many runs, resumable")
    many.add_argument("--runs", type=int, default=300)
    many.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    many.add_argument("--only", nargs="*", default=[], metavar="FAULT")
    for sub in (one, many):
        sub.add_argument("--seed", type=int, default=FIRST_SEED, help="the first, for `all`")
        sub.add_argument("--out", type=Path, default=DEFAULT_OUT)
    asked = parser.parse_args(argv)
    if asked.order == "list":
        for fault in FAULTS:
            print(f"{fault.name:26s} {fault.family:10s} {' '.join(fault.causes)}")
    elif asked.order == "run":
        fault = BY_NAME[asked.fault]
        trainer = asked.trainer or fault.trainers[0]
        if trainer not in fault.trainers:
            parser.error(f"{fault.name} is logged by {', '.join(fault.trainers)} only")
        print(run(fault, asked.seed, trainer, asked.out))
    else:
        run_all(asked.runs, asked.jobs, asked.out, asked.seed, asked.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
