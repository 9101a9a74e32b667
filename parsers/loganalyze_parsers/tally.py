"""The account of an input under construction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from loganalyze.model import Account
from loganalyze_parsers.api import Taken

_SAMPLES = 20


class Fate(Struct):
    """What became of a line so far, piece by piece."""

    rules: list[str] = field(default_factory=list)
    unknown: str = ""  # the first piece that nobody knew
    read: bool = False
    rank: int | None = None  # a launcher puts its prefix before the first piece only

    def taken(self, found: Sequence[Taken]) -> None:
        """Readers took a piece."""
        self.read = self.read or any(one.readings or one.events or one.held for one in found)
        self.rules.extend(one.ignored for one in found if one.ignored)

    def left(self, rule: str | None, text: str) -> None:
        """No reader took a piece; rule: why it may be ignored, None if there is no reason."""
        if rule is None:
            self.unknown = self.unknown or text
        else:
            self.rules.append(rule)

    @property
    def rule(self) -> str | None:
        """Why a line that was not read may be ignored."""
        return self.rules[0] if self.rules and not self.unknown else None


class Tally(Struct):
    """The account under construction."""

    lines: int = 0
    read: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    samples: list[str] = field(default_factory=list)

    def line(self, fate: Fate) -> None:
        """Count a line."""
        self.lines += 1
        if fate.read:
            self.read += 1
        elif fate.rule is None:
            self.unknown += 1
            if len(self.samples) < _SAMPLES:
                self.samples.append(fate.unknown[:200])
        else:
            self.ignored[fate.rule] += 1

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
