"""Values, ranges and expectations of evidence as words of both languages."""

from __future__ import annotations

import re

from loganalyze.report import numbers
from loganalyze.report.wording import Both, both, find, joined, name_of, plain

#: Units that readers take for granted: a loss is never quoted in nat.
_SILENT = frozenset({"nat"})
_BOUND = re.compile(r"(>=|<=|>|<|)\s*([-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_SIGNS = {">=": "≥ ", "<=": "≤ ", ">": "> ", "<": "< ", "": ""}


def amount(value: float | str | None, unit: str = "") -> Both:
    """A value with its unit in words; texts that stand for a key (yes, no) become words."""
    if isinstance(value, str):
        return word(value)
    if unit in _SILENT:
        return plain(numbers.number(value))
    counted = find(f"ui_unit_{unit}_one" if value == 1 else f"ui_unit_{unit}")
    if counted is None or value is None:
        return plain(numbers.number(value, unit))
    return both(f"ui_unit_{unit}_one" if value == 1 else f"ui_unit_{unit}",
                value=numbers.number(value))  # fmt: skip


def expectation(text: str, unit: str = "") -> Both:
    """What was expected, in the unit of what was seen: `>= 0.25` of a share is ≥ 25 %."""
    match = _BOUND.fullmatch(text.strip())
    if match is None:
        return word(text)
    bound = amount(float(match[2]), unit)
    return Both(_SIGNS[match[1]] + bound.en, _SIGNS[match[1]] + bound.zh)


def word(text: str) -> Both:
    """yes, no, unknown, a level or a list of metrics in words; any other text as it is."""
    if not text:
        return plain("–")
    parts = [part.strip() for part in text.split(",")]
    named = [_named(part) for part in parts]
    known = [item for item in named if item is not None]
    return joined(known) if len(known) == len(parts) else plain(text)


def _named(text: str) -> Both | None:
    for key in (f"ui_word_{text}", f"ui_level_{text}"):
        if find(key) is not None:
            return both(key)
    label = name_of(text)
    return label if label.en != text and " " not in text and text.islower() else None


def span(first: int | None, last: int | None) -> Both:
    """A range of steps in words: step 7, steps 7-9; empty where no step is known."""
    if first is None and last is None:
        return plain("")
    single = first is None or last is None or first == last
    return both("ui_step_n" if single else "ui_steps_n", step=numbers.steps(first, last),
                steps=numbers.steps(first, last))  # fmt: skip
