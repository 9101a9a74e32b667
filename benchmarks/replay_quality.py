"""How often a replay names the fault: `python benchmarks/replay_quality.py [RUNS [FAULT]]`.

Prints one row per fault: runs, bit-equal replays, right cause first, right layer or sample first.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

import replay_faults  # noqa: E402
import torch  # noqa: E402


def main(runs: int, names: list[str]) -> None:
    """Run every fault `runs` times and print the table."""
    torch.set_num_threads(1)
    print("| fault | runs | replay equal | cause first | layer or sample first | s per run |")
    print("|---|---|---|---|---|---|")
    for name in names or list(replay_faults.FAULTS):
        begun, rows = time.perf_counter(), [_one(name, seed) for seed in range(runs)]
        equal, cause, place = (sum(column) for column in zip(*rows, strict=True))
        seconds = (time.perf_counter() - begun) / runs
        print(f"| {name} | {runs} | {equal} | {cause} | {place} | {seconds:.1f} |", flush=True)


def _one(name: str, seed: int) -> tuple[bool, bool, bool]:
    fault = replay_faults.FAULTS[name](seed)
    with tempfile.TemporaryDirectory() as folder:
        result = replay_faults.judged(fault, Path(folder), seed)
    first = result.judgements[0]
    cause = first.cause if first.state == "supported" else ""
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
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:])
