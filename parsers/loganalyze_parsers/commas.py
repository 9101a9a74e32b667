"""Commas within numbers, before any pattern sees them: decimal, thousands, or between two numbers.

A pattern that knows no commas would read `4,03` as 4 and `1,234.5` as 1. So the text of a line is
first put in Python's spelling where its commas can mean one thing only, and a number that could be
two is blotted out, so that nothing reads half of it:

    loss: 1,234.5          a point behind groups of three: thousands
    tokens: 1,234,567      several groups: thousands
    lr: 3,0E-04, x: 4,03   an exponent, a zero that begins no integer, 0,xxx: decimal
    x: 1.234,5             points before a comma: decimal
    loss: 4,5              a loss is no list: decimal, unless the line has decimal points
    1.2.3                  no number: unclear for a loss, rate or norm, else a version or a date
    1,234                  thousands beside decimal points, decimal beside decimal commas; alone
                           thousands for a count, and unclear for a loss, rate or norm

In brackets a comma separates (`[1,2]`, `(0.9,0.95)`), in a clock time it is the clock's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze_parsers.api import Line as TextLine

#: What a number whose commas are unclear becomes.
BLOT = "?"
_ANY = lazy.pattern(r"[0-9](?:,[0-9]|\.[0-9]+\.[0-9])")
_TOKEN = lazy.pattern(r"(?<![\w.,])[0-9]++(?:[.,][0-9]++)++(?:[eE][-+]?[0-9]++)?+(?!:[0-9])")
_POINT = lazy.pattern(r"(?<![\w.,])[0-9]++\.[0-9]++(?![.,]?[0-9])")
#: Names of quantities that are printed with a fraction, also where it is zero.
_FRACTION = (
    r"(?:loss|lr|learning[ _]rate|norm|gnorm|ppl|perplexity|entropy|kl|nll|reward|acc|accuracy|mfu)"
)
_NAME = lazy.pattern(rf"{_FRACTION}(?:/\w+|_\d+)?$", re.IGNORECASE)
_QUANTITIES = lazy.pattern(
    rf"{_FRACTION}(?:/\w+|_\d+)?['\"]?\s{{0,9}}[=: ]\s{{0,9}}['\"]?[-+\d]", re.IGNORECASE
)
_SHAPES = (
    ("thousands", lazy.pattern(r"[1-9]\d{0,2}(?:,\d{3})+\.\d+|[1-9]\d{0,2}(?:,\d{3}){2,}")),
    ("decimal", lazy.pattern(
        r"[1-9]\d{0,2}(?:\.\d{3})+,\d+(?:[eE][-+]?\d+)?|\d+,\d+[eE][-+]?\d+|0,\d{3,}|"
        r"\d+,0\d(?!\d$)\d*"
    )),
    ("either", lazy.pattern(r"[1-9]\d{0,2},\d{3}")),
    ("fraction", lazy.pattern(r"\d+,\d+")),
)  # fmt: skip
_LEFT = 48  # characters before a number that are looked at
_KEY = lazy.pattern(r"([A-Za-z_][\w /.()%-]*)['\"]?\s*$")


class _Token(Struct, frozen=True):
    """A number with commas: where it stands, its shape ("list": none of a number), its name.

    key: "" in the cell of a table. kind: "named", "listed" (in brackets) or "other" (a time).
    """

    start: int
    end: int
    shape: str
    kind: str
    key: str
    quoted: bool


def plain(text: str, thousands: bool = False) -> tuple[str, bool]:
    """The text with its numbers in Python's spelling, and whether a measured one was unclear.

    thousands: whether `4,031` is thousands where nothing tells, for makers that print them.

    >>> plain("step: 5 loss: 4,03 lr: 3,0E-04 tps: 1,234")
    ('step: 5 loss: 4.03 lr: 3.0E-04 tps: 1.234', False)
    >>> plain("loss: 1,234.5 tps: 6,543 mom=[(0.9,0.95)]")
    ('loss: 1234.5 tps: 6543 mom=[(0.9,0.95)]', False)
    >>> plain("iter 1,000: loss 4,031")
    ('iter 1000: loss ?', True)
    """
    if _ANY.search(text) is None:
        return text, False
    tokens = [token for token in _tokens(text) if token.kind != "other"]
    if not tokens:
        return text, False
    points = any(token.shape == "thousands" and "." in text[token.start : token.end]
                 for token in tokens) or _POINT.search(text) is not None  # fmt: skip
    commas = any(token.shape == "decimal" and token.kind == "named" for token in tokens)
    measured = _QUANTITIES.search(text) is not None
    parts, at, unclear = [], 0, False
    for token in tokens:
        said = text[token.start : token.end]
        told = _told(said, token, _Line(points, commas, measured, thousands))
        unclear = unclear or (told == BLOT and (measured or not token.key))
        parts += [text[at : token.start], told]
        at = token.end
    return "".join([*parts, text[at:]]), unclear


def spelled(line: TextLine) -> tuple[dict[str, TextLine], bool]:
    """The line as dialects see it whose numbers have commas, and whether one was unclear."""
    text, unclear = plain(line.text)
    if text is line.text:
        return {}, False
    thousands, _ = plain(line.text, thousands=True)
    return {"": replace(line, text=text), "thousands": replace(line, text=thousands)}, unclear


def has_commas(text: str) -> bool:
    """Whether commas stand within numbers of a line: no case for the bulk ways.

    >>> has_commas("[2031-04-02 10:11:12,345] loss: 4.5, lr: 3"), has_commas("loss: 4,5")
    (False, True)
    """
    return any(token.kind != "other" for token in _tokens(text))


class _Line(Struct, frozen=True):
    """What the rest of a line says: decimal points, decimal commas, quantities."""

    points: bool
    commas: bool
    measured: bool
    thousands: bool  # not of the line, of its maker


def _told(said: str, token: _Token, line: _Line) -> str:
    """A number with commas in Python's spelling, as it is, or blotted out."""
    only_commas = line.commas and not line.points
    numeric = token.shape in ("decimal", "either", "fraction")
    if token.kind == "listed":
        return _decimal(said) if only_commas and numeric else said
    fraction = not token.key or _NAME.search(token.key) is not None
    if token.quoted and not fraction:
        return said  # a setting: '969,30,1'
    if token.shape == "decimal":
        return _decimal(said)
    if token.shape == "thousands" and ("." in said or line.measured or fraction):
        return said.replace(",", "")
    if "," not in said:  # 1.2.3: a version, unless it should be a number
        return BLOT if fraction and token.key else said
    if token.shape == "list" and not (token.key and line.measured):
        return said  # a row of a table, devices, a split of the data
    if token.shape in ("thousands", "either") and not line.measured and not fraction:
        return said  # a setting: the formats that print such know them
    return _by_the_line(said, token, line, fraction)


