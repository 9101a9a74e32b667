"""Speed and memory of `loganalyze ingest` beside what people use: prints one table.

    python benchmarks/parse_speed.py [--quick] [--case NAME ...] [--peer-python PYTHON]

Times are of whole processes, start-up and the writing of Parquet included on our side; the peers
only read into pandas. Modules are compiled before the first round, as in an installed package
(and so should the kernel be: `python hatch_build.py` in a checkout). Runs are interleaved (ours,
peer, peer, ours, ...), figures are medians, and a ratio is the median of the rounds' ratios. CPU
seconds, of all threads, depend less on what else the machine does. The peers' packages are no dependencies of ours; a
row whose package is missing is skipped:

    python -m venv /tmp/peers && /tmp/peers/bin/pip install pandas tensorboard tbparse 'wandb<0.20'
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import speed_logs  # noqa: E402
from build_wandb import config, history, wandb_log  # noqa: E402

PEERS = ROOT / "benchmarks" / "speed_peers.py"


@dataclass(frozen=True)
class Case:
    """An input, how to make it (full and quick size), and the peers with the ratio asked for."""

    name: str
    file: str
    make: Callable[[Path, int], object]
    size: int
    quick: int
    peers: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Run:
    """One process: seconds by the clock and of all cores, peak resident memory in MB, its output."""

    seconds: float
    cpu: float
    peak_mb: float
    output: str


def make_wandb(path: Path, steps: int) -> None:
    """An offline W&B log of 23 values a step."""
    bodies = [config({"learning_rate": 3e-4})]
    for step in range(steps):
        row = {f"train/metric{k}": (step * 31 + k * 17) % 997 / 997 for k in range(20)}
        clock = {"_step": step, "_runtime": step * 1.5, "_timestamp": 1.9e9 + step * 1.5}
        bodies.append(history({**row, **clock}))
    path.write_bytes(wandb_log(bodies))


CASES = (
    Case("Megatron log", "train.log", speed_logs.megatron, 1_000_000, 100_000,
         (("megatron_fields", 8.0), ("megatron_search", 8.0), ("megatron_line", 4.0))),
    Case("Megatron, five times", "train.log", speed_logs.megatron, 5_000_000, 500_000),
    Case("Hugging Face console", "train.log", speed_logs.huggingface, 1_000_000, 100_000,
         (("huggingface_ast", 20.0),)),
    Case("Loop of one's own", "train.log", speed_logs.loop, 1_000_000, 100_000,
         (("loop_line", 0.0),)),
    Case("Loop with epochs", "train.log", speed_logs.epochs, 1_000_000, 100_000,
         (("epoch_line", 0.0),)),
    Case("DeepSpeed log", "train.log", speed_logs.deepspeed, 660_000, 66_000,
         (("deepspeed_three", 4.0),)),
    Case("TensorBoard events", "events.out.tfevents.1.x", speed_logs.nothing, 300_000, 30_000,
         (("tensorboard_loader", 10.0), ("tbparse", 10.0))),
    Case(".wandb log", "run-x.wandb", make_wandb, 30_000, 5_000, (("wandb_store", 2.0),)),
    Case("trainer_state.json", "trainer_state.json", speed_logs.trainer_state, 300_000, 30_000,
         (("trainer_state", 0.0),)),
    Case("JSON lines", "history.jsonl", speed_logs.history_json, 200_000, 20_000,
         (("json_lines", 0.0),)),
    Case("CSV", "history.csv", speed_logs.history_csv, 200_000, 20_000, (("csv_table", 0.0),)),
)  # fmt: skip


def measured(command: Sequence[str]) -> Run:
    """Run a command to its end."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'parsers'}",
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "loganalyze-bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if child.returncode:
        raise RuntimeError(text)
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def ours(path: Path) -> Run:
    """`loganalyze ingest` of one file into an empty store: a second time only news are read."""
    store = path.parent / "runs"
    shutil.rmtree(store, ignore_errors=True)
    command = [sys.executable, "-m", "loganalyze", "ingest", str(path), "--store", str(store)]
    return measured([*command, "--quiet", "--no-progress"])


def warm_up(folder: Path) -> None:
    """Compile our modules, as an installer does."""
    small = folder / "small.log"
    speed_logs.megatron(small, 10)
    ours(small)


def peer_run(peer_python: str, case: Case, name: str, path: Path) -> Run | None:
    """One run of a peer; says so and gives None where it cannot run."""
    try:
        return measured([peer_python, str(PEERS), name, str(path)])
    except RuntimeError as error:
        print(f"{case.name}: {name} is skipped ({str(error).strip().splitlines()[-1]})")
        return None


def compare(case: Case, quick: bool, rounds: int, peer_python: str, folder: Path) -> None:
    """Make the input, run everything in turns, print the rows."""
    path = folder / case.file
    size = case.quick if quick else case.size
    if case.make is speed_logs.nothing:
        try:
            measured([peer_python, str(PEERS), "make_events", str(path), str(size)])
        except RuntimeError as error:
            print(f"{case.name}: skipped ({str(error).strip().splitlines()[-1]})")
            return
    else:  # in a process of its own: a child's peak counts the memory of the one that forks it
        maker = multiprocessing.get_context("spawn").Process(target=case.make, args=(path, size))
        maker.start()
        maker.join()
    peers = dict(case.peers)
    mine: list[Run] = []
    theirs: dict[str, list[Run]] = {name: [] for name in peers}
    warm_up(folder)
    for _ in range(rounds):
        mine.append(ours(path))
        for name in list(peers):
            run = peer_run(peer_python, case, name, path)
            if run is None:
                del peers[name], theirs[name]
            else:
                theirs[name].append(run)
    print_rows(case, path.stat().st_size / 1e6, mine, theirs, peers)
    path.unlink()


def print_rows(
    case: Case, megabytes: float, mine: list[Run], theirs: dict[str, list[Run]], asked: dict[str, float]
) -> None:  # fmt: skip
    """Our row, and one for each peer."""
    print(f"{case.name:26}{megabytes:8.0f}  {'loganalyze':20}{_costs(mine)}")
    for name, runs in theirs.items():
        ratio = statistics.median(
            peer.seconds / own.seconds for peer, own in zip(runs, mine, strict=True)
        )
        wanted = f"{asked[name]:.0f}" if asked[name] else "-"
        print(f"{'':36}{name:20}{_costs(runs)}{ratio:8.1f}{wanted:>7}")
    sys.stdout.flush()


def _costs(runs: list[Run]) -> str:
    seconds = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    return f"{seconds:8.2f}{cpu:8.2f}{max(run.peak_mb for run in runs):9.0f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="inputs a tenth as large")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", help="only cases whose name holds this")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python with the peers")
    options = parser.parse_args()
    print(f"{'input':26}{'MB':>8}  {'reader':20}{'s':>8}{'cpu s':>8}{'peak MB':>9}{'ratio':>8}{'asked':>7}")
    for case in CASES:
        if options.case and not any(part.lower() in case.name.lower() for part in options.case):
            continue
        with tempfile.TemporaryDirectory(prefix="loganalyze-speed-") as folder:
            compare(case, options.quick, options.rounds, options.peer_python, Path(folder))


if __name__ == "__main__":
    main()
