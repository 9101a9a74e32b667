"""The account of lines under construction, and the pieces of a line between carriage returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from loganalyze.model import Account

#: Pieces of one line beyond this number are not looked at: a progress bar redraws itself so often.
MAX_PIECES = 200_000


@dataclass(slots=True)
class Tally:
    """The account under construction."""

    lines: int = 0
    read: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    samples: list[str] = field(default_factory=list)

    def account(self) -> Account:
        """The account so far."""
        return Account(
            lines=self.lines,
            read=self.read,
            ignored=dict(sorted(self.ignored.items())),
            unknown=self.unknown,
            unknown_samples=tuple(self.samples),
        )


def pieces(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The parts between carriage returns, with where each starts; one empty part if none."""
    if b"\r" not in raw:
        yield raw, 0
        return
    start = 0
    yielded = 0
    for piece in raw.split(b"\r"):
        if piece.strip() and yielded < MAX_PIECES:
            yield piece, start
            yielded += 1
        start += len(piece) + 1
    if not yielded:
        yield b"", 0
