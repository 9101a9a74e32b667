"""A long log to the page: `python benchmarks/scale_html.py [STEPS ...] [--rounds N] [--peer-python P]`.

A Megatron log of STEPS steps (1,000,000: about 450 MB) is made, and in turns `loganalyze diagnose`
goes the whole way, from the raw log to the HTML page, and the script that people write today (one
pattern a field on each line, into pandas) only parses it. Printed: seconds by the clock and of all
cores, peak memory, and the ratio of the seconds. Logs above 1,000,000 steps are not given to the
script, whose memory grows with the log; its seconds are those of the first log times the size.
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

PEER, LARGEST_OF_PEER = "megatron_fields", 1_000_000


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


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("steps", nargs="*", type=int, default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with pandas")
    options = parser.parse_args()
    script = 0.0  # its seconds a step
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
            mine: list[Run] = []
            theirs: list[Run] = []
            for _ in range(options.rounds):
                mine.append(ours(path))
                if steps <= LARGEST_OF_PEER:
                    theirs.append(measured([options.peer_python, str(PEERS), PEER, str(path)]))
            own = told("loganalyze diagnose, raw log to HTML", mine)
            if theirs:
                script = told("16 patterns a line and pandas, the parse alone", theirs) / steps
        if script:
            print(f"  ratio {script * steps / own:.1f}")


if __name__ == "__main__":
    main()
