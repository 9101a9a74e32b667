"""The text report: verdict first and last, everything between it in the order of urgency."""

from __future__ import annotations

from collections.abc import Sequence

from loganalyze.model import (
    Cause,
    CheckResult,
    Evidence,
    Finding,
    Incident,
    Report,
    RunLog,
    Source,
)
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
from loganalyze.report.paper import Paper
from loganalyze.report.spark import spark
from loganalyze.report.story import Files
from loganalyze.report.wording import Both, both, cause_text, joined, kind_title

MARKS = {"critical": "✖", "warning": "▲", "info": "●", "clean": "✔", "unreadable": "■"}
CHECK_MARKS = {"supported": "+", "ruled_out": "-", "not_checkable": "?"}
MAX_INCIDENTS, MAX_LOOSE, MAX_CHECKS, MAX_INPUTS = 20, 30, 6, 40


def render_text(
    report: Report, lang: str, *, files: Files | None = None, width: int = 100, color: bool = False
) -> str:
    """The report as text, `width` columns wide; ANSI colours only where asked for."""
    paper = Paper(lang=lang, width=width, color=color)
    runs = views(report.diagnoses)
    paper.line(0, f"loganalyze {report.version}", "dim")
    for run in runs:
        _run(paper, run, report.baseline)
    _inputs(paper, report, runs)
    _ending(paper, report, runs, files or {})
    return paper.text()


def render_news(
    run: RunView, finding: Finding, lang: str, *, width: int = 100, color: bool = False
) -> str:
    """One finding of a run under watch: what, why, what to do first."""
    paper = Paper(lang=lang, width=width, color=color)
    _finding(paper, run, finding)
    incident = next((i for i in run.incidents if finding.id in i.findings), None)
    if incident is not None:
        paper.field("ui_why", story.why(incident))
        for item in story.remedies(incident)[:1]:
            paper.field("ui_do_first", item)
    return paper.text()


def _run(paper: Paper, run: RunView, baseline: RunLog | None) -> None:
    meta = run.diagnosis.run.meta
    verdict = run.diagnosis.verdict
    paper.gap()
    paper.line(0, f"{both('ui_run').of(paper.lang)} {meta.id}", "bold", tail=meta.framework)
    paper.line(0, paper.say(story.verdict_line(run)), verdict, mark=MARKS[verdict])
    first = story.first_trouble(run)
    if first is not None:
        paper.field("ui_first", first)
    then = story.followed(run)
    if then is not None:
        paper.field("ui_then", then)
    if run.headline is not None:
        paper.field("ui_why", story.why(run.headline))
    for index, item in enumerate(story.do_first(run)):
        paper.field("ui_do_first" if index == 0 else "", item)
    paper.field("ui_behind", story.basis(run))
    for index, text in enumerate(judged_by(run)):
        paper.field("ui_judged_by" if index == 0 else "", text)
    for index, text in enumerate(baseline_words(run, baseline)):
        paper.field("ui_baseline_short" if index == 0 else "", text)
    _spark(paper, run, "loss", None, 2)
    for number, incident in enumerate(run.incidents[:MAX_INCIDENTS], 1):
        _incident(paper, run, incident, number)
    _more(paper, len(run.incidents) - MAX_INCIDENTS)
    _loose(paper, run)
    _checks(paper, run)


def baseline_words(run: RunView, baseline: RunLog | None) -> tuple[Both, ...]:
    """What is said of a run beside its baseline; the modules for it are loaded only for one."""
    if baseline is None:
        return ()
    from loganalyze.report.versus import in_short

    return in_short(run.diagnosis, baseline)


