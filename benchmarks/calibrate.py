"""Fits loganalyze/calibration.toml: how often the first cause of an incident was right.

    python benchmarks/calibrate.py DIR        # runs of the fault lab with seeds below 5000 only

Every incident of severity warning or worse is one answer. Answers are split by whether a decisive
check proved the cause, sorted by the share of odds that prior and checks give it, and made
monotone by pooling adjacent violators, after four imaginary answers a class (as many right as in
the class as a whole) so that a small pool is never certain. Prints the file; nothing is written.
Shares in between come from the line between two knots.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(Path(__file__).resolve().parent)]

from diagnosis import FIRST_SEED, judge_run  # noqa: E402

from loganalyze import diagnose  # noqa: E402

#: What is added to the share of a proven cause, so that one number tells both.
PROVEN = 2.0
#: Most knots of a class.
KNOTS = 5


def answers(folder: Path) -> dict[str, list[tuple[float, bool]]]:
    """Share and whether it was right, of the first causes of all tuning runs, by class."""
    diagnose.calibrated = lambda share, *, proven: share + PROVEN * proven  # the raw share
    found: dict[str, list[tuple[float, bool]]] = {"proven": [], "open": []}
    for label in sorted(folder.glob("*/label.json")):
        if int(json.loads(label.read_text())["recipe"]["seed"]) >= FIRST_SEED:
            continue
        for raw, right in judge_run(label.parent).confidences:
            name = "proven" if raw >= PROVEN else "open"
            found[name].append((raw - PROVEN * (raw >= PROVEN), right))
    return found


def monotone(pairs: list[tuple[float, bool]]) -> list[tuple[float, float, int]]:
    """Mean share, share of right answers and size of pools whose rightness never falls."""
    overall = sum(right for _, right in pairs) / max(len(pairs), 1)
    size = max(len(pairs) // KNOTS, 1)
    ordered = sorted(pairs)
    groups = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    pools = [[sum(s for s, _ in g), float(sum(r for _, r in g)), float(len(g))] for g in groups]
    merged: list[list[float]] = []
    for pool in pools:
        merged.append(pool)
        while len(merged) > 1 and _rate(merged[-2], overall) >= _rate(merged[-1], overall):
            last = merged.pop()
            merged[-1] = [a + b for a, b in zip(merged[-1], last, strict=True)]
    return [(p[0] / p[2], _rate(p, overall), int(p[2])) for p in merged]


def _rate(pool: list[float], overall: float) -> float:
    return (pool[1] + 4 * overall) / (pool[2] + 4)


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    for name, pairs in answers(Path(sys.argv[1])).items():
        print(f"[{name}]  # {len(pairs)} answers")
        for share, rate, size in monotone(pairs):
            print(f"#   share {share:.3f}: right {rate:.3f} ({size} answers)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
