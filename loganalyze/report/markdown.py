"""The report as Markdown: for pull requests, issues and chat."""

from __future__ import annotations

import re

from loganalyze.model import Evidence, Finding, Incident, Report, RunLog
from loganalyze.report import amounts, numbers, story
from loganalyze.report.judged import judged_by
from loganalyze.report.model import (
    RunView,
    detectors_by_status,
    fine,
    missing_of,
    ordered_causes,
    views,
)
from loganalyze.report.story import Files
from loganalyze.report.text import CHECK_MARKS, baseline_words, place, skip_reason
from loganalyze.report.wording import Both, both, cause_text, joined, kind_title

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~>$])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", "@": "&#64;", ":": "&#58;"}


def inert(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no link, no mention."""
    shown = "".join(ch if ch.isprintable() else " " if ch in "\t\n" else "·" for ch in text)
    escaped = _SPECIAL.sub(r"\\\1", shown.replace("&", "&amp;"))
    for character in "<@:":
        escaped = escaped.replace(character, _ENTITIES[character])
    return escaped


def code(text: str) -> str:
    """A code span that no backtick inside can end, and that no table cell is broken by."""
    shown = "".join(ch if ch.isprintable() else "·" for ch in text).replace("|", "¦")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def render_markdown(report: Report, lang: str, *, files: Files | None = None) -> str:
    """Headings, lists and one table per part."""
    runs = views(report.diagnoses)
    lines = [f"# loganalyze: {inert(story.report_line(report, runs).of(lang))}", ""]
    for run in runs:
        lines += _run(run, lang, files or {}, report.baseline)
    lines += _inputs(report, runs, lang)
    return "\n".join(lines).rstrip() + "\n"


def _run(run: RunView, lang: str, files: Files, baseline: RunLog | None) -> list[str]:
    lines = [f"## {inert(run.id)}", "", f"**{inert(story.verdict_line(run).of(lang))}**", ""]
    first = story.first_trouble(run)
    facts = [("ui_first", first), ("ui_then", story.followed(run))]
    facts += [("ui_why", story.why(run.headline))] if run.headline else []
    facts += [("ui_behind", story.basis(run))]
    facts += [("ui_judged_by", text) for text in judged_by(run)]
    facts += [("ui_baseline_short", text) for text in baseline_words(run, baseline)]
    lines += [_fact(key, text, lang) for key, text in facts if text is not None]
    lines += ["", *_ordered("ui_do_first", story.do_first(run), lang)]
    for incident in run.incidents:
        lines += _incident(run, incident, lang, files)
    lines += _table(run, lang) + _checks(run, lang)
    return lines


def _fact(key: str, text: Both, lang: str) -> str:
    return f"- {both(key).of(lang)}: {inert(text.of(lang))}"


def _ordered(key: str, items: tuple[Both, ...], lang: str) -> list[str]:
    if not items:
        return []
    rows = [f"{number}. {inert(item.of(lang))}" for number, item in enumerate(items, 1)]
    return [f"**{both(key).of(lang)}**", "", *rows, ""]


def _incident(run: RunView, incident: Incident, lang: str, files: Files) -> list[str]:
    title = f"{story.code_of(incident.kind)} {kind_title(incident.kind).of(lang)}"
    span = amounts.span(incident.step_first, incident.step_last)
    severity = both(f"ui_severity_{incident.severity}").of(lang)
    where = f" ({span.of(lang)})" if span.en else ""
    title = f"{severity}: {title}{where}"
    lines = [f"### {inert(title)}", ""]
    facts = [part for part in (story.outcome(incident), story.cost(incident)) if part is not None]
    lines += [f"- {inert(fact.of(lang))}" for fact in facts]
    for finding in run.members(incident):
        lines += _evidence_lines(run, finding, lang)
    for cause in ordered_causes(incident):
        text = cause_text(incident.kind, cause.id).title.of(lang)
        state = both(f"ui_state_{cause.verdict}").of(lang)
        lines.append(f"- {inert(CHECK_MARKS[cause.verdict])} **{inert(text)}** ({inert(state)})")
        lines += [f"  - {inert(CHECK_MARKS[check.state])} {inert(both(check.check).of(lang))}"
                  for check in cause.checks]  # fmt: skip
    lines += ["", *_ordered("ui_do_now", story.remedies(incident), lang)]
    lines += _ordered("ui_log_next", story.log_next(incident), lang)
    missing = missing_of(incident)
    if missing:
        lines += [_fact("ui_not_checked", story.missing_words(missing), lang), ""]
    mover = run.mover(incident)
    if mover is not None and story.can_replay(mover):
        lines += [code(story.replay_command(run, mover, files)), ""]
    return lines


def _evidence_lines(run: RunView, finding: Finding, lang: str) -> list[str]:
    head = f"{finding.id} {kind_title(finding.kind).of(lang)}"
    lines = [f"- **{inert(head)}** {inert(story.finding_where(finding).of(lang))}"]
    return lines + [_evidence(run, evidence, lang) for evidence in finding.evidence]


def _evidence(run: RunView, evidence: Evidence, lang: str) -> str:
    where = place(run, evidence)
    cited = f" {code(where)}" if where else ""
    return f"  - {inert(story.evidence_line(evidence).of(lang))}{cited}"


def _table(run: RunView, lang: str) -> list[str]:
    if not run.findings:
        return []
    heads = [both(key).of(lang) for key in
             ("ui_finding", "ui_severity", "ui_title", "ui_steps", "ui_where")]  # fmt: skip
    rows = [
        [finding.id, both(f"ui_severity_{finding.severity}").of(lang),
         kind_title(finding.kind).of(lang), numbers.steps(finding.step_first, finding.step_last),
         story.finding_where(finding).of(lang)]
        for finding in run.findings.values()
    ]  # fmt: skip
    return [_row(heads), _row(["---"] * 5, raw=True), *(_row(row) for row in rows), ""]


def _row(cells: list[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cell if raw else inert(cell) for cell in cells) + " |"


def _checks(run: RunView, lang: str) -> list[str]:
    lines = []
    passed = fine(run)
    if passed:
        lines += [_fact("ui_fine", joined([kind_title(name) for name in passed]), lang), ""]
    skipped = [d for d in run.diagnosis.detectors if d.status == "skipped"]
    if skipped:
        lines += [f"**{both('ui_could_not').of(lang)}**", ""]
        named = [
            (story.detector_name(d.detector).of(lang), skip_reason(d).of(lang))
            for d in sorted(skipped, key=lambda d: d.detector)
        ]
        # checks of one kind may lack the same
        lines += [f"- {inert(name)}: {inert(reason)}" for name, reason in dict.fromkeys(named)]
        lines.append("")
    off = detectors_by_status(run.diagnosis, "off")
    if off:
        lines += [_fact("ui_off", joined([story.detector_name(name) for name in off]), lang), ""]
    return lines


def _inputs(report: Report, runs: tuple[RunView, ...], lang: str) -> list[str]:
    keys = ("ui_input", "ui_format", "ui_lines", "ui_read", "ui_ignored", "ui_unknown")
    heads = [both(key).of(lang) for key in keys]
    sources = [source for run in runs for source in run.diagnosis.run.sources]
    rows = [
        [s.path, s.parser, *(numbers.grouped(n) for n in
                             (s.account.lines, s.account.read, s.account.ignored_total,
                              s.account.unknown))]
        for s in (*sources, *report.unread)
    ]  # fmt: skip
    title = f"## {both('ui_inputs').of(lang)}"
    return [title, "", _row(heads), _row(["---"] * 6, raw=True), *(_row(row) for row in rows)]