def _incident(paper: Paper, run: RunView, incident: Incident, number: int) -> None:
    paper.gap()
    title = f"{number}. {story.code_of(incident.kind)} {paper.say(kind_title(incident.kind))}"
    where = paper.say(amounts.span(incident.step_first, incident.step_last))
    paper.line(0, title, incident.severity, mark=MARKS[incident.severity], tail=where)
    facts = [part for part in (story.outcome(incident), story.cost(incident)) if part is not None]
    if facts:
        paper.field("ui_outcome", joined(facts, en=" · ", zh=" · "))
    for finding in run.members(incident):
        _finding(paper, run, finding, first=finding.id == incident.first_mover)
    _causes(paper, run, incident)
    for index, item in enumerate(story.remedies(incident)):
        paper.field("ui_do_now" if index == 0 else "", item)
    for index, item in enumerate(story.log_next(incident)):
        paper.field("ui_log_next" if index == 0 else "", item)
    if incident.settle:
        paper.field("ui_next_check", story.settling(incident))
    missing = missing_of(incident)
    if missing:
        paper.field("ui_not_checked", story.missing_words(missing))


def _finding(paper: Paper, run: RunView, finding: Finding, *, first: bool = False) -> None:
    head = f"{finding.id}  {paper.say(kind_title(finding.kind))}"
    known = finding.step_first is not None
    tail = [paper.say(amounts.span(finding.step_first, finding.step_last)) if known else ""]
    tail += [paper.say(story.finding_where(finding)), numbers.clock(run.wall_s(finding.step_first))]
    tail += [paper.say(both("ui_first_mover"))] if first else []
    paper.line(2, head, finding.severity, mark=MARKS[finding.severity],
               tail=" · ".join(part for part in tail if part))  # fmt: skip
    for evidence in finding.evidence:
        _evidence(paper, run, evidence, 6)
    for label, value in story.statistics(finding) if not finding.evidence else ():
        paper.line(6, paper.say(both("ui_evidence_value", label=label, value=value)))
    if finding.threshold is not None:
        # Sources are cited in English only: the Chinese text leaves them to the page.
        key = "ui_limit_line" if paper.lang == "en" else "ui_limit_bare"
        text = both(key, limit=story.limit(finding.threshold), source=finding.threshold.source)
        paper.line(6, paper.say(text), "dim")
    _spark(paper, run, finding.metric, finding, 6)


def _evidence(paper: Paper, run: RunView, evidence: Evidence, indent: int) -> None:
    step = "" if evidence.step is None else paper.say(both("ui_step_n", step=evidence.step))
    parts = [paper.say(story.evidence_line(evidence)), step, place(run, evidence)]
    paper.line(indent, "  ".join(part for part in parts if part))


def place(run: RunView, evidence: Evidence) -> str:
    """file:line of an observation; "" where it has none."""
    source = run.source(evidence.ref)
    return f"{source.path}:{evidence.ref.line}" if source and evidence.ref else ""


def _causes(paper: Paper, run: RunView, incident: Incident) -> None:
    for cause in ordered_causes(incident):
        _cause(paper, run, incident, cause)


def _cause(paper: Paper, run: RunView, incident: Incident, cause: Cause) -> None:
    state = paper.say(both(f"ui_state_{cause.verdict}"))
    if cause.verdict == "supported":
        state += f" {story.percent(cause.confidence)}"
    title = paper.say(cause_text(incident.kind, cause.id).title)
    style = "bold" if cause.verdict == "supported" else ""
    paper.line(2, f"{CHECK_MARKS[cause.verdict]} {title}", style, tail=state)
    told = cause.verdict == "supported"
    for check in cause.checks[: MAX_CHECKS if told else 2]:
        text = paper.say(check_line(check))
        paper.line(6, f"{CHECK_MARKS[check.state]} {text}", "dim")
        for evidence in check.evidence if told else ():
            _evidence(paper, run, evidence, 8)


def check_line(check: CheckResult) -> Both:
    """A check and, where it could not be answered, what it lacks."""
    label = both(check.check)
    lack = story.missing_words(check.missing)
    return both("ui_check_lacks", check=label, missing=lack) if check.missing else label


