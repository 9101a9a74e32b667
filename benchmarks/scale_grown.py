"""A megabyte onto a gigabyte: `python benchmarks/scale_grown.py [MB]`.

A Megatron log of MB megabytes (1000) is ingested, a megabyte is written behind it, and it is
ingested again: by `loganalyze ingest`, which reads the news, and the naive way, all of it again.
Printed: seconds of each whole command, and whether the two stores are the same to the byte.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

CACHE = "/var/tmp/loganalyze-bytecode"
LINE = (
    " [2031-01-02 03:04:05] iteration {step:8d}/ 9999999 | consumed samples: {seen:12d} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tf:.1f} | "
    "learning rate: 3.000000E-04 | global batch size:   512 | lm loss: {loss:.6E} | "
    "loss scale: 1.0 | grad norm: {norm:.3f} | num zeros: 0 | params norm: {params:.3f} | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def write(path: Path, first: int, size: int) -> int:
    """Training lines of about `size` bytes behind the file; returns the next step."""
    noise = random.Random(first)
    step, done = first, 0
    with path.open("a") as file:
        while done < size:
            text = "".join(
                LINE.format(
                    step=n, seen=512 * n, ms=1000 + noise.gauss(0, 20), tf=400 + noise.gauss(0, 5),
                    loss=2 + 8 / n**0.3 + noise.gauss(0, 0.02), norm=0.5 + 0.1 * noise.random(),
                    params=1000 + n * 1e-3,
                )
                for n in range(step, step + 2000)
            )  # fmt: skip
            file.write(text[: text.rfind("\n", 0, size - done + 400) + 1])
            step += text[: size - done + 400].count("\n")
            done += len(text)
    return step


def ingest(log: Path, store: Path) -> float:
    """Seconds of the whole command."""
    command = [sys.executable, "-m", "loganalyze", "ingest", str(log), "--store", str(store), "-q"]
    # with byte code beside the sources, as an installed package has it
    plain = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, env={**plain, "PYTHONPYCACHEPREFIX": CACHE})
    return time.perf_counter() - begin


def files_of(store: Path) -> dict[str, bytes]:
    """The run's files without the notes for the next reader."""
    return {
        p.relative_to(store).as_posix(): p.read_bytes()
        for p in store.rglob("*")
        if p.is_file() and not p.name.startswith("growth")
    }


def main() -> None:
    """Measure and print."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        log = Path(folder) / "train.log"
        step = write(log, 1, size * 1_000_000)
        first = ingest(log, Path(folder) / "runs")
        rows: list[float] = []
        for _ in range(3):
            step = write(log, step, 1_000_000)
            rows.append(ingest(log, Path(folder) / "runs"))
        whole = ingest(log, Path(folder) / "whole")
        same = files_of(Path(folder) / "runs") == files_of(Path(folder) / "whole")
    print(f"{size} MB, {step} steps: first ingest {first:.2f} s")
    print(f"1 MB more, three times: {', '.join(f'{row:.2f}' for row in rows)} s")
    print(f"the naive way, all again: {whole:.2f} s; the same bytes: {same}")


if __name__ == "__main__":
    main()
