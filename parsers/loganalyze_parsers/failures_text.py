"""Which known failure text stands on a line, and what it says in numbers.

The texts are data (loganalyze/signatures/). A line is first reduced to its shape, the text without
digits; shapes recur a million times in a log, so which signatures may match is remembered for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from loganalyze import config, lazy
from loganalyze.config import Signature
from loganalyze_parsers.numbers import BYTES, leading_number

#: Failure texts stand near the start; verl prints lines of 30 kB.
SCAN_CHARS = 4096
_MEMO_SHAPES = 20_000
_MEMO_CHARS = 500
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}
_DIGITS = lazy.pattern(r"\d")
#: Program text, shell traces, settings and prose that quote a failure without having it.
_QUOTED = lazy.pattern(
    r"^(?:raise|print|assert|return|import|yield|echo|export) ?\S"
    r"|^(?:warnings?|logg(?:er|ing)|self)\."
    r"|^(?:if|elif|else|except|try|for|while|with|class|def)\b.{0,400}:$"
    r"|^[#\"'`]|^\++ |^[A-Za-z_][\w.]{0,60} ?= ?\S|^(?!what\(\))[A-Za-z_][\w.]{0,60}\("
    r"|^[\w-]{1,60} \.{3,}|^[\w.]{1,60}="
)
#: Names that look like numbers.
_AS_TEXT = frozenset({"job", "tasks", "node", "pci", "pids"})
#: How tracebacks and program text begin.
STARTS = (
    "raceback (most", 'File "', "Exception ignored in", "During handling of", "The above exc",
    "import ",
)  # fmt: skip
_ROLES = ("root", "consequence", "context")


class Text(Struct, frozen=True):
    """A signature, ready to be searched."""

    signature: Signature
    pattern: re.Pattern[str]
    details: tuple[re.Pattern[str], ...]
    exclude: re.Pattern[str] | None
    literals: tuple[str, ...]  # without digits, as shapes are

    def match(self, text: str) -> re.Match[str] | None:
        """The match on a line, unless the line is a benign look-alike."""
        found = self.pattern.search(text)
        if found is None or (self.exclude is not None and self.exclude.search(text)):
            return None
        return found


class Found(Struct, frozen=True):
    """A failure text on a line, with the numbers it holds."""

    signature: Signature
    detail: dict[str, str | int | float]


@cache
def texts() -> tuple[Text, ...]:
    """All signatures that have a pattern: roots first, each role in the order of the files."""
    found = [_text(signature) for signature in config.signatures().values() if signature.pattern]
    return tuple(sorted(found, key=lambda text: _ROLES.index(text.signature.role)))


def _text(signature: Signature) -> Text:
    return Text(
        signature=signature,
        pattern=lazy.pattern(signature.pattern),
        details=tuple(lazy.pattern(pattern) for pattern in signature.details),
        exclude=lazy.pattern(signature.exclude) if signature.exclude else None,
        literals=tuple(_DIGITS.sub("", literal) for literal in signature.literals),
    )


def literals() -> tuple[str, ...]:
    """What a line must hold, at least one of them, to be looked at."""
    words = [word for text in texts() for word in text.signature.literals]
    return tuple(dict.fromkeys([*words, *STARTS]))


@cache
def _literal_index() -> tuple[tuple[str, int], ...]:
    """Literals as they look in a shape, each with the place of its text."""
    pairs = [(word, index) for index, text in enumerate(texts()) for word in text.literals]
    return tuple(pairs)


class Finder:
    """Finds failure texts; remembers for every shape of line which of them may match."""

    def __init__(self) -> None:
        """An empty memory."""
        self._memo: dict[str, tuple[tuple[Text, ...], bool]] = {}

    def may_matter(self, text: str) -> bool:
        """Whether the line may be a failure or begin a traceback; mostly not."""
        candidates, starts = self._known(text)
        return starts or bool(candidates)

    def _known(self, text: str) -> tuple[tuple[Text, ...], bool]:
        """The signatures with a literal on the line, and whether a traceback may begin."""
        shape = text.translate(_NO_DIGITS)
        known = self._memo.get(shape)
        if known is not None:
            return known
        indices = {index for literal, index in _literal_index() if literal in shape}
        found = tuple(texts()[index] for index in sorted(indices))
        known = (found, any(start in shape for start in STARTS))
        if len(shape) <= _MEMO_CHARS:
            if len(self._memo) >= _MEMO_SHAPES:
                self._memo.clear()
            self._memo[shape] = known
        return known

    def find(self, text: str) -> Found | None:
        """The failure a line tells of; None if it tells of none or only quotes one.

        >>> found = Finder().find("RuntimeError: DataLoader timed out after 90 seconds")
        >>> found.signature.name, found.detail
        ('dataloader_timeout', {'timeout_s': 90})
        >>> Finder().find('raise RuntimeError("DataLoader timed out after 90 seconds")')
        """
        text = text[:SCAN_CHARS]
        for item in self._known(text)[0]:
            match = item.match(text)
            if match is not None:
                return None if _QUOTED.match(text) else _found(item, match, text)
        return None


def _found(item: Text, match: re.Match[str], text: str) -> Found:
    detail = _values(match.groupdict())
    for pattern in item.details:
        more = pattern.search(text)
        if more is not None:
            detail.update(_values(more.groupdict()))
    _complete_memory(detail)
    return Found(_by_number(item.signature, detail), detail)


def _values(groups: Mapping[str, str | None]) -> dict[str, str | int | float]:
    """Groups as details; a digit at the end of a name marks the same field in another wording."""
    return {
        name.rstrip("0123456789"): _value(name, text.strip())
        for name, text in groups.items()
        if text is not None
    }


def _value(name: str, text: str) -> str | int | float:
    if name.rstrip("0123456789").endswith("_bytes"):
        return in_bytes(text)
    if name in _AS_TEXT:
        return text
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", text) else text


def in_bytes(text: str) -> float | str:
    """Bytes of `1.50 GiB`, `12kB` or `7 bytes`; the text itself where it is no size.

    >>> in_bytes("1.50 GiB"), in_bytes("7 bytes")
    (1610612736.0, 7.0)
    """
    found = leading_number(text)
    if found is None:
        return text
    factor = BYTES.get(found[1].lower(), 1.0)
    return found[0] * (1024.0 if found[1] == "kB" else factor)  # the kernel's kB are 1024 bytes


def _complete_memory(detail: dict[str, str | int | float]) -> None:
    """Old allocator texts give reserved and allocated; their difference lies idle."""
    reserved, allocated = detail.get("reserved_bytes"), detail.get("allocated_bytes")
    if isinstance(reserved, float) and isinstance(allocated, float):
        detail.setdefault("reserved_unallocated_bytes", max(reserved - allocated, 0.0))


def _by_number(signature: Signature, detail: Mapping[str, object]) -> Signature:
    """The entry of this Xid, where there is one."""
    if "xid" not in detail:
        return signature
    return config.signatures().get(f"xid_{detail['xid']}", signature)
