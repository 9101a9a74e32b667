"""Quality of all detectors, the loss ones beside the rules people use today: prints tables.

    python benchmarks/quality.py [--quick] [--only spikes|system|speed]

Detectors were tuned on seeds below 1000; every figure here is of seeds from 5000 on. An event
counts as found when a flag (a finding) lies inside it with ten points of slack; flags elsewhere,
joined over ten points, are false. Recall counts every planted event, those that no method can
see under the noise included.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the program does
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import quality_speed  # noqa: E402
from quality_curves import (  # noqa: E402
    FAMILIES,
    HARD_LEVELS,
    HARDER,
    LEVELS,
    Curve,
    healthy,
    spiky,
)
from quality_gradient import gradient_cases, healthy_gradient  # noqa: E402
from quality_oracle import attainable  # noqa: E402
from quality_rules import RULES  # noqa: E402
from quality_system import print_tables, run_all, seeds_of  # noqa: E402
from synth import make_run  # noqa: E402

from loganalyze.config import load_thresholds  # noqa: E402
from loganalyze.detectors import detect  # noqa: E402

SLACK = 10
FIRST_SEED = 5000
OURS = ("LA1", "LA712")
PROFILES = {
    "fine-tuning, 3 epochs": "sft", "small batch": "sft", "small batch, no memory": "sft",
}  # fmt: skip
Stretch = tuple[int, int]  # points


@dataclass
class Score:
    """Counts over many curves. onset: distances of found onsets to the planted ones, points."""

    found: int = 0
    planted: int = 0
    false: int = 0
    onset: list[int] = field(default_factory=list)
    clean_false: int = 0
    clean_points: int = 0
    missed: dict[tuple[int, int], int] = field(default_factory=dict)

    def row(self) -> str:
        """Precision, recall, F1, onset error (median, 95 %), false per million healthy points."""
        precision = self.found / max(self.found + self.false, 1)
        recall = self.found / max(self.planted, 1)
        both = 2 * precision * recall / max(precision + recall, 1e-9)
        middle, high = np.percentile(self.onset or [0], [50, 95])
        rate = 1e6 * self.clean_false / max(self.clean_points, 1)
        return (
            f"{precision:6.3f} {recall:6.3f} {both:6.3f} {middle:7.0f} {high:7.0f} "
            f"{rate:11.1f} {self.clean_false:6d}"
        )


def ours(curve: Curve, family: str) -> tuple[list[Stretch], list[Stretch]]:
    """Findings of the loss family as stretches of points: all, and those of warning or worse."""
    relations = ("start", "resume")
    run = make_run(
        {"loss": curve.loss}, steps=curve.steps, segments=curve.segment.tolist(),
        relations=relations,
    )  # fmt: skip
    findings, _ = detect(run, load_thresholds(PROFILES.get(family, "pretrain")))
    everything, alarms = [], []
    for item in findings:
        if item.code.startswith(OURS):
            first, last = np.searchsorted(curve.steps, (item.step_first or 0, item.step_last or 0))
            everything.append((int(first), int(last)))
            if item.severity != "info":
                alarms.append(everything[-1])
    return sorted(everything), sorted(alarms)


def flags_to_stretches(flags: np.ndarray) -> list[Stretch]:
    """Flags at most ten points apart are one."""
    hits = np.flatnonzero(flags)
    if not len(hits):
        return []
    breaks = np.flatnonzero(np.diff(hits) > SLACK)
    firsts = hits[np.r_[0, breaks + 1]]
    lasts = hits[np.r_[breaks, len(hits) - 1]]
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]


def add(score: Score, curve: Curve, stretches: Iterable[Stretch]) -> None:
    """Count the answer of a method on a curve."""
    stretches = list(stretches)
    if not curve.events:
        score.clean_false += len(stretches)
        score.clean_points += len(curve.loss)
        return
    used: set[int] = set()
    for event in curve.events:
        hits = [
            i for i, (first, last) in enumerate(stretches)
            if first <= event.last + SLACK and last >= event.first - SLACK
        ]  # fmt: skip
        score.planted += 1
        used.update(hits)
        if hits:
            score.found += 1
            score.onset.append(abs(stretches[hits[0]][0] - event.first))
        else:
            key = (round(100 * event.height), event.last - event.first + 1)
            score.missed[key] = score.missed.get(key, 0) + 1
    score.false += len(stretches) - len(used)


ALL, ALARMS = "loganalyze (all findings)", "loganalyze (warning, critical)"


def measure(family: str, share: float, runs: int, clean: int, n: int) -> dict[str, Score]:
    """Scores of every method on `runs` spiky and `clean` healthy curves of n points."""
    scores = {name: Score() for name in (ALL, ALARMS, *RULES)}
    for number in range(runs + clean):
        seed = FIRST_SEED + number
        make = spiky if number < runs else healthy
        curve = make(family, seed, n, share)
        everything, alarms = ours(curve, family)
        add(scores[ALL], curve, everything)
        add(scores[ALARMS], curve, alarms)
        for name, rule in RULES.items():
            add(scores[name], curve, flags_to_stretches(rule(curve.loss)))
    return scores


def table(title: str, scores: dict[str, Score]) -> None:
    """Print one table."""
    print(f"\n{title}")
    print(
        f"{'':32s}{'P':>6s} {'R':>6s} {'F1':>6s} {'onset50':>7s} {'onset95':>7s} "
        f"{'false/1M ok':>11s} {'false':>6s}"
    )
    for name, score in scores.items():
        print(f"{name:32s}{score.row()}")
    missed = scores[ALL].missed
    if missed:
        told = ", ".join(f"{h} % x {k}: {m}" for (h, k), m in sorted(missed.items()))
        print(f"  missed by loganalyze (height x points: how often): {told}")


def spikes(quick: bool) -> None:
    """Loss spikes: the protocol's families, harder ones, what is attainable, false alarms."""
    runs, clean, n = (2, 3, 12_000) if quick else (30, 25, 20_000)
    total = 0
    false = {ALL: 0, ALARMS: 0}
    harder = {name: HARD_LEVELS if "no memory" in name else LEVELS for name in HARDER}
    for family, levels in {**dict.fromkeys(FAMILIES, LEVELS), **harder}.items():
        for share in levels:
            scores = measure(family, share, runs, clean, n)
            table(f"{family}, noise {100 * share:g} % ({runs} spiky, {clean} healthy)", scores)
            total += scores[ALL].clean_points
            for name in false:
                false[name] += scores[name].clean_false
    for share in LEVELS:
        best = attainable(share, runs, n, FIRST_SEED)
        print(
            f"attainable at {100 * share:g} % (matched filter that knows curve, noise and shapes): "
            f"P {best['P']:.3f} R {best['R']:.3f} F1 {best['F1']:.3f}"
        )
    print(
        f"\nhealthy points in all: {total}; false findings: {false[ALARMS]} of warning or "
        f"worse ({1e6 * false[ALARMS] / total:.2f} per million), {false[ALL]} of any severity"
    )


def system(quick: bool) -> None:
    """Gradient, speed, memory, ranks."""
    planted = gradient_cases(seeds_of(6 if quick else 40))
    print_tables(run_all(quick, planted, healthy_gradient(seeds_of(10 if quick else 100))))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter curves")
    parser.add_argument("--only", choices=("spikes", "system", "speed"), help="one part")
    asked = parser.parse_args()
    begin = time.perf_counter()
    parts = {"spikes": spikes, "system": system, "speed": quality_speed.main}
    for name, part in parts.items():
        if asked.only in (None, name):
            part(asked.quick)
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
