"""No pattern that meets a log can take more than linear time."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import loganalyze_parsers
import pytest
from msgspec import Struct
from pattern_growth import faults

import loganalyze
from loganalyze.lazy import _Lazy

#: What a pattern below is tried on is short, whatever the log: (module.name, why).
SHORT = {
    "loganalyze_parsers.commas._KEY": "48 characters before a number",
    "loganalyze_parsers.commas._SHAPES": "one number, by fullmatch()",
    "loganalyze_parsers.deepspeed_csv._NAME": "the name of a file",
    "loganalyze_parsers.tables_chart._TAG": "the name of a file",
    "loganalyze_parsers.generic_pairs._BARE": "2000 characters, from their start",
    "loganalyze_parsers.noise_program._IMPORT": "names between commas, which they do not hold",
    "loganalyze.verify_numbers._PLAIN": "matches wherever it begins",
    "loganalyze.verify_numbers._NUMBER": "matches wherever it begins",
}
_ALWAYS_AT_START = r"\.(?:match|fullmatch)\b"
_ANYWHERE = r"(?:\[\w+\]|\.\w+)?\.(?:search|finditer|findall|sub|split)\b"


def patterns() -> Iterator[tuple[str, str, int, bool]]:
    """Name, text, flags of every compiled pattern, and whether it may begin anywhere."""
    for package in (loganalyze_parsers, loganalyze):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".replay" in found.name or found.name.endswith(("__main__", "engine")):
                continue  # these read no log
            module = importlib.import_module(found.name)
            source = Path(str(module.__file__)).read_text(encoding="utf-8")
            for name, value in vars(module).items():
                anywhere = _anywhere(source, name)
                for text, flags in _compiled(value):
                    yield f"{found.name}.{name}", text, flags, anywhere


def _anywhere(source: str, name: str) -> bool:
    at_start = re.search(rf"\b{name}\b{_ALWAYS_AT_START}", source)
    return at_start is None or re.search(rf"\b{name}\b{_ANYWHERE}", source) is not None


def _compiled(value: object, depth: int = 0) -> Iterator[tuple[str, int]]:
    if isinstance(value, re.Pattern):
        text = value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin1")
        yield text, value.flags & ~re.UNICODE
    elif isinstance(value, _Lazy):
        yield vars(value)["_made"]
    elif depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _compiled(one, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from _compiled(list(value.values()), depth + 1)
    elif depth < 4 and isinstance(value, Struct):
        fields = [getattr(value, name) for name in value.__struct_fields__]
        yield from _compiled(fields, depth + 1)


@pytest.mark.slow
def test_the_patterns_of_the_readers() -> None:
    """By structure: none starts anew within what it crossed in vain, none shares a run."""
    found = list(patterns())
    assert len(found) > 200
    bad = {
        f"{name} {text}": wrong
        for name, text, flags, anywhere in found
        if name not in SHORT and (wrong := faults(text, flags, searched=anywhere))
    }
    assert not bad


@pytest.mark.parametrize("folder", ["signatures", ""])
def test_the_patterns_of_the_tables(folder: str) -> None:
    """Signatures of failures, shapes of secrets and of noise."""
    root = Path(str(loganalyze.__file__)).parent / folder
    count = 0
    for path in sorted(root.glob("*.toml")):
        for text in _texts(tomllib.loads(path.read_text(encoding="utf-8"))):
            count += 1
            # A private key's end may be missing: what begins is taken whole, never in vain.
            assert "PRIVATE KEY" in text or not faults(text), (path.name, text)
    assert count > 10


def _texts(value: object, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, key)
    elif isinstance(value, str) and key in ("pattern", "patterns"):
        yield value


@pytest.mark.parametrize(
    ("pattern", "shapes"),
    [
        (r"\w+=", ["restart"]), (r"(?<!\w)\w+=", []), (r"\w{1,80}=", []), (r"loss=\d+", []),
        (r"loss \d+\.?\d*x", ["adjacent"]), (r"loss \d+(?:\.\d*)?x", []),
        (r"^(?:a+)+b", ["nested"]), (r"a.*b.*c", ["adjacent", "restart"]), (r"at: .*$", []),
        (r"epoch \d+: +\d+ / \d+ ", []), (r"\[[^\]]*\]", ["restart"]),
    ],
)  # fmt: skip
def test_the_shapes_are_told_apart(pattern: str, shapes: list[str]) -> None:
    """What takes quadratic time is found, what does not is let pass."""
    assert faults(pattern) == shapes
