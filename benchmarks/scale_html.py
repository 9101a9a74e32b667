"""A long log to the page: `python benchmarks/scale_html.py [STEPS ...] [--rounds N] [--peer-python P]`.

A Megatron log of STEPS steps (1,000,000: about 450 MB) is made, and in turns `loganalyze diagnose`
goes the whole way, from the raw log to the HTML page, and the script that people write today (one
pattern a field on each line, into pandas) only parses it: once with compiled patterns, once with
the patterns given to re.search(), as public scripts about equally often do. Printed: seconds by the
clock and of all cores, peak memory, and the ratio of the seconds. Logs above 1,000,000 steps are
not given to the scripts, whose memory grows with the log; their seconds are those of the first log
times the size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import speed_logs  # noqa: E402
from parse_speed import PEERS, Run, measured, warm_up  # noqa: E402

SCRIPTS = {
    "megatron_fields": "16 compiled patterns a line, into pandas",
    "megatron_search": "16 re.search() a line, into pandas",
}
LARGEST_OF_SCRIPTS = 1_000_000


def ours(path: Path) -> Run:
    """The whole way; the page is the folder's index.html."""
    out = path.parent / "reports"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "loganalyze", "diagnose", str(path), "-o", str(out)]
    run = measured([*command, "--quiet", "--no-progress"])
    assert list(out.glob("*.html")), run.output
    return run


def told(name: str, runs: list[Run]) -> float:
    """Print a row; the median of the seconds."""
    seconds = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    peak = max(run.peak_mb for run in runs)
    print(f"  {name:42}{seconds:8.1f} s{cpu:8.1f} s of cores{peak:7.0f} MB", flush=True)
    return seconds


def compare(path: Path, steps: int, rounds: int, peer_python: str, a_step: dict[str, float]) -> None:
    """Everything in turns, and its rows.

    a_step: each script's seconds a step, put in where it runs and taken where the log is too large.
    """
    runs: dict[str, list[Run]] = {name: [] for name in SCRIPTS}
    mine: list[Run] = []
    for _ in range(rounds):
        mine.append(ours(path))
        for name in SCRIPTS if steps <= LARGEST_OF_SCRIPTS else ():
            runs[name].append(measured([peer_python, str(PEERS), name, str(path)]))
    own = told("loganalyze diagnose, raw log to HTML", mine)
    for name, label in SCRIPTS.items():
        if runs[name]:
            a_step[name] = told(label, runs[name]) / steps
        if name in a_step:
            print(f"  ratio to {label}: {a_step[name] * steps / own:.1f}")


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("steps", nargs="*", type=int, default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with pandas")
    options = parser.parse_args()
    a_step: dict[str, float] = {}
    for steps in options.steps:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            path = Path(folder) / "train.log"
            warm_up(Path(folder))
            # in a process of its own: a child's peak counts the memory of the one that forks it
            maker = multiprocessing.get_context("spawn").Process(
                target=speed_logs.megatron, args=(path, steps)
            )
            maker.start()
            maker.join()
            print(f"{steps} steps, {path.stat().st_size / 1e6:.0f} MB")
            compare(path, steps, options.rounds, options.peer_python, a_step)


if __name__ == "__main__":
    main()
