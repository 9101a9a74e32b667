"""Where the noise of quality_curves.py comes from: a fit to what was measured of public rules.

    python benchmarks/quality_noise.py

The protocol names its noise "autocorrelated with heavy tails" and gives, at 1.2 % and 3 %, the
precision and recall of re-built public rules on spiky curves and their flags per 10 000 healthy
steps. Each pair of degrees of freedom and correlation is tried on seeds below 1000; printed are the
pairs whose counts of false flags come nearest (sum of squared log ratios). No rule of loganalyze
takes part. W&B at three deviations is left out of the sum: its flags stand so close that their
count hangs on how neighbours are joined, which the protocol leaves open.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from quality import Score, add, flags_to_stretches  # noqa: E402
from quality_curves import Curve, noise, planted  # noqa: E402
from quality_rules import RULES  # noqa: E402

#: Rule, noise, precision, recall, flags per 10 000 healthy steps: ten runs of 20 000 steps each.
MEASURED = (
    ("seed: +20 % in one step", 0.03, 0.76, 0.64, 2.8),
    ("OLMo-core, 6 sigma", 0.012, 0.88, 0.85, 2.1),
    ("OLMo-core, 6 sigma", 0.03, 0.79, 0.68, 2.3),
    ("W&B z-score 5", 0.012, 0.55, 0.88, 9.7),
    ("W&B z-score 5", 0.03, 0.50, 0.74, 11.0),
)
FREEDOMS = (4.0, 5.0, 5.5, 6.0, 7.0)
MEMORIES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6)
STEPS, SPIKES = 20_000, 18


def counts(freedom: float, memory: float, runs: int) -> list[tuple[float, float, float]]:
    """For each measured row: precision, recall, flags per 10 000 healthy steps under that noise."""
    healthy, spiky = [0] * len(MEASURED), [Score() for _ in MEASURED]
    level = 1.8 + 8.0 * np.arange(1, STEPS + 1) ** -0.35
    for seed, share in product(range(runs), (0.012, 0.03)):
        rng = np.random.default_rng([seed, 4])
        clean, wild = (
            level * np.exp(noise(rng, STEPS, share, freedom=freedom, memory=memory))
            for _ in range(2)
        )
        events = planted(rng, STEPS)
        for event in events:
            wild[event.first : event.last + 1] *= 1 + event.height
        steps = np.arange(STEPS)
        curve = Curve(wild, steps, np.zeros(STEPS, dtype=np.int64), events)
        for row, (name, at, *_) in enumerate(MEASURED):
            if at == share:
                healthy[row] += int(RULES[name](clean).sum())
                add(spiky[row], curve, flags_to_stretches(RULES[name](wild)))
    return [
        (s.found / max(s.found + s.false, 1), s.found / s.planted, 1e4 * flags / (runs * STEPS))
        for s, flags in zip(spiky, healthy, strict=True)
    ]


def distance(made: list[tuple[float, float, float]]) -> float:
    """Sum over the rows of the squared logs of two ratios: false flags on spiky, on healthy curves.

    Half a flag in a run is added to both counts, so that none at all has a logarithm.
    """
    total = 0.0
    for (right, recall, rate), (*_, p, r, flags) in zip(made, MEASURED, strict=True):
        ours, theirs = (SPIKES * b * (1 / max(a, 1e-3) - 1) for a, b in ((right, recall), (p, r)))
        total += np.log((ours + 0.5) / (theirs + 0.5)) ** 2
        total += np.log((rate + 0.25) / (flags + 0.25)) ** 2
    return float(total)


def main() -> None:
    """Print the best pairs and what the rules do under them."""
    tried = {pair: counts(*pair, runs=10) for pair in product(FREEDOMS, MEMORIES)}
    best = sorted(tried, key=lambda pair: distance(tried[pair]))
    print("degrees of freedom, correlation: distance")
    for pair in best[:8]:
        print(f"{pair[0]:4g} {pair[1]:4g}: {distance(tried[pair]):.2f}")
    print(f"\nunder the first: {'P':>28} {'R':>11} {'flags/10k':>13}   (measured before)")
    for (name, share, *was), now in zip(MEASURED, tried[best[0]], strict=True):
        told = "  ".join(f"{a:5.2f} ({b:5.2f})" for a, b in zip(now, was, strict=True))
        print(f"{name:26} {100 * share:4g} %  {told}")


if __name__ == "__main__":
    main()
