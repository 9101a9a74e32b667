"""What was found in logs, as text that can be compared."""

from __future__ import annotations

import json
from pathlib import Path

from loganalyze.model import Finding
from loganalyze.pipeline import Judging, report_on


def found(*paths: Path) -> str:
    """What was found, to the last digit of every statistic and evidence, without places in files.

    Of what could not be read only that it is said: how much is counted for each file.
    """
    report = report_on([str(path) for path in paths], Judging())
    findings = [f for diagnosis in report.diagnoses for f in diagnosis.findings]
    return json.dumps([_told(f) for f in findings], indent=0, sort_keys=True)


def _told(f: Finding) -> list[object]:
    head: list[object] = [
        f.id,
        f.metric,
        f.step_first,
        f.step_last,
        f.step_peak,
        f.severity,
        f.rank,
    ]
    if f.kind == "unread_input":
        return head
    evidence = [(e.label, e.step, e.value, e.unit, e.expected) for e in f.evidence]
    return [*head, dict(f.statistics), evidence]
