"""Keys to words in both languages: strings, metric labels, kind titles, cause texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from loganalyze import config

LANGUAGES = ("en", "zh")
_FIELD = re.compile(r"\{(\w+)\}")
#: Families of keys that other stages use; a bare key is tried first.
_PREFIXES = ("", "ui_", "evidence_", "stat_", "statistic_", "check_", "reason_")


class Both(NamedTuple):
    """One text in both languages."""

    en: str
    zh: str

    def of(self, lang: str) -> str:
        """The text of one language; English for an unknown one."""
        return self.zh if lang == "zh" else self.en

    @property
    def same(self) -> bool:
        """True where both languages say the same, so that a page need not say it twice."""
        return self.en == self.zh


Param = Both | str | int | float


def plain(text: object) -> Both:
    """A text that needs no translation: a name, a number, a path."""
    return Both(str(text), str(text))


@cache
def find(key: str) -> Both | None:
    """The wording of a key, bare or under one of the families' prefixes; None if there is none."""
    known = config.strings()
    for prefix in _PREFIXES:
        entry = known.get(prefix + key)
        if isinstance(entry, Mapping) and "en" in entry and "zh" in entry:
            return Both(str(entry["en"]), str(entry["zh"]))
    return None


def both(key: str, /, **params: Param) -> Both:
    """A key's wording with its {placeholders} filled; the key itself where nothing is known."""
    entry = find(key)
    if entry is None:
        return metric_label(key) if key in config.metrics() else plain(readable(key))
    return Both(*(fill(text, lang, params) for text, lang in zip(entry, LANGUAGES, strict=True)))


def fill(text: str, lang: str, params: Mapping[str, Param]) -> str:
    """Placeholders replaced; those without a value stay as they are. Values are never re-read."""

    def value(match: re.Match[str]) -> str:
        given = params.get(match[1])
        if given is None:
            return match[0]
        return given.of(lang) if isinstance(given, Both) else str(given)

    return _FIELD.sub(value, text)


def readable(key: str) -> str:
    """A missing key as words: underscores become blanks."""
    return key.replace("_", " ").replace(".", " · ")


def joined(parts: Sequence[Both | str], en: str = ", ", zh: str = "、") -> Both:
    """A list in both languages, each with its own comma."""
    items = [part if isinstance(part, Both) else plain(part) for part in parts]
    return Both(en.join(item.en for item in items), zh.join(item.zh for item in items))


def metric_label(name: str) -> Both:
    """Label of a canonical metric; families (`aux_loss/<name>`) and `raw/<name>` keep the name."""
    entry = config.metrics().get(name)
    if entry is not None:
        return Both(entry.en, entry.zh)
    family, _, rest = name.partition("/")
    parent = config.metrics().get(f"{family}/<name>")
    if parent is not None:
        return Both(f"{parent.en}: {rest}", f"{parent.zh}：{rest}")
    return plain(rest if family == "raw" and rest else name)


def kind_title(kind: str) -> Both:
    """Title of a finding kind."""
    entry = config.kinds().get(kind)
    return Both(entry.en, entry.zh) if entry is not None else both(kind)


def name_of(key: str) -> Both:
    """Label of whatever may be missing or have run: a metric, a kind, an event, a key of strings/.

    `a|b` is either of them; `event:<kind>` an event of that kind.
    """
    if "|" in key:
        return joined([name_of(part) for part in key.split("|")], en=" or ", zh=" 或 ")
    if key.startswith("event:"):
        return both(f"ui_event_{key.removeprefix('event:')}")
    if key in config.metrics() or key.partition("/")[0] in ("aux_loss", "raw"):
        return metric_label(key)
    return kind_title(key)


class CauseText(Struct, frozen=True, kw_only=True):
    """What the tree says of a cause: title, what to do now, what to log next time."""

    title: Both
    remedy: tuple[Both, ...] = ()
    log_next: tuple[Both, ...] = ()


@cache
def _tree_texts() -> Mapping[tuple[str, str], CauseText]:
    found: dict[tuple[str, str], CauseText] = {}
    for file in config.load_folder("tree"):
        for entry in file.get("cause", ()):
            text = CauseText(
                title=_pair(entry.get("title"), entry["id"])[0],
                remedy=_pair(entry.get("remedy")),
                log_next=_pair(entry.get("log_next")),
            )
            for kind in (*file.get("kinds", ()), ""):
                found.setdefault((kind, entry["id"]), text)
    return found


def _pair(entry: Any, fallback: str = "") -> tuple[Both, ...]:
    """{"en": text or list, "zh": ...} as pairs; one pair of the fallback if there is nothing."""
    if not isinstance(entry, Mapping):
        return (plain(readable(fallback)),) if fallback else ()
    sides = [entry.get(lang, ()) for lang in LANGUAGES]
    lists = [[side] if isinstance(side, str) else list(side) for side in sides]
    return tuple(Both(str(en), str(zh)) for en, zh in zip(*lists, strict=False) if en or zh)


def cause_text(kind: str, cause: str) -> CauseText:
    """The tree's text of a cause of an incident of that kind; its id where the tree is silent."""
    texts = _tree_texts()
    known = texts.get((kind, cause)) or texts.get(("", cause))
    return known or CauseText(title=both(cause))
