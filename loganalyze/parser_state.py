"""What a reader of text knows at some line, as bytes from which another can read on.

Only plain data is kept. What is part of the program (functions, patterns, templates learnt for
speed) is named by its place in a fresh reader and taken from there, and on the way back only the
parsers' own data types are made: a stored state cannot run anything.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType
from typing import Any

import loganalyze_parsers
from loganalyze_parsers import text_log
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.failures_text import Text, texts
from loganalyze_parsers.lazy import _Lazy
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.textlog import TextLog

_PROGRAM = (
    FunctionType, MethodType, BuiltinFunctionType, BuiltinMethodType, re.Pattern, type, _Lazy,
    Dialect, TemplateReader, Text,
)  # fmt: skip
_PLAIN = {
    (kind.__module__, kind.__name__): kind
    for kind in (Counter, OrderedDict, defaultdict, deque, set, frozenset)
}
_OWN = ("loganalyze_parsers.", "loganalyze.model")
_NO_MATTER = frozenset({"whole", "names", "_made", "_seen_noise"})
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
    """plainly: every value written out, so that equal states need not share equal objects."""
    places = {id(one): place for place, one in _program(log)}
    data = io.BytesIO()

    class Plain(pickle.Pickler):
        def persistent_id(self, value: object) -> str | None:
            if not isinstance(value, _PROGRAM) or value in _PLAIN.values():
                return None
            return places.get(id(value)) or _refuse(value)

    pickler = Plain(data, protocol=5)
    pickler.fast = plainly
    try:
        pickler.dump(state)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return data.getvalue() if data.tell() <= MAX_BYTES else None


def _refuse(value: object) -> str | None:
    """A data type of the parsers is named as such; nothing else of the program is."""
    if isinstance(value, type) and value.__module__.startswith(_OWN):
        return None
    raise pickle.PicklingError(f"{value!r} is no data")


def restored(state: bytes, source: int = 0) -> TextLog | None:
    """A reader that goes on where the saved one stood; None where the bytes are not a state."""
    log = text_log(source)
    known = dict(_program(log))

    class Plain(pickle.Unpickler):
        def persistent_load(self, place: Any) -> object:
            if place not in known:
                raise pickle.UnpicklingError(f"{place}: no such place")
            return known[place]

        def find_class(self, module: str, name: str) -> Any:
            if (module, name) in _PLAIN:
                return _PLAIN[module, name]
            found = super().find_class(module, name) if module.startswith(_OWN) else None
            if not isinstance(found, type) or not found.__module__.startswith(_OWN):
                raise pickle.UnpicklingError(f"{module}.{name}: not a data type of the parsers")
            return found

    try:
        values = Plain(io.BytesIO(state)).load()
        for name, value in values.items():
            setattr(log, name, value)
    except (pickle.UnpicklingError, AttributeError, ValueError, TypeError, EOFError, KeyError):
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
