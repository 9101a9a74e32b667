"""Which regular expressions can take more than linear time, by their structure alone.

A pattern is a list of parts; of each part only the characters (of ASCII) that it can match and
whether it may be empty or repeat without bound are kept. Three shapes are superlinear:

- restart: searching begins anew at every character of a run that an unbounded repetition of the
  same characters has just crossed in vain (`\\w+=` on a long word);
- adjacent: two unbounded repetitions share characters and nothing certain stands between them
  (`\\d+\\.?\\d*` on a long number);
- nested: an unbounded repetition in an unbounded one, with nothing certain beside it (`(a+)+`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

ALL = frozenset(map(chr, range(1, 128)))
#: Repetitions up to this number cost no more than so many steps a character.
BOUND = 2000
_LOOPS = (sre.MAX_REPEAT, sre.MIN_REPEAT)


@dataclass(frozen=True)
class Part:
    """A stretch of a pattern. chars: what it matches; loop: without bound; sure: never empty."""

    chars: frozenset[str]
    loop: bool
    sure: bool
    possessive: bool = False


_END = Part(frozenset(), loop=False, sure=True)


def faults(pattern: str, flags: int = 0, *, searched: bool = True) -> list[str]:
    """The superlinear shapes of a pattern. searched: it may begin anywhere, not only at a start."""
    tree = _parser.parse(pattern, flags)
    found: list[str] = []
    for parts in _ways(tree):
        found += _restart(parts) if searched else []
        found += _adjacent(parts)
    found += ["nested"] if _nested(tree) else []
    return sorted(set(found))


def _restart(parts: Sequence[Part | None]) -> list[str]:
    """A loop that everything before it can stand inside of, with something sure behind it."""
    for index, part in enumerate(parts):
        if part is None:  # an assertion about what stands before: no anew in the middle
            return []
        if part.loop:
            behind = any(other is None or other.sure for other in parts[index + 1 :])
            before = [other for other in parts[:index] if other is not None]
            inside = all(not other.sure or other.chars & part.chars for other in before)
            if behind and inside:
                return ["restart"]
        if part.sure and not part.loop and len(part.chars) == 1:
            later = [o for o in parts[index + 1 :] if o is not None and o.loop]
            if not any(part.chars & other.chars for other in later):
                return []
    return []


def _adjacent(parts: Sequence[Part | None]) -> list[str]:
    kept = [part for part in parts if part is not None]
    for index, first in enumerate(kept):
        if not first.loop or first.possessive:
            continue
        shared = first.chars
        for at, other in enumerate(kept[index + 1 :], index + 1):
            if other.loop and shared & other.chars and any(o.sure for o in kept[at + 1 :]):
                return ["adjacent"]
            if other.sure:
                shared = shared & other.chars if not other.loop else frozenset()
                if not shared:
                    break
    return []


def _nested(tree: Any, inside: bool = False) -> bool:
    for op, value in tree:
        if op in _LOOPS:
            loop = value[1] is sre.MAXREPEAT or value[1] > BOUND
            body = next(iter(_ways(value[2])), [])
            ambiguous = inside and loop
            if ambiguous:
                return True
            certain = any(p is not None and p.sure and not p.loop for p in body) and _apart(body)
            if _nested(value[2], (loop and not certain) or (inside and not loop)):
                return True
        elif op is sre.SUBPATTERN:
            if _nested(value[3], inside):
                return True
        elif op is sre.BRANCH and any(_nested(one, inside) for one in value[1]):
            return True
    return False


def _apart(body: Sequence[Part | None]) -> bool:
    """Whether what is sure in a body shares no character with its loops."""
    loops = frozenset().union(*(p.chars for p in body if p is not None and p.loop))
    return any(p is not None and p.sure and not p.loop and not p.chars & loops for p in body)


def _ways(tree: Any) -> Iterator[list[Part | None]]:
    """The pattern as lists of parts, one a combination of branches (the first 64)."""
    ways: list[list[Part | None]] = [[]]
    for op, value in tree:
        added = list(_parts(op, value))
        ways = [way + more for way in ways for more in added][:64]
    yield from map(_without_line_end, ways)


def _without_line_end(way: list[Part | None]) -> list[Part | None]:
    """`.*$` cannot fail on a line, which has no line break in it."""
    line = len(way) > 1 and way[-1] == _END and way[-2] is not None
    return way[:-1] if line and way[-2].loop and way[-2].chars == ALL - {"\n"} else way


def _parts(op: Any, value: Any) -> Iterator[list[Part | None]]:
    if op is sre.SUBPATTERN:
        yield from _ways(value[3])
    elif op is sre.ATOMIC_GROUP:
        yield from _ways(value)
    elif op is sre.BRANCH:
        for one in value[1]:
            yield from _ways(one)
    elif op in (*_LOOPS, sre.POSSESSIVE_REPEAT):
        yield from _repeated(value, op is sre.POSSESSIVE_REPEAT)
    elif op is sre.ASSERT_NOT or op is sre.ASSERT:
        yield [None] if value[0] < 0 else []
    elif op is sre.AT:
        yield [None] if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING, sre.AT_BOUNDARY) else [
            _END
        ]
    elif op is sre.GROUPREF:
        yield [Part(ALL, loop=False, sure=False)]
    else:
        yield [Part(_chars(op, value), loop=False, sure=True)]


def _repeated(value: Any, possessive: bool) -> Iterator[list[Part | None]]:
    low, high, body = value
    ways = list(_ways(body))
    if high is sre.MAXREPEAT or high > BOUND:
        for way in ways:
            chars = frozenset().union(*(p.chars for p in way if p is not None))
            yield [Part(chars, loop=True, sure=low > 0, possessive=possessive)]
        return
    for way in ways:
        yield way
    if not low:
        yield []


def _chars(op: Any, value: Any) -> frozenset[str]:
    if op is sre.LITERAL:
        return frozenset({chr(value)})
    if op is sre.NOT_LITERAL:
        return ALL - {chr(value)}
    if op is sre.ANY:
        return ALL - {"\n"}
    negated = any(kind is sre.NEGATE for kind, _ in value)
    held: frozenset[str] = frozenset()
    for kind, item in value:
        if kind is sre.LITERAL:
            held |= {chr(item)}
        elif kind is sre.RANGE:
            held |= frozenset(map(chr, range(item[0], min(item[1], 127) + 1)))
        elif kind is sre.CATEGORY:
            held |= _category(str(item))
    return ALL - held if negated else held


def _category(name: str) -> frozenset[str]:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[-1]]
    form = re.compile(rf"\{letter.upper() if '_NOT_' in name else letter}")
    return frozenset(char for char in ALL if form.match(char))
