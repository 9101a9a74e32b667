"""GitHub annotations: one workflow command per finding."""

from __future__ import annotations

from loganalyze.model import Finding, Report
from loganalyze.report.model import RunView, views
from loganalyze.report.sarif import message
from loganalyze.report.wording import kind_title

COMMAND = {"critical": "error", "warning": "warning", "info": "notice"}


def render_github(report: Report, lang: str) -> str:
    """Workflow commands, worst first; GitHub shows ten of each kind per step."""
    runs = views(report.diagnoses)
    lines = [_line(run, finding, lang) for run in runs for finding in run.findings.values()]
    return "".join(f"{line}\n" for line in lines)


def _line(run: RunView, finding: Finding, lang: str) -> str:
    cited = next((item for item in finding.evidence if run.source(item.ref)), None)
    source = run.source(cited.ref) if cited else None
    fields = {"title": f"{finding.id} {kind_title(finding.kind).of(lang)}"}
    if cited is not None and cited.ref is not None and source is not None:
        fields = {"file": source.path, "line": str(cited.ref.line), **fields}
    given = ",".join(f"{key}={_property(value)}" for key, value in fields.items())
    return f"::{COMMAND[finding.severity]} {given}::{_data(message(run, finding, lang))}"


def _data(text: str) -> str:
    shown = "".join(ch if ch.isprintable() or ch in "\r\n" else "·" for ch in text)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
