"""Start-up of `--help`, for the program and every command, beside a bare Python: one table.

    python benchmarks/help_speed.py [--rounds 11]

Whole processes, the two in turns; medians in milliseconds and the ratio of the medians. Exit code
1 if a help takes longer than the budget of 150 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers")]

from loganalyze.cli import COMMANDS  # noqa: E402

MOST_MS = 150


def seconds(arguments: Sequence[str]) -> float:
    """Wall time of a process that must succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[:2])}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, env=environment,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return time.perf_counter() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    slow = False
    print(f"{'help of':<12}{'ms':>7}{'bare ms':>9}{'ratio':>7}")
    for name in ("", *COMMANDS):
        words = ["-m", "loganalyze", *([name] if name else []), "--help"]
        pairs = [(seconds(words), seconds(["-c", "pass"])) for _ in range(rounds)]
        ours, bare = (1000 * statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name or 'loganalyze':<12}{ours:>7.0f}{bare:>9.0f}{ours / bare:>7.1f}")
        slow |= ours > MOST_MS
    print(f"budget {MOST_MS} ms: {'broken' if slow else 'kept'}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
