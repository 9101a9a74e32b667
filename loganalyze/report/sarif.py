"""SARIF 2.1.0: findings where code scanners and editors look for them."""

from __future__ import annotations

import json
from typing import Any

from loganalyze import config
from loganalyze.model import Evidence, Finding, Report
from loganalyze.report import numbers, story
from loganalyze.report.model import RunView, views
from loganalyze.report.wording import kind_title

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVEL = {"critical": "error", "warning": "warning", "info": "note"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
Json = dict[str, Any]


def render_sarif(report: Report, lang: str) -> str:
    """One SARIF log with one run of the tool over all training runs."""
    runs = views(report.diagnoses)
    pairs = [(run, finding) for run in runs for finding in run.findings.values()]
    kinds = sorted({(finding.code, finding.kind) for _, finding in pairs})
    driver = {
        "name": "loganalyze",
        "version": report.version,
        "rules": [_rule(code, kind, lang) for code, kind in kinds],
    }
    document = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": driver},
            "columnKind": "unicodeCodePoints",
            "results": [_result(run, finding, lang) for run, finding in pairs],
        }],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=True, indent=1) + "\n"


def _rule(code: str, kind: str, lang: str) -> Json:
    family = config.kinds()[kind].family if kind in config.kinds() else ""
    return {
        "id": code,
        "name": kind,
        "shortDescription": {"text": kind_title(kind).of(lang)},
        "properties": {"family": family},
    }


def _result(run: RunView, finding: Finding, lang: str) -> Json:
    made = [_location(run, item) for item in finding.evidence]
    places = [place for place in made if place is not None]
    result: Json = {
        "ruleId": finding.code,
        "level": LEVEL[finding.severity],
        "message": {"text": message(run, finding, lang)},
        "partialFingerprints": {"loganalyze/1": f"{run.id}/{finding.id}"},
        "properties": {"run": run.id, "finding": finding.id, "stepFirst": finding.step_first,
                       "stepLast": finding.step_last},
    }  # fmt: skip
    return {**result, "locations": places[:1], "relatedLocations": places[1:]}


def message(run: RunView, finding: Finding, lang: str) -> str:
    """Title, steps, metric and the first observation, in one line."""
    parts = [
        kind_title(finding.kind).of(lang),
        numbers.steps(finding.step_first, finding.step_last),
    ]
    parts += [story.finding_where(finding).of(lang)]
    parts += [story.evidence_line(item).of(lang) for item in finding.evidence[:1]]
    return " · ".join(part for part in parts if part and part != "–")


def _location(run: RunView, evidence: Evidence) -> Json | None:
    source, ref = run.source(evidence.ref), evidence.ref
    if source is None or ref is None:
        return None
    region = {"startLine": max(1, ref.line), "byteOffset": ref.offset, "byteLength": ref.length}
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri(source.path)}, "region": region},
        "message": {"text": story.evidence_line(evidence).en},
    }


def uri(path: str) -> str:
    """A path as a relative or file URI reference, percent-encoded (RFC 3986)."""
    data = path.replace("\\", "/").encode("utf-8", "surrogateescape")
    text = "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in data)
    return f"file://{text}" if text.startswith("/") else text
