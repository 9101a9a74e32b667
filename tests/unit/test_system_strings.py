"""Every evidence label and statistic of the system detectors has wording in both languages."""

from __future__ import annotations

import inspect
import re

from loganalyze.config import strings
from loganalyze.detectors import (
    audit,
    coverage,
    hardware,
    life,
    life_events,
    life_saves,
    memory,
    memory_limits,
    ranks,
    rl,
    speed,
    speed_efficiency,
    speed_stalls,
)

_MODULES = (
    audit, coverage, hardware, life, life_events, life_saves, memory, memory_limits, ranks, rl,
    speed, speed_efficiency, speed_stalls,
)  # fmt: skip


def _used() -> set[str]:
    """Keys in `statistics={...}` and labels of evidence in the detectors' own text."""
    found: set[str] = set()
    for module in _MODULES:
        text = inspect.getsource(module)
        for block in re.findall(r"statistics=\{(.*?)\}", text, re.DOTALL):
            found |= {f"stat_{key}" for key in re.findall(r'"(\w+)":', block)}
        labels = re.findall(r'(?:label=|evidence\()"(\w+)"', text)
        labels += re.findall(r'point\(\s*context[^"]*"(\w+)"', text)
        labels += re.findall(r'"(speed_(?!efficiency)\w+)"', text)
        found |= {f"evidence_{label}" for label in labels}
    return found


def test_every_key_has_both_languages() -> None:
    """No report shows a bare key of these detectors."""
    known = strings()
    used = _used()
    assert len(used) > 80
    assert {key for key in used if key not in known} == set()


def test_wording_is_complete() -> None:
    """Each entry has both languages, neither empty."""
    for key, entry in strings().items():
        if key.startswith(("evidence_", "stat_")):
            assert entry["en"], key
            assert entry["zh"], key