def _by_the_line(said: str, token: _Token, line: _Line, fraction: bool) -> str:
    """A number whose shape alone does not tell what its comma is."""
    if token.shape in ("either", "fraction") and line.commas and not line.points:
        return _decimal(said)
    thousands = line.points or line.thousands or not fraction
    if token.shape == "either" and not line.commas and thousands:
        return said.replace(",", "")
    if token.shape == "fraction" and fraction and not line.points:
        return _decimal(said)
    return BLOT


def _decimal(said: str) -> str:
    return said.replace(".", "").replace(",", ".")


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        said = match[0]
        if "," not in said and said.count(".") < 2:
            continue
        shape = next((name for name, form in _SHAPES if form.fullmatch(said)), "list")
        kind, key, quoted = _place(text[max(0, match.start() - _LEFT) : match.start()])
        yield _Token(match.start(), match.end(), shape, kind, key, quoted)


def _place(left: str) -> tuple[str, str, bool]:
    """Kind and key of a number by what stands before it, and whether it is quoted."""
    left = left[:-1] if left.endswith(("-", "+")) else left
    quoted = left.endswith(("'", '"'))
    left = left[:-1] if quoted else left
    before = left.rstrip()
    if not before or before[-1] in "|>":
        return "named", "", quoted
    last = before[-1]
    if last in "[(":
        return "listed", "", quoted
    if last in "=:":
        if last == ":" and before[-2:-1].isdigit() and len(before) == len(left):
            return "other", "", quoted  # 10:11:12,345
        before = before[:-1].rstrip()
    elif last == "," or (len(before) == len(left) and last not in "/~$<"):
        return ("listed" if last == "," else "other"), "", quoted
    found = _KEY.search(before)
    return "named", found[1].strip() if found else "#", quoted
