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
from pathlib import Path

from benchmarks.faultlab.catalogue import BY_NAME, FAULTS
from benchmarks.faultlab.corpus import FIRST_SEED, run_all
from benchmarks.faultlab.driver import run
from benchmarks.faultlab.recipe import TRAINERS

DEFAULT_OUT = Path(tempfile.gettempdir()) / "faultlab"


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
