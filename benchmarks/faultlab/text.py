"""Text to learn: sentences from small grammars, made from a seed, nobody's property."""

from __future__ import annotations

import random

_WHO = ("the reader", "a signal", "each worker", "the old valve", "one engine", "our pilot")
_DOES = ("checks", "turns", "sends", "keeps", "drops", "measures", "copies")
_WHAT = ("a map", "the weights", "its record", "two letters", "the timetable", "a lamp")
_HOW = ("again", "at noon", "in order", "without a sound", "after the rain", "twice")
_NAMES = ("MOV", "ADD", "CMP", "JMP", "LDR", "STR", "NOP", "XOR")


def prose(seed: int, sentences: int) -> bytes:
    """The usual text: one sentence a line, a number at the end of each."""
    draw = random.Random(seed)
    lines = []
    for _ in range(sentences):
        how = f" {draw.choice(_HOW)}" if draw.random() < 0.6 else ""
        words = f"{draw.choice(_WHO)} {draw.choice(_DOES)} {draw.choice(_WHAT)}"
        lines.append(f"{words}{how} {draw.randint(1, 999)}.\n")
    return "".join(lines).encode()


def listing(seed: int, lines: int) -> bytes:
    """Another distribution: upper-case pseudo assembly with hexadecimal operands."""
    draw = random.Random(seed + 77)
    made = [
        f"{draw.randrange(65536):04X}: {draw.choice(_NAMES)} R{draw.randrange(16)}, "
        f"#{draw.randrange(256):02X}\n"
        for _ in range(lines)
    ]
    return "".join(made).encode()


def by_topic(seed: int, sentences: int) -> bytes:
    """Prose and listings in long unmixed blocks: what a data set in its file's order looks like."""
    parts = []
    for block in range(8):
        make = prose if block % 2 == 0 else listing
        parts.append(make(seed * 31 + block, sentences // 8))
    return b"".join(parts)
