"""Takes secrets out of texts that leave a log: keys, tokens, passwords, by their shape.

The shapes stand in masking.toml. A secret becomes `[masked:kind]`; what stands around it is kept.
Patterns have bounded repetitions only, so time grows linearly with the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.config import load_data
from loganalyze.model import Detail, Event, Problem, Source

_off: ContextVar[bool] = ContextVar("masking_off", default=False)


class Shape(Struct, frozen=True):
    """One kind of secret: pieces that announce it (lower case), and its pattern."""

    kind: str
    markers: tuple[str, ...]
    pattern: re.Pattern[str]


@cache
def shapes() -> tuple[Shape, ...]:
    """All kinds, in the order in which they are tried."""
    return tuple(
        Shape(entry["kind"], tuple(entry["marker"]), lazy.pattern(entry["pattern"]))
        for entry in _document()["secret"]
    )


@cache
def _markers() -> tuple[tuple[str, int], ...]:
    """Every marker with the place of its shape: most texts hold none, and all are looked for."""
    return tuple((one, place) for place, shape in enumerate(shapes()) for one in shape.markers)


@contextmanager
def unmasked() -> Iterator[None]:
    """Inside, nothing is masked: for those who asked for it."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


def is_on() -> bool:
    """Whether secrets are masked here."""
    return not _off.get()


def mask(text: str) -> str:
    """The text with every secret replaced.

    >>> mask("cloning https://bot:hunter2hunter2@example.org/x.git")
    'cloning https://[masked:url_credentials]@example.org/x.git'
    """
    return text if _off.get() else _masked(text)


def mask_setting(name: str, value: str) -> str:
    """The value of a setting, masked whole where the setting's name says that it is a secret.

    >>> mask_setting("wandb.api_key", "0123456789"), mask_setting("eos_token", "</s>")
    ('[masked:setting]', '</s>')
    """
    if _off.get():
        return value
    settings = _settings()
    if settings["names"].search(name) and not settings["harmless"].search(value):
        return "[masked:setting]"
    return _masked(value)


def masked_event(event: Event) -> Event:
    """The event with its text and the words of its detail masked."""
    text, detail = mask(event.text), masked_detail(event.detail)
    return event if text == event.text and detail == event.detail else replace(
        event, text=text, detail=detail
    )  # fmt: skip


def masked_detail(detail: Detail) -> Detail:
    """The words of a detail masked; numbers stay."""
    return {
        name: mask_setting(name, value) if isinstance(value, str) else value
        for name, value in detail.items()
    }


def masked_source(source: Source) -> Source:
    """The source with its path and its samples of unknown lines masked."""
    samples = tuple(mask(line) for line in source.account.unknown_samples)
    account = replace(source.account, unknown_samples=samples)
    return replace(source, path=mask(source.path), account=account)


def masked_problem(problem: Problem) -> Problem:
    """The problem with its message masked."""
    return replace(problem, message=mask(problem.message))


@lru_cache(maxsize=4096)
def _masked(text: str) -> str:
    low = text.lower()
    for place in sorted({place for marker, place in _markers() if marker in low}):
        shape = shapes()[place]
        text = shape.pattern.sub(partial(_hidden, shape.kind), text)
    return text


def _hidden(kind: str, match: re.Match[str]) -> str:
    whole = match.group()
    group = "secret" if "secret" in match.re.groupindex else 0
    if "[masked:" in match.group(group):  # another kind was surer
        return whole
    first, end = (place - match.start() for place in match.span(group))
    return f"{whole[:first]}[masked:{kind}]{whole[end:]}"


@cache
def _document() -> Mapping[str, Any]:
    return load_data("masking.toml")


@cache
def _settings() -> dict[str, re.Pattern[str]]:
    return {name: lazy.pattern(text) for name, text in _document()["settings"].items()}
