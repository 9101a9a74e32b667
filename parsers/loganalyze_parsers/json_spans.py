"""Objects of a pretty-printed JSON list with the lines and bytes they stand on."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

_DECODER = json.JSONDecoder()  # takes bare NaN and Infinity, as json.dump writes them
_BETWEEN = " \t\r\n,"


class Span(Struct, frozen=True):
    """One object of a list: value; first line (from 1) and lines it covers; bytes."""

    value: object
    line: int
    lines: int
    offset: int
    length: int


def list_spans(text: str, start: int) -> Iterator[Span]:
    """The objects of the list whose `[` is at text[start]; ends quietly where the text is torn.

    >>> [(s.value, s.line, s.offset) for s in list_spans('{"a": [\\n{"x": NaN},\\n{"x": 2}', 6)][1]
    ({'x': 2}, 3, 20)
    """
    at = start + 1
    line = text.count("\n", 0, at) + 1
    offset = len(text[:at].encode())
    while True:
        gap = at
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
        line += text.count("\n", gap, at)
        offset += at - gap
        if at >= len(text) or text[at] == "]":
            return
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        piece = text[at:end]
        length = len(piece) if piece.isascii() else len(piece.encode())
        breaks = piece.count("\n")
        yield Span(value, line, breaks + 1, offset, length)
        at, line, offset = end, line + breaks, offset + length


def count_lines(data: bytes) -> int:
    """Lines of a file, the last one with or without its newline."""
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def plain_number(value: object) -> float | None:
    """A JSON number; None for anything else, and for whole numbers beyond every double.

    >>> plain_number(3), plain_number(True), plain_number(10**400)
    (3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
