"""What a reader of text knows at some line, as bytes from which another can read on.

Only plain data is kept. What is part of the program (functions, patterns, templates learnt for
speed) is named by its place in a fresh reader and taken from there, and on the way back only the
parsers' own data types are made: a stored state cannot run anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType

import loganalyze_parsers
from loganalyze_parsers import text_log
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.failures_text import Text, texts
from loganalyze_parsers.kernel import Texts
from loganalyze_parsers.learnt_bulk import LearntBulk
from loganalyze_parsers.seen_lines import SeenLines
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.textlog import TextLog

from loganalyze.lazy import _Lazy
from loganalyze.plain_data import DAMAGE, PicklingError, read, told

_PROGRAM = (
    FunctionType, MethodType, BuiltinFunctionType, BuiltinMethodType, re.Pattern, type, _Lazy,
    Dialect, LearntBulk, SeenLines, TemplateReader, Text, Texts,
)  # fmt: skip
_NO_MATTER = frozenset({"whole", "names", "_made", "_seen_noise", "_seen_lines"})
#: A state beyond this is not worth keeping: the log is full of lines that never repeat.
MAX_BYTES = 32 << 20


@cache
def code_digest() -> str:
    """Hash of the parsers' source: what one version knew, another may not understand."""
    digest = hashlib.sha256()
    (root,) = loganalyze_parsers.__path__
    for path in sorted(Path(root).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def saved(log: TextLog) -> bytes | None:
    """The state of a reader; None where it cannot be told in plain data, or is too large."""
    return _told(log, {name: value for name, value in vars(log).items() if name != "whole"})


def compared(log: TextLog) -> bytes | None:
    """What of the state decides how the next lines are read; equal bytes are equal states.

    Not memories that save time, nor the counts of what was made so far.
    """
    state = {name: value for name, value in vars(log).items() if name not in _NO_MATTER}
    return _told(log, state, plainly=True)


def _told(log: TextLog, state: dict[str, object], *, plainly: bool = False) -> bytes | None:
    places = {id(one): place for place, one in _program(log)}

    def place_of(value: object) -> str | None:
        return places.get(id(value)) if isinstance(value, _PROGRAM) else ""

    try:
        data = told(state, place_of, plainly=plainly)
    except (PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return data if len(data) <= MAX_BYTES else None


def restored(state: bytes, source: int = 0) -> TextLog | None:
    """A reader that goes on where the saved one stood; None where the bytes are not a state."""
    log = text_log(source)
    try:
        for name, value in read(state, dict(_program(log))).items():
            setattr(log, name, value)
    except DAMAGE:
        return None
    return log


def _program(log: TextLog) -> Iterator[tuple[str, object]]:
    """Every part of the program that a reader refers to, with its place: attributes, indices."""
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("", log)]
    while todo:
        place, value = todo.pop()
        if isinstance(value, _PROGRAM):
            yield place, value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        todo.extend((f"{place}.{name}", inner) for name, inner in _inner(value))
    yield from ((f"text {text.signature.name}", text) for text in texts())


def _inner(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((repr(key), inner) for key, inner in value.items() if _telling(inner))
    elif isinstance(value, list | tuple):
        yield from ((str(at), inner) for at, inner in enumerate(value) if _telling(inner))
    elif type(value).__module__.startswith("loganalyze_parsers"):
        names = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
        yield from ((n, getattr(value, n)) for n in sorted(names) if hasattr(value, n))


def _telling(value: object) -> bool:
    return not isinstance(value, str | bytes | int | float | bool | None)
