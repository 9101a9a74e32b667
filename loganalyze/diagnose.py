"""Findings + trees + run -> a diagnosis: incidents, their causes for and against, the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import Thresholds
from loganalyze.incidents import Story, stories
from loganalyze.knowledge import CauseRule, Rule, tree_of
from loganalyze.model import (
    Cause,
    CheckResult,
    CheckState,
    DetectorRun,
    Diagnosis,
    Finding,
    Incident,
    RunLog,
    Verdict,
    severity_rank,
)
from loganalyze.tracks import tracks

#: Causes shown for an incident, at most.
MAX_CAUSES = 3
#: Without a decisive check no cause is held for more likely than this: a log rarely proves one.
_CAP, _DECISIVE_CAP = 0.6, 0.95
#: What a check that was ruled out takes off, as a share of what it would have added.
_AGAINST = 0.5


def diagnose(
    run: RunLog,
    findings: Sequence[Finding],
    detectors: Sequence[DetectorRun],
    thresholds: Thresholds,
) -> Diagnosis:
    """Judge a run by its findings."""
    told = stories(run, findings)
    return Diagnosis(
        run=run,
        findings=tuple(findings),
        incidents=tuple(
            _incident(run, story, number, thresholds) for number, story in enumerate(told, 1)
        ),
        detectors=tuple(detectors),
        thresholds=tuple(sorted(thresholds.entries.values(), key=lambda entry: entry.name)),
        verdict=_verdict(run, findings),
    )


def _verdict(run: RunLog, findings: Sequence[Finding]) -> Verdict:
    """The worst finding's severity; clean only where a finite loss with steps was read."""
    if findings:
        return max((f.severity for f in findings), key=severity_rank)
    if not len(run.readings):
        return "unreadable"
    losses = tracks(run, "loss")
    return "clean" if any(math.isfinite(v) for t in losses for v in t.values[:100]) else "info"


def _incident(run: RunLog, story: Story, number: int, thresholds: Thresholds) -> Incident:
    context = CheckContext(
        run=run, findings=story.findings, finding=story.main, thresholds=thresholds
    )
    causes = ranked_causes(context, story.kind)
    return Incident(
        id=f"I{number}",
        severity=story.severity,
        kind=story.kind,
        step_first=story.first,
        step_last=story.last,
        first_mover=story.first_mover.id,
        findings=tuple(finding.id for finding in story.findings),
        causes=causes,
        recovered=story.recovered,
        cost_steps=story.cost_steps,
        cost_seconds=story.cost_seconds,
        settle=_settling_check(causes),
    )


def ranked_causes(context: CheckContext, kind: str) -> tuple[Cause, ...]:
    """The causes of a kind's tree: at most three open ones, likeliest first, then those ruled out.

    confidence: the logistic of ln(prior / (1 - prior)) plus the weights of supported checks minus
    half the weights of those ruled out; at most 0.6 unless a decisive check is supported.
    """
    tree = tree_of(kind)
    if tree is None:
        return ()
    memo: dict[str, CheckResult] = {}
    judged = [_judged(context, rule, memo) for rule in tree.causes]
    open_ones = sorted((c for c in judged if c.verdict != "ruled_out"), key=_likeliest)
    return (*open_ones[:MAX_CAUSES], *(c for c in judged if c.verdict == "ruled_out"))


def _likeliest(cause: Cause) -> tuple[float, bool]:
    return (-cause.confidence, cause.verdict != "supported")


def _answer(context: CheckContext, name: str, memo: dict[str, CheckResult]) -> CheckResult:
    if name not in memo:
        memo[name] = CHECKS[name](context)
    return memo[name]


def _judged(context: CheckContext, rule: CauseRule, memo: dict[str, CheckResult]) -> Cause:
    confirm = [(entry, _answer(context, entry.check, memo)) for entry in rule.confirm]
    exclude = [_answer(context, entry.check, memo) for entry in rule.exclude]
    excluded = any(answer.state == "supported" for answer in exclude)
    verdict = _cause_verdict(confirm, excluded)
    return Cause(
        id=rule.id,
        verdict=verdict,
        confidence=0.0 if verdict == "ruled_out" else _confidence(rule.prior, confirm),
        checks=(*(answer for _, answer in confirm), *exclude),
        missing=tuple(dict.fromkeys(name for _, answer in confirm for name in answer.missing)),
    )


def _cause_verdict(confirm: Sequence[tuple[Rule, CheckResult]], excluded: bool) -> CheckState:
    states = [answer.state for _, answer in confirm]
    if excluded or (states and all(state == "ruled_out" for state in states)):
        return "ruled_out"
    needed = [a.state for rule, a in confirm if rule.decisive]
    if needed and all(state == "ruled_out" for state in needed) and "supported" not in states:
        return "ruled_out"
    return "supported" if _weight(confirm) > 0 else "not_checkable"


def _confidence(prior: float, confirm: Sequence[tuple[Rule, CheckResult]]) -> float:
    odds = math.log(prior / (1 - prior)) + _weight(confirm)
    proven = any(rule.decisive and answer.state == "supported" for rule, answer in confirm)
    return round(min(1 / (1 + math.exp(-odds)), _DECISIVE_CAP if proven else _CAP), 3)


def _weight(confirm: Sequence[tuple[Rule, CheckResult]]) -> float:
    """Log-odds that the checks add: what supports less half of what speaks against."""
    signs = {"supported": 1.0, "ruled_out": -_AGAINST, "not_checkable": 0.0}
    return sum(signs[answer.state] * rule.weight for rule, answer in confirm)


def _settling_check(causes: Sequence[Cause]) -> str:
    """The first open check of the likeliest cause that the second does not share."""
    open_ones = [cause for cause in causes if cause.verdict != "ruled_out"][:2]
    if len(open_ones) < 2:
        return ""
    names = [
        {check.check for check in cause.checks if check.state == "not_checkable"}
        for cause in open_ones
    ]
    for cause in open_ones:
        for check in cause.checks:
            if check.check in names[0] ^ names[1]:
                return check.check
    return next((check.check for check in open_ones[0].checks if check.check in names[0]), "")
