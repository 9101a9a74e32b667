"""Findings + trees + run -> a diagnosis: incidents, their causes for and against, the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import Thresholds
from loganalyze.incidents import Story, stories
from loganalyze.knowledge import CauseRule, Rule, calibrated, tree_of
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

#: Causes shown for an incident, at most, and beside them those that were ruled out.
MAX_CAUSES, MAX_RULED_OUT = 3, 3
#: Log-odds that the checks must bring together before a cause is called supported.
_ENOUGH = 0.5
#: Below this confidence no cause is called supported, whatever speaks for it.
_LEAST = 0.15


def diagnose(
    run: RunLog,
    findings: Sequence[Finding],
    detectors: Sequence[DetectorRun],
    thresholds: Thresholds,
    *,
    left_out: int = 0,
) -> Diagnosis:
    """Judge a run by its findings. left_out: how many more the user asked not to hear of."""
    told = stories(run, findings)
    memo: dict[str, Any] = {}
    with np.errstate(all="ignore"):  # logs may hold absurd numbers
        incidents = tuple(
            _incident(
                CheckContext(
                    run=run,
                    findings=story.findings,
                    finding=story.main,
                    thresholds=thresholds,
                    everything=tuple(findings),
                    memo=memo,
                ),
                story,
                f"I{number}",
            )
            for number, story in enumerate(told, 1)
        )
    return Diagnosis(
        run=run,
        findings=tuple(findings),
        incidents=incidents,
        detectors=tuple(detectors),
        thresholds=tuple(sorted(thresholds.entries.values(), key=lambda entry: entry.name)),
        verdict=_verdict(run, findings, left_out),
        left_out=left_out,
    )


def _verdict(run: RunLog, findings: Sequence[Finding], left_out: int) -> Verdict:
    """The worst finding's severity; clean only where a finite loss with steps was read.

    Nor is a run clean of which findings were left out.
    """
    if findings:
        return max((f.severity for f in findings), key=severity_rank)
    if not len(run.readings):
        return "unreadable"
    finite = any(np.isfinite(track.values).any() for track in tracks(run, "loss"))
    return "clean" if finite and not left_out else "info"


def _incident(context: CheckContext, story: Story, name: str) -> Incident:
    judged = judged_causes(context, story.kind)
    causes = shown_causes(judged)
    return Incident(
        id=name,
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
        settle=settling_check(story.kind, causes),
    )


def judged_causes(context: CheckContext, kind: str) -> tuple[Cause, ...]:
    """Every cause of a kind's tree, judged: the open ones likeliest first, then those ruled out.

    confidence: the logistic of ln(prior / (1 - prior)) plus the weights of the checks that are
    supported minus the losses of those that are ruled out, calibrated: how often such an answer
    was right (calibration.toml). A cause that a decisive check proves goes before all others.
    Equal causes keep the tree's order.
    """
    tree = tree_of(kind)
    if tree is None:
        return ()
    answers: dict[str, CheckResult] = {}
    judged = [_judged(context, rule, answers) for rule in tree.causes]
    open_ones = sorted((c for c in judged if c.verdict != "ruled_out"), key=_likeliest)
    return (*open_ones, *(c for c in judged if c.verdict == "ruled_out"))


def shown_causes(judged: Sequence[Cause]) -> tuple[Cause, ...]:
    """At most three open causes, and the first few of those that evidence speaks against."""
    open_ones = [cause for cause in judged if cause.verdict != "ruled_out"]
    out = [cause for cause in judged if cause.verdict == "ruled_out"]
    told = [c for c in out if any(check.evidence for check in c.checks)]
    return (*open_ones[:MAX_CAUSES], *told[:MAX_RULED_OUT])


def _likeliest(cause: Cause) -> tuple[float, bool]:
    return (-cause.confidence, cause.verdict != "supported")


def _answer(context: CheckContext, name: str, answers: dict[str, CheckResult]) -> CheckResult:
    if name not in answers:
        answers[name] = CHECKS[name](context)
    return answers[name]


def _judged(context: CheckContext, rule: CauseRule, answers: dict[str, CheckResult]) -> Cause:
    confirm = [(entry, _answer(context, entry.check, answers)) for entry in rule.confirm]
    exclude = [_answer(context, entry.check, answers) for entry in rule.exclude]
    excluded = any(answer.state == "supported" for answer in exclude)
    verdict = _cause_verdict(confirm, excluded)
    confidence = 0.0 if verdict == "ruled_out" else _confidence(rule.prior, confirm)
    if verdict == "supported" and confidence < _LEAST:
        verdict = "not_checkable"  # something speaks for it, but it stays unlikely
    return Cause(
        id=rule.id,
        verdict=verdict,
        confidence=confidence,
        checks=_telling(confirm, exclude, excluded),
        missing=tuple(dict.fromkeys(name for _, answer in confirm for name in answer.missing)),
    )


def _telling(
    confirm: Sequence[tuple[Rule, CheckResult]], exclude: Sequence[CheckResult], excluded: bool
) -> tuple[CheckResult, ...]:
    """The checks, those that decided first: exclusions that hold, then what speaks for it.

    An exclusion that does not hold is no evidence for the cause, and is left out.
    """
    order = ("supported", "ruled_out", "not_checkable")
    own = sorted((answer for _, answer in confirm), key=lambda a: order.index(a.state))
    held = [answer for answer in exclude if answer.state == "supported"]
    return tuple({a.check: a for a in (*held, *own)}.values()) if excluded else tuple(own)


def _cause_verdict(confirm: Sequence[tuple[Rule, CheckResult]], excluded: bool) -> CheckState:
    """Ruled out by an exclusion, by a needed check that fails, or if nothing speaks for it."""
    states = {answer.state for rule, answer in confirm if rule.weight}
    lacking = any(rule.needed and answer.state == "ruled_out" for rule, answer in confirm)
    if excluded or lacking or states == {"ruled_out"}:
        return "ruled_out"
    return "supported" if "supported" in states and _net(confirm) >= _ENOUGH else "not_checkable"


def _net(confirm: Sequence[tuple[Rule, CheckResult]]) -> float:
    """Log-odds that the checks bring together."""
    won = sum(rule.weight for rule, answer in confirm if answer.state == "supported")
    lost = sum(rule.loss for rule, answer in confirm if answer.state == "ruled_out")
    return won - lost


def _confidence(prior: float, confirm: Sequence[tuple[Rule, CheckResult]]) -> float:
    net = _net(confirm)
    share = 1 / (1 + math.exp(-math.log(prior / (1 - prior)) - net))
    proven = any(rule.decisive and answer.state == "supported" for rule, answer in confirm)
    return round(calibrated(share, proven=proven and net >= _ENOUGH), 3)


def settling_check(kind: str, causes: Sequence[Cause]) -> str:
    """The open check that would move the first two causes apart the most; "" if none is open.

    How far it moves them: the difference of its weights for the two, doubled where it is decisive.
    """
    tree = tree_of(kind)
    first_two = [cause.id for cause in causes if cause.verdict != "ruled_out"][:2]
    if tree is None or not first_two:
        return ""
    rules = {cause.id: {rule.check: rule for rule in cause.confirm} for cause in tree.causes}
    open_checks = {
        check.check: None
        for cause in causes
        if cause.id in first_two
        for check in cause.checks
        if check.state == "not_checkable"
        and any(
            check.check in rules[name] and rules[name][check.check].weight for name in first_two
        )
    }
    pulls = [[_pull(rules[cause].get(name)) for cause in first_two] for name in open_checks]
    apart = [max(pull) - min(pull) if len(pull) > 1 else max(pull) for pull in pulls]
    best = max(zip(apart, open_checks, strict=True), key=lambda pair: pair[0], default=(0.0, ""))
    return best[1] if best[0] > 0 else next(iter(open_checks), "")


def _pull(rule: Rule | None) -> float:
    return 0.0 if rule is None else rule.weight * (2.0 if rule.decisive else 1.0)
