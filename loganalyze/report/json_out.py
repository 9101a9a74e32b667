"""The JSON report, schema loganalyze.report/1: the same facts give the same bytes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from loganalyze.model import (
    Cause,
    CheckResult,
    Evidence,
    Finding,
    Incident,
    Report,
    Segment,
    Source,
    Threshold,
)
from loganalyze.report.judged import changed
from loganalyze.report.model import RunView, ordered_causes, views
from loganalyze.report.numbers import nonfinite_name
from loganalyze.report.wording import both, cause_text

SCHEMA = "loganalyze.report/1"
#: Characters that a terminal obeys or that turn a line's direction; escaped as JSON allows.
_UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")
Json = dict[str, Any]


def render_json(report: Report) -> str:
    """One JSON document. Remedies are in English, whatever the locale: bytes must not depend on it.

    Lists whose order means nothing are sorted; NaN and infinities are strings.
    """
    runs = views(report.diagnoses)
    inputs = [source for run in runs for source in run.diagnosis.run.sources] + list(report.unread)
    seen = {(source.path, source.sha256): source for source in inputs}
    document = {
        "schema": SCHEMA,
        "version": report.version,
        "verdict": report.verdict,
        "inputs": [_input(seen[key]) for key in sorted(seen)],
        "runs": [_run(run) for run in sorted(runs, key=lambda run: run.id)],
    }
    return _text(document, 1)


def render_finding(run: RunView, finding: Finding, **beside: Json | str | bool | None) -> str:
    """One finding with its incident as one line of JSON, schema loganalyze.finding/1."""
    incident = next((i for i in run.incidents if finding.id in i.findings), None)
    document = {
        "schema": "loganalyze.finding/1",
        "run": run.id,
        **beside,
        "finding": _finding(run, finding),
        "incident": None if incident is None else _incident(run, incident),
    }
    return _text(document, None)


def _text(document: Json, indent: int | None) -> str:
    told = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False, indent=indent) + "\n"
    return _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", told)


def _finite(value: Any) -> Any:
    """NaN and infinities as strings, lone surrogates as escapes that any reader can decode."""
    if isinstance(value, float):
        return value if math.isfinite(value) else nonfinite_name(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_finite(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _input(source: Source) -> Json:
    account = source.account
    return {
        "path": source.path,
        "sha256": source.sha256,
        "bytes": source.bytes,
        "format": source.parser,
        "lines": account.lines,
        "lines_read": account.read,
        "lines_ignored": account.ignored_total,
        "lines_unknown": account.unknown,
    }


def _run(run: RunView) -> Json:
    meta = run.diagnosis.run.meta
    by_detector = sorted(run.diagnosis.detectors, key=lambda d: (d.detector, d.status))
    profile = run.diagnosis.profile
    own, learnt = changed(run)
    return {
        "id": run.id,
        "framework": meta.framework,
        "judged_by": {
            "profile": None if profile is None else profile.name,
            "why": "" if profile is None else both(profile.why, seen=profile.seen).en,
            "thresholds": [_threshold(entry) for entry in (*own, *learnt)],
        },
        "steps": {"first": run.step_first, "last": run.step_last, "count": run.step_count},
        "ranks": list(run.ranks),
        "segments": [_segment(segment) for segment in meta.segments],
        "metrics": {
            metric.name: {
                "unit": metric.unit,
                "count": metric.count,
                "first_step": metric.first_step,
                "last_step": metric.last_step,
            }
            for metric in sorted(run.metrics, key=lambda metric: metric.name)
        },
        "levels": {level: list(names) for level, names in run.levels.items()},
        "findings": [_finding(run, finding) for finding in _in_time(run)],
        "incidents": [_incident(run, incident) for incident in run.incidents],
        "checks": [
            {"detector": d.detector, "status": d.status, "missing": sorted(d.missing)}
            for d in by_detector
        ],
    }


def _in_time(run: RunView) -> list[Finding]:
    far = 2**62
    return sorted(
        run.findings.values(),
        key=lambda f: (f.step_first if f.step_first is not None else far, f.code, f.id),
    )


def _segment(segment: Segment) -> Json:
    return {
        "first": segment.first,
        "last": segment.last,
        "relation": segment.relation,
        "superseded_steps": segment.superseded_steps,
    }


def _finding(run: RunView, finding: Finding) -> Json:
    return {
        "id": finding.id,
        "code": finding.code,
        "kind": finding.kind,
        "metric": finding.metric,
        "rank": finding.rank,
        "step_first": finding.step_first,
        "step_last": finding.step_last,
        "step_peak": finding.step_peak,
        "severity": finding.severity,
        "statistics": dict(sorted(finding.statistics.items())),
        "threshold": _threshold(finding.threshold),
        "evidence": [_evidence(run, evidence) for evidence in finding.evidence],
    }


def _threshold(threshold: Threshold | None) -> Json | None:
    if threshold is None:
        return None
    return {
        "name": threshold.name,
        "value": threshold.value,
        "unit": threshold.unit,
        "source": threshold.source,
    }


def _evidence(run: RunView, evidence: Evidence) -> Json:
    source, ref = run.source(evidence.ref), evidence.ref
    return {
        "label": evidence.label,
        "step": evidence.step,
        "value": evidence.value,
        "unit": evidence.unit,
        "expected": evidence.expected,
        "path": source.path if source else None,
        "line": ref.line if ref else None,
        "offset": ref.offset if ref else None,
        "length": ref.length if ref else None,
    }


def _incident(run: RunView, incident: Incident) -> Json:
    return {
        "id": incident.id,
        "severity": incident.severity,
        "kind": incident.kind,
        "step_first": incident.step_first,
        "step_last": incident.step_last,
        "first_mover": incident.first_mover,
        "findings": list(incident.findings),
        "causes": [_cause(run, incident, cause) for cause in ordered_causes(incident)],
        "cost": {"steps": incident.cost_steps, "seconds": incident.cost_seconds},
    }


def _cause(run: RunView, incident: Incident, cause: Cause) -> Json:
    return {
        "id": cause.id,
        "verdict": cause.verdict,
        "confidence": cause.confidence,
        "checks": [_check(run, check) for check in cause.checks],
        "remedy": [item.en for item in cause_text(incident.kind, cause.id).remedy],
        "missing": list(cause.missing),
    }


def _check(run: RunView, check: CheckResult) -> Json:
    return {
        "check": check.check,
        "result": check.state,
        "evidence": [_evidence(run, evidence) for evidence in check.evidence],
    }
