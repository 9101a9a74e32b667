"""What is attainable: a matched filter that knows the curve, the noise and every planted shape.

For each height and length of the protocol the log likelihood ratio of "an event of that height
and length begins here" against noise alone, under the very noise that was drawn; places are taken
greedily, the best first, and the threshold is the one that gives the best F1 over all curves
(which no detector can know). A lone bad batch in noise with such tails is often a draw of the
tail like any other: that bounds recall from above, whatever the method.
"""

from __future__ import annotations

import numpy as np
from quality_curves import FREEDOM, HEIGHTS, LENGTHS, MEMORY, Event, Floats, noise, planted

SLACK = 10
LEAST = 4.0  # log likelihood ratio below which no place is looked at
Place = tuple[float, int, int]  # score, first and last point


def attainable(share: float, runs: int, n: int, first_seed: int) -> dict[str, float]:
    """Best F1 with its precision and recall over the pre-training family's curves of n points."""
    scored: list[tuple[float, bool]] = []
    total, found_at = 0, []
    for number in range(runs):
        rng = np.random.default_rng([first_seed + number, 2])  # as quality_curves.spiky
        y = noise(rng, n, share)
        events = planted(rng, n)
        for event in events:
            y[event.first : event.last + 1] += np.log1p(event.height)
        places = _places(y, share)
        total += len(events)
        hits = [[p for p in places if _meets(p, event)] for event in events]
        found_at += [max((p[0] for p in near), default=-np.inf) for near in hits]
        used = {p for near in hits for p in near}
        scored += [(p[0], p in used) for p in places]
    return _best(np.array(found_at), np.array([s for s, hit in scored if not hit]), total)


def _best(found: Floats, false: Floats, total: int) -> dict[str, float]:
    best = {"F1": 0.0}
    for limit in np.arange(LEAST, 20.0, 0.1):
        right, wrong = int((found >= limit).sum()), int((false >= limit).sum())
        precision, recall = right / max(right + wrong, 1), right / total
        both = 2 * precision * recall / max(precision + recall, 1e-9)
        if both > best["F1"]:
            best = {"P": precision, "R": recall, "F1": both}
    return best


def _meets(place: Place, event: Event) -> bool:
    return place[1] <= event.last + SLACK and place[2] >= event.first - SLACK


def _places(y: Floats, share: float) -> list[Place]:
    """Places in the order of their scores, none within reach of a better one."""
    score, length = np.full(len(y), -np.inf), np.ones(len(y), dtype=int)
    for height in np.log1p(HEIGHTS):
        for long in LENGTHS:
            own = _score(y, share, float(height), long)
            better = own > score
            score, length = np.where(better, own, score), np.where(better, long, length)
    taken = np.zeros(len(y) + 1, dtype=bool)
    places: list[Place] = []
    for at in np.argsort(-score):
        if score[at] < LEAST:
            break
        first, last = int(at), int(at + length[at] - 1)
        if not taken[first : last + 1].any():
            places.append((float(score[at]), first, last))
            taken[max(0, first - SLACK) : last + SLACK + 1] = True
    return places


def _score(y: Floats, share: float, height: float, long: int) -> Floats:
    """Log likelihood ratio of an event at each point against none; -inf where it would not fit."""
    scale = share * np.sqrt(1 - MEMORY**2) * np.sqrt((FREEDOM - 2) / FREEDOM)
    shock = np.append(y[:1], y[1:] - MEMORY * y[:-1]) / scale
    high = height / scale

    def gain(by: float) -> Floats:
        moved = np.log1p((shock - by) ** 2 / FREEDOM) - np.log1p(shock**2 / FREEDOM)
        return np.asarray(-0.5 * (FREEDOM + 1) * moved)

    total = np.concatenate(([0.0], np.cumsum(gain(high * (1 - MEMORY)))))
    out = np.full(len(y), -np.inf)
    at = np.arange(len(y) - long)
    out[at] = gain(high)[at] + total[at + long] - total[at + 1] + gain(-high * MEMORY)[at + long]
    return out
