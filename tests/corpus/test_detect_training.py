"""Loss and gradient detectors on real logs: no false alarm, and what an expert sees is found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from judged import FAMILIES
from paths import CORPUS, needs_corpus

from loganalyze.config import kinds, load_thresholds
from loganalyze.detectors import DETECTORS, Context
from loganalyze.ingest import ingest
from loganalyze.model import Finding, severity_rank
from loganalyze.profile import choose_profile

pytestmark = [pytest.mark.corpus, pytest.mark.slow, needs_corpus]

_KINDS = frozenset(name for name, kind in kinds().items() if kind.code.startswith(FAMILIES))
_DETECTORS = tuple(d for d in DETECTORS if _KINDS.intersection(d.kinds))
#: Share of the expectations of high confidence that must be met, by folder.
_LEAST = {"megatron": 1.0, "deepspeed_hf": 1.0, "wandb_tb": 0.95}

Truth = Mapping[str, Any]


@cache
def _found(family: str) -> tuple[tuple[Truth, tuple[Finding, ...]], ...]:
    with (CORPUS / family / "TRUTH.jsonl").open(encoding="utf-8") as lines:
        cases = [truth for truth in map(json.loads, lines) if truth["confidence"] == "high"]
    return tuple((truth, tuple(_findings(str(CORPUS / family / truth["path"])))) for truth in cases)


def _findings(path: str) -> Iterator[Finding]:
    for run in ingest([path]).runs:
        profile = choose_profile(run)[0]
        context = Context(run=run, thresholds=load_thresholds(profile), profile=profile)
        for detector in _DETECTORS:
            if not detector.missing(context):
                yield from (f for f in detector.run(context) if f.kind in _KINDS)


def _meets(item: Finding, expected: Truth) -> bool:
    if item.kind not in {expected["kind"], *(expected.get("alt") or ())}:
        return False
    if severity_rank(item.severity) < severity_rank(expected["severity_min"]):
        return False
    if expected["step_first"] is None or item.step_first is None:
        return True
    last = item.step_first if item.step_last is None else item.step_last
    slack = expected["tolerance"]
    early = last < expected["step_first"] - slack
    return not early and item.step_first <= expected["step_last"] + slack


@pytest.mark.parametrize("family", sorted(_LEAST))
def test_no_false_alarm_in_real_logs(family: str) -> None:
    """Nothing of warning or worse but what is expected or allowed."""
    wrong = []
    for truth, items in _found(family):
        known = set(truth["allow"] or ())
        for expected in truth["expect"]:
            known |= {expected["kind"], *(expected.get("alt") or ())}
        wrong += [
            (truth["path"], item.kind, item.step_first)
            for item in items
            if item.severity != "info" and item.kind not in known
        ]
    assert wrong == []


@pytest.mark.parametrize("family", sorted(_LEAST))
def test_real_incidents_are_found(family: str) -> None:
    """Each expected kind at its steps, with at least its severity."""
    missed, count = [], 0
    for truth, items in _found(family):
        for expected in truth["expect"]:
            if expected["kind"] in _KINDS:
                count += 1
                if not any(_meets(item, expected) for item in items):
                    missed.append((truth["path"], expected["kind"]))
    assert count > 0
    assert len(missed) <= (1 - _LEAST[family]) * count, missed