def _spark(
    paper: Paper, run: RunView, metric: str | None, finding: Finding | None, indent: int
) -> None:
    line = spark(run, metric, finding, columns=min(60, paper.width - 30))
    if line is not None:
        label = paper.say(amounts.span(line.first, line.last))
        ends = f"{numbers.number(line.low)} … {numbers.number(line.high)}"
        paper.line(indent, f"{line.bars}  {ends}  {label}", "dim")


def _loose(paper: Paper, run: RunView) -> None:
    if not run.loose:
        return
    paper.heading("ui_other_findings")
    for finding in run.loose[:MAX_LOOSE]:
        _finding(paper, run, finding)
    _more(paper, len(run.loose) - MAX_LOOSE)


def _more(paper: Paper, count: int) -> None:
    if count > 0:
        paper.line(2, paper.say(both("ui_more", count=count)), "dim")


def _checks(paper: Paper, run: RunView) -> None:
    passed = fine(run)
    if passed:
        paper.heading("ui_fine")
        paper.line(2, paper.say(_names(passed)))
    skipped = [d for d in run.diagnosis.detectors if d.status == "skipped"]
    if skipped:
        paper.heading("ui_could_not")
    lines = [
        both("ui_evidence_value", label=story.detector_name(d.detector), value=skip_reason(d))
        for d in sorted(skipped, key=lambda d: d.detector)
    ]
    for line in dict.fromkeys(map(paper.say, lines)):  # checks of one kind may lack the same
        paper.line(2, line)
    off = detectors_by_status(run.diagnosis, "off")
    if off:
        paper.heading("ui_off")
        paper.line(2, paper.say(joined([story.detector_name(name) for name in off])))


def skip_reason(detector: object) -> Both:
    """Why a detector did not run: its reason, else what is missing."""
    reason = getattr(detector, "reason", "")
    missing = getattr(detector, "missing", ())
    if reason:
        return both(reason, missing=story.missing_words(missing))
    return both("ui_needs", missing=story.missing_words(missing))


def _names(names: Sequence[str]) -> Both:
    return joined([kind_title(name) for name in names])


def _inputs(paper: Paper, report: Report, runs: tuple[RunView, ...]) -> None:
    paper.heading("ui_inputs")
    for run in runs:
        sources = run.diagnosis.run.sources
        for source in sources[:MAX_INPUTS]:
            _source(paper, source)
        _more(paper, len(sources) - MAX_INPUTS)
        frame = run.diagnosis.run
        facts = both("ui_run_account", run=run.id, metrics=len(run.metrics),
                     segments=len(frame.meta.segments), events=frame.events.height)  # fmt: skip
        paper.line(2, paper.say(facts), "dim")
    for source in report.unread:
        _source(paper, source)


def _source(paper: Paper, source: Source) -> None:
    account = source.account
    text = both(
        "ui_account_line",
        lines=numbers.grouped(account.lines),
        read=numbers.grouped(account.read),
        ignored=numbers.grouped(account.ignored_total),
        unknown=numbers.grouped(account.unknown),
    )
    name = source.parser or paper.say(both("ui_unread"))
    paper.line(2, f"{source.path} ({name}, {numbers.size(source.bytes)})", tail=paper.say(text))


def _ending(paper: Paper, report: Report, runs: tuple[RunView, ...], files: Files) -> None:
    paper.gap()
    for run in runs if len(runs) > 1 else ():
        paper.line(0, f"{run.id}: {paper.say(story.verdict_line(run))}", run.diagnosis.verdict,
                   mark=MARKS[run.diagnosis.verdict])  # fmt: skip
    line = both("ui_evidence_value", label=both("ui_verdict"),
                value=story.report_line(report, runs))  # fmt: skip
    paper.line(0, paper.say(line), report.verdict, mark=MARKS[report.verdict])
    worst = [run for run in runs if run.diagnosis.verdict == report.verdict][:1]
    typed = [command for run in worst for command in story.commands(run, files)]
    if not typed:
        typed = ["loganalyze formats" if not runs else "loganalyze rules"]
    for index, command in enumerate(typed):
        lead = paper.say(both("ui_next")) if index == 0 else ""
        paper.command(lead, command)
