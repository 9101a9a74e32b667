"""The account of an input under construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from loganalyze.model import Account

_SAMPLES = 20


class Tally(Struct):
    """The account under construction."""

    lines: int = 0
    read: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    samples: list[str] = field(default_factory=list)

    def line(self, rules: Sequence[str], unknown: str, *, read: bool) -> None:
        """Count what became of a line. unknown: its text, where no rule and no reader knew it."""
        if read:
            self.read += 1
        elif unknown or not rules:
            self.unknown += 1
            if len(self.samples) < _SAMPLES:
                self.samples.append(unknown[:200])
        else:
            self.ignored[rules[0]] += 1

    def known(self, counts: Mapping[str | None, int]) -> None:
        """Count lines whose fate is remembered, by rule (None: unknown, and shown when new)."""
        for rule, count in counts.items():
            self.lines += count
            if rule is None:
                self.unknown += count
            else:
                self.ignored[rule] += count

    def account(self) -> Account:
        """What was counted so far."""
        return Account(
            lines=self.lines,
            read=self.read,
            ignored=dict(sorted(self.ignored.items())),
            unknown=self.unknown,
            unknown_samples=tuple(self.samples),
        )
