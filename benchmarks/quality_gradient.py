"""Quality of the gradient detectors on norms with known truth: cases for quality_system's table.

Norms fall at the start, rise with the learning rate's warm-up, wander and carry heavy tails. Each
case plants one fault. Detectable by declaration: bursts and new levels from twelve times the
noise on (x6 at 15 %, x36 at 30 %: log(36) = 12 * 0.3), a vanished gradient of 100 steps and more,
a growth of tenfold over the run. Noise is cut at ten deviations: beyond twelve it would be what is
declared a fault, and nobody could say whether a rule that tells it is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from quality_curves import Floats, noise, power_law
from quality_system import Case
from synth_system import context, make_run

from loganalyze.detectors.grad_explosion import DETECTOR as EXPLOSION
from loganalyze.detectors.grad_low import OSCILLATION, VANISHING
from loganalyze.model import Finding, RunLog

CUT = 10.0  # deviations
_RISE = frozenset({"grad_explosion"})


def _detect(run: RunLog) -> list[Finding]:
    seen = context(run)
    return [f for one in (EXPLOSION, VANISHING, OSCILLATION) for f in one.run(seen)]


def healthy_norm(rng: np.random.Generator, n: int, share: float) -> Floats:
    """A healthy norm: high and falling at the start, a kink of the schedule, heavy tails."""
    t = np.arange(1, n + 1)
    level = rng.uniform(0.2, 2.0) * (1 + 6 * np.exp(-t / 100.0)) * t**-0.05
    if rng.random() < 0.5:  # the rate falls, the norm grows a little
        level = level * (1 + 0.3 * np.clip((t - 0.6 * n) / (0.2 * n), 0, 1))
    wild = noise(rng, n, share, freedom=4.5, memory=0.4)
    return np.asarray(level * np.exp(np.clip(wild, -CUT * share, CUT * share)))


def _run(rng: np.random.Generator, norm: Floats) -> RunLog:
    return make_run({"loss": power_law(rng, len(norm), 0.012), "grad_norm": norm})


def gradient_cases(seeds: range) -> Iterator[Case]:
    """Bursts, new levels, vanished and growing norms."""
    for seed in seeds:
        for number, (share, low, high) in enumerate(
            ((0.15, 2, 3), (0.15, 3, 6), (0.15, 6, 100), (0.30, 6, 36), (0.30, 36, 300))
        ):
            rng = np.random.default_rng([7, seed, number])
            n = int(rng.integers(1500, 8000))
            norm = healthy_norm(rng, n, share)
            long = int(np.exp(rng.uniform(0.0, np.log(100))))
            at = int(rng.integers(400, n - long - 50))
            norm[at : at + long] *= np.exp(rng.uniform(np.log(low), np.log(high)))
            group = f"gradient x{low}..x{high}, 1-100 steps, noise {share:.0%}"
            yield _case(group, _run(rng, norm), _RISE, at + 1, at + long)
        yield from _lasting(seed)


def _lasting(seed: int) -> Iterator[Case]:
    rng = np.random.default_rng([8, seed])
    n = int(rng.integers(1500, 8000))
    at = int(rng.integers(400, n - 400))
    norm = healthy_norm(rng, n, 0.2)
    norm[at:] *= rng.uniform(5, 30)
    yield _case("gradient, new level x5..x30", _run(rng, norm), _RISE, at + 1, n)
    norm = healthy_norm(rng, n, 0.2) * np.exp(np.log(rng.uniform(10, 50)) * np.arange(n) / n)
    yield _case("gradient, growth x10..x50 over the run", _run(rng, norm), _RISE, 1, n)
    norm = healthy_norm(rng, n, 0.2)
    norm[at : at + 300] *= 10.0 ** -rng.uniform(4, 7)
    kinds = frozenset({"grad_vanishing"})
    yield _case("gradient vanished, 300 steps", _run(rng, norm), kinds, at + 1, at + 300)


def _case(group: str, run: RunLog, kinds: frozenset[str], first: int, last: int) -> Case:
    return Case(group=group, run=run, detect=_detect, kinds=kinds, first=first, last=last)


def healthy_gradient(seeds: range) -> Iterator[Case]:
    """Healthy norms of 10 to 25 % of noise."""
    for seed in seeds:
        rng = np.random.default_rng([9, seed])
        n = int(rng.integers(500, 20000))
        norm = healthy_norm(rng, n, float(rng.uniform(0.1, 0.25)))
        yield Case(group="healthy: gradient", run=_run(rng, norm), detect=_detect, steps=n)
