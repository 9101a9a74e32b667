"""Flat JSON objects that differ in nothing but their numbers, read by templates.

Trackers write the same keys in the same order again and again. What a template does not fit
(other keys, NaN, nested values, text that varies) is left to the JSON decoder. A template is no
validator: a number like `007` that JSON forbids is read where others of its kind stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from loganalyze import lazy
from loganalyze_parsers.lessons import Lesson
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot

#: Sets of keys that an input has; text that varies would make one of every line.
MOST_SHAPES = 24
_TEXT = rb'"((?:[^"\\\x00-\x1f]|\\.)*)"'
_NUMBER = rb"(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_VALUE = rb"(?:" + _NUMBER + rb"|null|true|false|" + _TEXT + rb")"
_PAIR = lazy.pattern(rb"\s*" + _TEXT + rb"\s*:\s*" + _VALUE + rb"\s*")
#: Texts that are numbers: with them a line is no constant.
_WORDS = frozenset({b"NaN", b"Infinity", b"-Infinity"})

#: What a key's number is: the column's name and a factor; None leaves the object to the decoder.
Column = Callable[[str], tuple[str, float] | None]


def object_reader(column: Column, *, texts: bool = True) -> TemplateReader:
    """A reader of objects. texts: whether they may hold text (which is no number to the caller)."""
    return TemplateReader(
        lambda raw: b"{" in raw[:9], lambda raw: lesson_of(raw, column, texts=texts), MOST_SHAPES
    )


def lesson_of(raw: bytes, column: Column, *, texts: bool = True) -> Lesson | None:
    """The numbers of one flat object; None if the decoder must read it.

    >>> lesson = lesson_of(b'{"step": 7, "loss": 2.5, "mode": null}', lambda key: (key, 1.0))
    >>> [(slot.name, slot.start, slot.text) for slot in lesson.slots]
    [('step', 9, '7'), ('loss', 20, '2.5')]
    """
    body = raw.strip()
    at = raw.find(b"{") + 1
    end = raw.rfind(b"}")
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return None
    slots: list[Slot] = []
    keys: set[bytes] = set()
    while at < end:
        pair = _PAIR.match(raw, at, end)
        if pair is None or pair[1] in keys or (pair[3] is not None and not texts):
            return None
        keys.add(pair[1])
        if pair[3] in _WORDS:
            return None
        if pair[2] is not None:
            found = _named(pair[1], column)
            if found is None:
                return None
            slots.append(Slot(*found, pair.start(2), pair[2].decode(), varies=True))
        at = pair.end()
        if at < end and raw[at : at + 1] != b",":
            return None
        at += 1
    names = {slot.name for slot in slots}
    # A comma before the brace is no JSON: then `at` stands right behind it.
    return Lesson(tuple(slots)) if len(names) == len(slots) and slots and at == end + 1 else None


def _named(key: bytes, column: Column) -> tuple[str, float] | None:
    try:
        name = json.loads(b'"' + key + b'"')
    except ValueError:
        return None
    return column(name)
