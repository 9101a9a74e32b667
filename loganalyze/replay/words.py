"""Keys to words for a replay's text and page; numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from loganalyze.config import Thresholds, strings
from loganalyze.replay.result import Experiment, Judgement, Match, Result

LANGUAGES = ("en", "zh")
#: Facts that are keys themselves: fact name -> beginning of the wording's key.
_KEYS = {"name": "replay_value_", "where": "replay_where_"}


def say(key: str, lang: str, **values: object) -> str:
    """A key's wording; the key itself where there is none."""
    entry = strings().get(key)
    text = entry[lang] if entry is not None else key
    for name, value in values.items():
        text = text.replace("{" + name + "}", _shown(name, value, lang))
    return text


def _shown(name: str, value: object, lang: str) -> str:
    if name in _KEYS and isinstance(value, str) and f"{_KEYS[name]}{value}" in strings():
        return strings()[f"{_KEYS[name]}{value}"][lang]
    if value is None or value == "":
        return "–"
    return number(value) if isinstance(value, float) else str(value)


def number(value: float | None) -> str:
    """Four significant digits; NaN and infinities by name; – where there is none."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.4g}"


def size(value: float | None) -> str:
    """Bytes with a binary unit."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def exact(value: float | str) -> str:
    """All digits of a float, so that two that differ look different; a hash as it is."""
    return value if isinstance(value, str) else repr(value)


def same_line(result: Result, rules: Thresholds, lang: str) -> str:
    """Whether it is the same step."""
    first = result.first_difference
    facts: dict[str, object] = {
        "count": len(result.matches), "tolerance": rules.value("replay.tolerance"),
    }  # fmt: skip
    if first is not None:
        facts |= {
            "name": first.name, "step": first.step, "recorded": exact(first.recorded),
            "replayed": exact(first.replayed),
        }  # fmt: skip
    return say(f"replay_same_{result.reproduced}", lang, **facts)


def cause_line(judged: Judgement, lang: str) -> str:
    """One judgement as a sentence with its figures."""
    return say(f"replay_cause_{judged.cause}_{judged.state}", lang, **judged.facts)


def headline(result: Result, lang: str) -> str:
    """What is most likely behind the step; a layer found beside another cause is named too."""
    supported = [j for j in result.judgements if j.state == "supported"]
    if not supported:
        key = "replay_none" if result.unusual else "replay_calm_here"
        return say(key, lang, loss=result.loss, usual=result.usual_loss)
    return cause_line(supported[0], lang)


def try_line(trial: Experiment, lang: str) -> str:
    """What an experiment changed."""
    return say(f"replay_try_{trial.name}", lang, subject=trial.subject)


def match_name(match: Match, lang: str) -> str:
    """Name of a compared value."""
    return say(f"replay_value_{match.name}", lang)


def both(key: str, **values: object) -> Mapping[str, str]:
    """A key's wording in all languages."""
    return {lang: say(key, lang, **values) for lang in LANGUAGES}
