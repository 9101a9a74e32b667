"""System detectors on real logs: no false alarm, and what an expert sees is found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from paths import CORPUS, needs_corpus

from loganalyze.config import load_thresholds
from loganalyze.detectors.audit import CONFIG_AUDIT
from loganalyze.detectors.base import Context
from loganalyze.detectors.coverage import COVERAGE
from loganalyze.detectors.hardware import HARDWARE
from loganalyze.detectors.life import FAILURE_EVENTS
from loganalyze.detectors.life_saves import SAVES_AND_RESTARTS
from loganalyze.detectors.memory import MEMORY
from loganalyze.detectors.ranks import RANKS
from loganalyze.detectors.rl import RL
from loganalyze.detectors.speed import SPEED_OVER_TIME
from loganalyze.detectors.speed_efficiency import EFFICIENCY
from loganalyze.ingest import ingest
from loganalyze.model import Finding, severity_rank
from loganalyze.profile import choose_profile

pytestmark = [pytest.mark.corpus, pytest.mark.slow, needs_corpus]

_FAMILIES = ("megatron", "deepspeed_hf", "wandb_tb")
_DETECTORS = (
    SPEED_OVER_TIME, *EFFICIENCY, *MEMORY, *HARDWARE, *RANKS, FAILURE_EVENTS, SAVES_AND_RESTARTS,
    *RL, CONFIG_AUDIT, *COVERAGE,
)  # fmt: skip
_KINDS = frozenset(kind for detector in _DETECTORS for kind in detector.kinds)
#: Share of the expectations of high confidence that must be met; the rest needs more parsers.
_LEAST_RECALL = 0.85

Truth = Mapping[str, Any]


def _cases(family: str) -> Iterator[Truth]:
    with (CORPUS / family / "TRUTH.jsonl").open(encoding="utf-8") as lines:
        yield from (truth for truth in map(json.loads, lines) if truth["confidence"] == "high")


@cache
def _found(family: str) -> tuple[tuple[Truth, tuple[Finding, ...]], ...]:
    return tuple(
        (truth, tuple(_findings(str(CORPUS / family / truth["path"])))) for truth in _cases(family)
    )


def _findings(path: str) -> Iterator[Finding]:
    for run in ingest([path]).runs:
        profile = choose_profile(run)[0]
        context = Context(run=run, thresholds=load_thresholds(profile), profile=profile)
        for detector in _DETECTORS:
            if not detector.missing(context):
                yield from detector.run(context)


def _meets(expected: Truth, found: Finding) -> bool:
    if found.kind not in {expected["kind"], *expected.get("alt", ())}:
        return False
    if severity_rank(found.severity) < severity_rank(expected["severity_min"]):
        return False
    if expected["step_first"] is None or found.step_first is None:
        return True
    last = found.step_first if found.step_last is None else found.step_last
    low = expected["step_first"] - expected["tolerance"]
    return bool(last >= low and found.step_first <= expected["step_last"] + expected["tolerance"])


@pytest.mark.parametrize("family", _FAMILIES)
def test_no_false_alarm(family: str) -> None:
    """No warning of a system kind that the truth neither expects nor allows."""
    alarms = []
    for truth, found in _found(family):
        fine = set(truth["allow"])
        for expected in truth["expect"]:
            fine |= {expected["kind"], *expected.get("alt", ())}
        alarms += [
            (truth["path"], item.kind, item.severity, item.step_first)
            for item in found
            if item.severity != "info" and item.kind not in fine
        ]
    assert alarms == []


def test_expectations_are_met() -> None:
    """Most of what the truth expects of these kinds is found, at the place and severity asked."""
    missed = []
    count = 0
    for family in _FAMILIES:
        for truth, found in _found(family):
            for expected in truth["expect"]:
                if expected["kind"] in _KINDS:
                    count += 1
                    if not any(_meets(expected, item) for item in found):
                        missed.append((truth["path"], expected["kind"]))
    assert count > 30
    assert len(missed) <= (1.0 - _LEAST_RECALL) * count, missed
