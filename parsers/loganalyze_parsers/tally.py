"""The account of an input under construction."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from loganalyze.model import Account


class Tally(Struct):
    """The account under construction."""

    lines: int = 0
    read: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    samples: list[str] = field(default_factory=list)

    def account(self) -> Account:
        """What was counted so far."""
        return Account(
            lines=self.lines,
            read=self.read,
            ignored=dict(sorted(self.ignored.items())),
            unknown=self.unknown,
            unknown_samples=tuple(self.samples),
        )
