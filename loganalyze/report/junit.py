"""JUnit XML: one suite per run, one case per detector, so that any CI can show it."""

from __future__ import annotations

from html import escape

from loganalyze.model import DetectorRun, Finding, Report
from loganalyze.report import story
from loganalyze.report.model import RunView, kinds_of, views
from loganalyze.report.sarif import message
from loganalyze.report.text import place
from loganalyze.report.wording import joined, kind_title, name_of


def render_junit(report: Report, lang: str) -> str:
    """Findings of severity warning and critical fail; notes pass; skipped detectors are skipped."""
    runs = views(report.diagnoses)
    body = "".join(_suite(run, lang) for run in runs)
    body += "".join(
        f"<testsuite{_attributes(name=source.path, tests=1, failures=0, errors=1)}>"
        f"<testcase{_attributes(name='unread_input', classname='loganalyze')}>"
        f"<error{_attributes(message=story.report_line(report, ()).of(lang))}/></testcase>"
        "</testsuite>\n"
        for source in report.unread
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="loganalyze">\n'
    return f"{head}{body}</testsuites>\n"


def _suite(run: RunView, lang: str) -> str:
    findings = list(run.findings.values())
    detectors = sorted(run.diagnosis.detectors, key=lambda d: d.detector)
    found = {finding.kind for finding in findings}
    quiet = [d for d in detectors if d.status != "ran" or not found & set(kinds_of(d.detector))]
    failures = sum(finding.severity != "info" for finding in findings)
    head = _attributes(
        name=run.id,
        tests=len(findings) + len(quiet),
        failures=failures,
        errors=0,
        skipped=sum(d.status != "ran" for d in quiet),
    )
    cases = "".join(_finding(run, finding, lang) for finding in findings)
    return f"<testsuite{head}>\n{cases}{''.join(_detector(d, lang) for d in quiet)}</testsuite>\n"


def _finding(run: RunView, finding: Finding, lang: str) -> str:
    name = f"{finding.id} {kind_title(finding.kind).of(lang)}"
    case = _attributes(name=name, classname=f"loganalyze.{finding.code}")
    if finding.severity == "info":
        return f"<testcase{case}/>\n"
    lines = [f"{place(run, e)} {story.evidence_line(e).of(lang)}" for e in finding.evidence]
    text = xml_text("\n".join(lines))
    attributes = _attributes(type=finding.severity, message=message(run, finding, lang))
    return f"<testcase{case}><failure{attributes}>{text}</failure></testcase>\n"


def _detector(detector: DetectorRun, lang: str) -> str:
    case = _attributes(
        name=story.detector_name(detector.detector).of(lang), classname="loganalyze.checks"
    )
    if detector.status == "ran":
        return f"<testcase{case}/>\n"
    why = joined([name_of(item) for item in detector.missing]).of(lang) or detector.status
    return f"<testcase{case}><skipped{_attributes(message=why)}/></testcase>\n"


def _attributes(**values: object) -> str:
    return "".join(f' {key}="{xml_text(str(value))}"' for key, value in values.items())


def xml_text(text: str) -> str:
    """Text for XML 1.0: escaped, characters that XML forbids shown as �."""
    legal = "".join(
        ch if ch in "\t\n" or (ch >= " " and not 0xD800 <= ord(ch) <= 0xDFFF
                               and ch not in "\x7f\ufffe\uffff") else "\ufffd"
        for ch in text
    )  # fmt: skip
    return escape(legal, quote=True)
