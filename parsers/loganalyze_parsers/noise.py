"""Why a line that no reader took may be ignored. The rules are data: loganalyze/noise.toml.

A line that carries a training number or a failure word is never ignored by a general rule; it
stays unknown and is shown to the user.

>>> ignore_rule("node3:41:97 [2] NCCL INFO Channel 00/02 : 0 1 2 3")
'NCCL information'
>>> ignore_rule("my trainer: step 12, loss 3.25") is None
True
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from loganalyze import config, lazy
from loganalyze_parsers.markers import holds

_BLANK = "blank line"
_WORDS = "text without numbers or failure words"
_ZEROS = {ord(digit): "0" for digit in "123456789"}
_SCAN_CHARS = 2000
_MEMO_LINES = 20_000
_MEMO_CHARS = 400
#: A training quantity with a number behind it, or a number with a unit; in lower case.
_NUMBERS = lazy.pattern(
    r"(?:loss|perplexity|ppl|bpb|norm|grad|lr|learning[ _-]rate|acc(?:uracy)?|reward|score|entropy"
    r"|kl|mfu|tflops?|tok(?:en)?s?/s(?:ec)?|throughput|step|iter(?:ation)?|epoch)\b[^\w\n]{0,6}"
    r"(?:[-+]?\.?\d|nan\b|inf\b)|\d ?(?:[gm]i?b|tflops?|ms)\b"
)
_QUANTITIES = (
    "loss", "perplex", "ppl", "bpb", "norm", "grad", "lr", "learning", "acc", "reward", "score",
    "entropy", "kl", "mfu", "flop", "tok", "throughput", "step", "iter", "epoch", "ib", "gb", "mb",
    "ms",
)  # fmt: skip
#: Words that a failure may hide behind, in lower case.
_FAILURE = lazy.pattern(
    r"(?:\b(?:fail(?:ed|ure|s)?|fatal|killed|abort(?:ed|ing)?|timed? ?out|oom|crash(?:ed)?|nan|inf"
    r"|corrupt(?:ed)?|segfault|out of memory|cannot|could not|unable|overflow|invalid|denied"
    r"|refused|dead|lost|missing|panic)|(?:errors?|exceptions?))\b"
)
_FEARS = (
    "error", "fail", "exception", "fatal", "killed", "abort", "time", "oom", "crash", "corrupt",
    "segfault", "memory", "cannot", "could not", "unable", "nan", "inf", "overflow", "invalid",
    "denied", "refused", "dead", "lost", "missing", "panic",
)  # fmt: skip


class _Rule(Struct, frozen=True):
    name: str
    starts: tuple[str, ...]
    contains: tuple[str, ...]
    pattern: re.Pattern[str] | None
    needs: tuple[str, ...]
    inside: re.Pattern[str] | None
    sure: bool

    def fits(self, text: str) -> bool:
        """Whether the (zeroed) line is of this rule."""
        if text.startswith(self.starts) or (self.contains and holds(text, self.contains)):
            return True
        if self.pattern is not None and self.pattern.match(text) is not None:
            return True
        if self.inside is None or not holds(text, self.needs):
            return False
        return self.inside.search(text) is not None


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            name=name,
            starts=tuple(entry.get("starts", ())),
            contains=tuple(entry.get("contains", ())),
            pattern=lazy.pattern(entry["pattern"]) if "pattern" in entry else None,
            needs=tuple(entry.get("needs", ())),
            inside=lazy.pattern(entry["inside"]) if "inside" in entry else None,
            sure=entry.get("sure", False),
        )
        for name, entry in config.load_data("noise.toml").items()
    )


_memo: dict[str, str | None] = {}


def ignore_rule(text: str) -> str | None:
    """The name of the rule by which a line may be ignored; None where it must stay unknown."""
    if not text:
        return _BLANK
    zeroed = text[:_SCAN_CHARS].translate(_ZEROS)
    if len(zeroed) > _MEMO_CHARS:
        return _decide(zeroed)
    try:
        return _memo[zeroed]
    except KeyError:
        if len(_memo) >= _MEMO_LINES:
            _memo.clear()
        found = _memo[zeroed] = _decide(zeroed)
        return found


def _decide(text: str) -> str | None:
    matters: bool | None = None
    for rule in _rules():
        if not rule.fits(text):
            continue
        if rule.sure:
            return rule.name
        matters = _matters(text) if matters is None else matters
        if not matters:
            return rule.name
    if "0" in text:
        return None
    matters = _matters(text) if matters is None else matters
    return None if matters else _WORDS


def _matters(text: str) -> bool:
    """Whether the line holds a training number or a failure word."""
    low = text.lower()
    if holds(low, _QUANTITIES) and _NUMBERS.search(low) is not None:
        return True
    return holds(low, _FEARS) and _FAILURE.search(low) is not None
