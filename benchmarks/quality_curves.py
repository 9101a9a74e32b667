"""Curves with known truth for the quality benchmark: families, spikes, disturbances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

Floats = npt.NDArray[np.float64]

HEIGHTS = (0.05, 0.10, 0.20, 0.50, 1.00, 4.00)
LENGTHS = (1, 20, 200)


@dataclass(frozen=True, slots=True)
class Event:
    """A planted spike: points [first, last], height as a share."""

    first: int
    last: int
    height: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Points as a log would hold them; segment grows at a restart, interval is in steps."""

    loss: Floats
    steps: npt.NDArray[np.int64]
    segment: npt.NDArray[np.int64]
    events: tuple[Event, ...]


#: Of the protocol's noise: Student's t degrees of freedom, correlation of neighbours. Where the
#: re-built public rules come nearest to what was measured of them before: quality_noise.py.
FREEDOM, MEMORY = 6.0, 0.3
#: Heavier tails with less memory: the noise of the benchmark before precision was fitted, too.
HEAVY_FREEDOM, HEAVY_MEMORY = 5.5, 0.2


def noise(
    rng: np.random.Generator, n: int, share: float, *,
    freedom: float = FREEDOM, memory: float = MEMORY,
) -> Floats:
    """AR(1) noise with Student's t shocks, standard deviation `share`."""
    shock = rng.standard_t(freedom, n + 300) * np.sqrt((freedom - 2) / freedom)
    return np.asarray(share * np.sqrt(1 - memory**2) * lfilter([1.0], [1.0, -memory], shock)[300:])


def power_law(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Pre-training, one line a step."""
    t = np.arange(1, n + 1)
    return np.asarray((1.8 + 8.0 * t**-0.35) * np.exp(noise(rng, n, share)))


def heavier(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Pre-training under noise with heavier tails."""
    t = np.arange(1, n + 1)
    wild = noise(rng, n, share, freedom=HEAVY_FREEDOM, memory=HEAVY_MEMORY)
    return np.asarray((1.8 + 8.0 * t**-0.35) * np.exp(wild))


def fine_tuning(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Three epochs: the loss steps down at each edge and is flat between."""
    t = np.arange(n) / n
    level = 0.9 + 0.5 * np.exp(-t * 40) - 0.12 * np.floor(t * 3) - 0.02 * t
    return np.asarray(level * np.exp(noise(rng, n, share)))


def small_batch(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Fine-tuning with a batch of a few samples: a fast start, then flat under the noise."""
    t = np.arange(n) / n
    return np.asarray((1.1 + 0.5 * np.exp(-t * 15)) * np.exp(noise(rng, n, share)))


def averaged(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Pre-training, means of ten steps of twice the noise: 0.77 of `share` remains."""
    t = np.arange(1, 10 * n + 1)
    loss = (1.8 + 8.0 * t**-0.35) * np.exp(noise(rng, 10 * n, 2.0 * share))
    return np.asarray(loss.reshape(n, 10).mean(axis=1))


def shrinking(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Pre-training whose batch grows twice: the noise shrinks by half each time."""
    t = np.arange(1, n + 1)
    factor = np.where(t < n / 3, 2.0, np.where(t < 2 * n / 3, 1.0, 0.5))
    return np.asarray((1.8 + 8.0 * t**-0.35) * np.exp(factor * noise(rng, n, share)))


def forgetful(rng: np.random.Generator, n: int, share: float) -> Floats:
    """Small batches without memory: a lone bad batch is a draw of the tail like any other."""
    t = np.arange(n) / n
    return np.asarray((1.1 + 0.5 * np.exp(-t * 15)) * np.exp(noise(rng, n, share, memory=0.0)))


Maker = Callable[[np.random.Generator, int, float], Floats]
#: Families of the protocol: curve, steps between two points.
FAMILIES: dict[str, tuple[Maker, int]] = {
    "pre-training": (power_law, 1),
    "fine-tuning, 3 epochs": (fine_tuning, 1),
    "small batch": (small_batch, 1),
    "10-step means": (averaged, 10),
}
#: Harder ones, shown beside them.
HARDER: dict[str, tuple[Maker, int]] = {
    "pre-training, heavier tails": (heavier, 1),
    "shrinking noise": (shrinking, 1),
    "small batch, no memory": (forgetful, 1),
}
EVERY = {**FAMILIES, **HARDER}
LEVELS = (0.012, 0.03)
HARD_LEVELS = (0.06, 0.15)


def _restart(loss: Floats, rng: np.random.Generator, share: float) -> tuple[Floats, Floats, Floats]:
    """Goes back 500 points twice and runs them again with other noise."""
    n = len(loss)
    steps, segment, out = [np.arange(n // 3)], [np.zeros(n // 3)], [loss[: n // 3]]
    for number, (start, stop) in enumerate(((n // 3, 2 * n // 3), (2 * n // 3, n)), 1):
        part = np.arange(start - 500, stop)
        steps.append(part)
        segment.append(np.full(len(part), number))
        out.append(loss[part] * np.exp(noise(rng, len(part), 0.3 * share)))
    return np.concatenate(out), np.concatenate(steps), np.concatenate(segment)


def _disturbed(loss: Floats, rng: np.random.Generator, which: int) -> Floats:
    """A healthy disturbance: none, a new data mix, a kink of the schedule, or a warm-up."""
    n = len(loss)
    if which == 1:  # a new data mix: up by 2-5 % for good, another one down
        loss = loss.copy()
        loss[n // 3 :] *= 1 + rng.uniform(0.02, 0.05)
        loss[2 * n // 3 :] *= 1 - rng.uniform(0.02, 0.05)
    elif which == 2:  # the rate falls: 8 % down within a tenth of the run
        loss = loss * (1 - 0.08 * np.clip((np.arange(n) - 0.7 * n) / (0.1 * n), 0, 1))
    elif which == 3:  # a slow warm-up: the first 300 points stay high
        loss = loss * (1 + 1.5 * np.exp(-np.arange(n) / 100.0))
    return loss


def healthy(family: str, seed: int, n: int, share: float) -> Curve:
    """A curve without a spike; restart, data mix, kink and warm-up take turns by the seed."""
    rng = np.random.default_rng([seed, 1])
    make, interval = EVERY[family]
    loss = _disturbed(make(rng, n, share), rng, seed % 5)
    steps, segment = np.arange(n), np.zeros(n)
    if seed % 5 == 4:
        loss, steps, segment = _restart(loss, rng, share)
    at = interval * (steps + 1)
    return Curve(loss, at.astype(np.int64), segment.astype(np.int64), ())


def spiky(family: str, seed: int, n: int, share: float) -> Curve:
    """A curve with every height and length once, at least 0.8 n / 18 points apart."""
    rng = np.random.default_rng([seed, 2])
    make, interval = EVERY[family]
    loss = make(rng, n, share)
    events = planted(rng, n)
    for event in events:
        loss[event.first : event.last + 1] *= 1 + event.height
    steps = interval * np.arange(1, n + 1)
    return Curve(loss, steps.astype(np.int64), np.zeros(n, dtype=np.int64), events)


def planted(rng: np.random.Generator, n: int) -> tuple[Event, ...]:
    """Every height and length once, in a random order."""
    shapes = [(h, length) for h in HEIGHTS for length in LENGTHS]
    places = np.linspace(0.06 * n, 0.95 * n, len(shapes)).astype(int)
    rng.shuffle(shapes)
    events = []
    for (height, length), place in zip(shapes, places, strict=True):
        first = int(place + rng.integers(0, int(0.01 * n)))
        events.append(Event(first, first + length - 1, height))
    return tuple(events)
