"""Text to learn: sentences from a small grammar, made from a seed, nobody's property."""

from __future__ import annotations

import random

_SUBJECTS = ("the engine", "a gradient", "every rank", "the cluster", "one layer", "the optimizer")
_VERBS = ("reads", "writes", "sends", "keeps", "loses", "averages", "copies")
_OBJECTS = ("a batch", "the weights", "its state", "two tokens", "the schedule", "a checkpoint")
_ENDINGS = ("again", "at night", "in order", "without a word", "after the next step", "twice")


def corpus(seed: int, sentences: int) -> bytes:
    """Sentences as bytes."""
    draw = random.Random(seed)
    lines = []
    for _ in range(sentences):
        words = (draw.choice(_SUBJECTS), draw.choice(_VERBS), draw.choice(_OBJECTS))
        ending = f" {draw.choice(_ENDINGS)}" if draw.random() < 0.6 else ""
        lines.append(f"{' '.join(words)}{ending} {draw.randint(1, 999)}.\n")
    return "".join(lines).encode()
