"""How often a replay names the fault: `python benchmarks/replay_quality.py [RUNS [FAULT...]]`.

RUNS is a number, or FIRST:LAST for a part of the seeds. Prints one row per fault: runs, bit-equal
replays, right cause first, right layer or sample first, processor seconds. Misses go to stderr.
`--sum FILE...` adds up the tables of several parts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

import replay_faults  # noqa: E402
import torch  # noqa: E402

#: The faults of the tests, and a needle in a haystack.
FAULTS: dict[str, Callable[[int], replay_faults.Fault]] = {
    **replay_faults.FAULTS,
    "poisoned among 512": replay_faults.needle,
}
HEAD = "| fault | runs | replay equal | cause first | layer or sample first | CPU s per run |"
RULE = "| --- | --- | --- | --- | --- | --- |"


def main(seeds: range, names: list[str]) -> None:
    """Run every fault with every seed and print the table."""
    torch.set_num_threads(1)
    print(HEAD, RULE, sep="\n")
    for name in names or list(FAULTS):
        begun, rows = time.process_time(), [_one(name, seed) for seed in seeds]
        counts = [sum(column) for column in zip(*rows, strict=True)]
        seconds = (time.process_time() - begun) / len(seeds)
        print(row(name, [len(seeds), *counts], seconds), flush=True)


def row(name: str, counts: Sequence[int], seconds: float) -> str:
    """A line of the table."""
    return f"| {name} | {' | '.join(map(str, counts))} | {seconds:.1f} |"


def added(files: Sequence[str]) -> None:
    """Print the sum of the tables in some files."""
    found: dict[str, list[tuple[list[int], float]]] = {}
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            name, *cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if name in FAULTS:
                found.setdefault(name, []).append(([int(c) for c in cells[:-1]], float(cells[-1])))
    print(HEAD, RULE, sep="\n")
    for name in FAULTS:
        parts = found.get(name, [])
        runs = sum(counts[0] for counts, _ in parts)
        if runs:
            seconds = sum(counts[0] * each for counts, each in parts) / runs
            print(row(name, [sum(c) for c in zip(*(p for p, _ in parts), strict=True)], seconds))


def _one(name: str, seed: int) -> tuple[bool, bool, bool]:
    fault = FAULTS[name](seed)
    with tempfile.TemporaryDirectory() as folder:
        result = replay_faults.judged(fault, Path(folder), seed)
    supported = [judged.cause for judged in result.judgements if judged.state == "supported"]
    cause = supported[0] if supported else ""
    layer = result.layers[0].name if result.layers else ""
    sample = result.samples[0].id if result.samples else ""
    right = (not fault.layer or layer == fault.layer) and (
        not fault.sample or sample == fault.sample
    )
    if cause != fault.cause or not right:
        print(f"  {name} {seed}: {result.reproduced}, {cause or 'none'} for {fault.cause}, "
              f"{layer} {sample} for {fault.layer}{fault.sample}", file=sys.stderr)  # fmt: skip
    return result.reproduced == "equal", cause == fault.cause, right


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sum"]:
        added(sys.argv[2:])
    else:
        first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "20").rpartition(":")
        main(range(int(first or 0), int(last)), sys.argv[2:])
