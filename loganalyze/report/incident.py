"""What the page shows of an incident: time line, evidence, causes, remedies, charts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from markupsafe import Markup
from msgspec import Struct

from loganalyze.incidents import CONSEQUENCES
from loganalyze.model import CheckState, Evidence, Finding, Incident, LineRef, Threshold
from loganalyze.report import numbers, story
from loganalyze.report.curves import Chart
from loganalyze.report.model import RunView, missing_of, ordered_causes
from loganalyze.report.quotes import Quote, Quoter
from loganalyze.report.story import Files
from loganalyze.report.svg import Shade, chart
from loganalyze.report.wording import Both, both, cause_text, kind_title, metric_label

MOST_CARDS, MOST_IN_CARD, MOST_TIMELINE, CHARTS_IN_CARD = 24, 12, 14, 3
FULL_CARDS = 4  # with drawings, time line and all evidence; later ones only with their core


class Moment(Struct, frozen=True, kw_only=True):
    """An entry of an incident's time line. severity: of a finding; "" for an event."""

    step: int | None
    after: int | None  # steps since the incident began; negative before it
    clock: str
    severity: str
    text: Both
    anchor: str
    quote: Quote | None


class Observation(Struct, frozen=True, kw_only=True):
    """A piece of evidence with the line that shows it."""

    text: Both
    step: int | None
    quote: Quote | None


class FindingBlock(Struct, frozen=True, kw_only=True):
    """A finding with everything that stands behind it."""

    finding: Finding
    anchor: str
    title: Both
    where: Both
    clock: str
    observations: tuple[Observation, ...]
    statistics: tuple[tuple[Both, Both], ...]
    rules: tuple[Threshold, ...]
    first: bool = False


class CheckView(Struct, frozen=True, kw_only=True):
    """A check of a cause with its answer."""

    state: CheckState
    text: Both
    missing: Both | None
    observations: tuple[Observation, ...]


class CauseView(Struct, frozen=True, kw_only=True):
    """A cause, judged."""

    verdict: CheckState
    confidence: str
    title: Both
    checks: tuple[CheckView, ...]


class IncidentCard(Struct, frozen=True, kw_only=True):
    """An incident as the page shows it."""

    incident: Incident
    number: int
    anchor: str
    code: str
    title: Both
    lead: Both | None  # the first mover, where it is of another kind
    outcome: Both | None
    cost: Both | None
    why: Both
    charts: tuple[tuple[Both, Markup], ...]
    timeline: tuple[Moment, ...]
    findings: tuple[FindingBlock, ...]
    more: int
    causes: tuple[CauseView, ...]
    do: tuple[Both, ...]
    log_next: tuple[Both, ...]
    settle: Both | None
    missing: Both | None
    replay: str


def cards(
    run: RunView, drawn: Sequence[Chart], quoter: Quoter, files: Files, prefix: str
) -> tuple[IncidentCard, ...]:
    """Cards of the incidents, worst first."""
    return tuple(
        _card(run, incident, number, drawn, quoter, files, prefix)
        for number, incident in enumerate(run.incidents[:MOST_CARDS], 1)
    )


def _card(
    run: RunView, incident: Incident, number: int, drawn: Sequence[Chart], quoter: Quoter,
    files: Files, prefix: str,
) -> IncidentCard:  # fmt: skip
    members = run.members(incident)
    mover = run.mover(incident)
    missing = missing_of(incident)
    full = number <= FULL_CARDS
    shown = members[: MOST_IN_CARD if full else 1]
    lead = kind_title(mover.kind) if mover is not None and mover.kind != incident.kind else None
    return IncidentCard(
        incident=incident,
        number=number,
        anchor=f"{prefix}incident-{number}",
        code=story.code_of(incident.kind),
        title=kind_title(incident.kind),
        lead=lead,
        outcome=story.outcome(incident),
        cost=story.cost(incident),
        why=story.why(incident),
        charts=_charts(incident, members, drawn) if full else (),
        timeline=_timeline(run, incident, quoter, prefix) if full else (),
        findings=tuple(
            finding_block(run, f, quoter, prefix, first=f.id == incident.first_mover) for f in shown
        ),
        more=len(members) - len(shown),
        causes=_causes(incident, quoter, full=full),
        do=story.remedies(incident),
        log_next=story.log_next(incident) if full else (),
        settle=story.settling(incident) if incident.settle else None,
        missing=story.missing_words(missing) if missing and full else None,
        replay=_replay(run, mover, files),
    )


def _replay(run: RunView, mover: Finding | None, files: Files) -> str:
    if mover is None or not story.can_replay(mover):
        return ""
    return story.replay_command(run, mover, files)


def finding_block(
    run: RunView, finding: Finding, quoter: Quoter, prefix: str, *, first: bool = False
) -> FindingBlock:
    """A finding with its quoted lines."""
    threshold = (finding.threshold,) if finding.threshold is not None else ()
    others = tuple(rule for rule in finding.rules if rule not in threshold)
    return FindingBlock(
        finding=finding,
        anchor=f"{prefix}{finding.id}",
        title=kind_title(finding.kind),
        where=story.finding_where(finding),
        clock=numbers.clock(run.wall_s(finding.step_first)),
        observations=tuple(_observation(item, quoter) for item in finding.evidence[:6]),
        statistics=story.statistics(finding),
        rules=threshold + others,
        first=first,
    )


def _observation(evidence: Evidence, quoter: Quoter) -> Observation:
    return Observation(
        text=story.evidence_line(evidence), step=evidence.step, quote=quoter.quote(evidence.ref)
    )


def _causes(incident: Incident, quoter: Quoter, *, full: bool) -> tuple[CauseView, ...]:
    return tuple(
        CauseView(
            verdict=cause.verdict,
            confidence=story.percent(cause.confidence),
            title=cause_text(incident.kind, cause.id).title,
            checks=tuple(
                CheckView(
                    state=check.state,
                    text=both(check.check),
                    missing=story.missing_words(check.missing) if check.missing else None,
                    observations=tuple(_observation(e, quoter) for e in check.evidence[:3]),
                )
                for check in (cause.checks if full else ())
            ),
        )
        for cause in ordered_causes(incident)[: None if full else 3]
    )


def _timeline(run: RunView, incident: Incident, quoter: Quoter, prefix: str) -> tuple[Moment, ...]:
    """Findings and the events around them, by step."""
    start = incident.step_first
    moments = [
        Moment(step=at, after=_after(at, start), clock=numbers.clock(run.wall_s(at)),
               severity=f.severity, text=kind_title(f.kind), anchor=f"{prefix}{f.id}", quote=None)
        for f in run.members(incident)[:MOST_IN_CARD]
        for at in (f.step_last if f.kind in CONSEQUENCES else f.step_first,)
    ]  # fmt: skip
    moments += _event_moments(run, incident, quoter)
    ordered = sorted(moments, key=lambda m: (m.step is None, m.step or 0, not m.severity))
    return tuple(ordered[:MOST_TIMELINE])


def _after(step: int | None, start: int | None) -> int | None:
    return None if step is None or start is None else step - start


def _event_moments(run: RunView, incident: Incident, quoter: Quoter) -> list[Moment]:
    """Events from shortly before an incident to shortly after; configuration dumps left out."""
    events, start = run.diagnosis.run.events, incident.step_first
    if start is None or events.height == 0:
        return []
    last = incident.step_last if incident.step_last is not None else start
    side = max(20 * run.diagnosis.run.meta.log_interval, (last - start) // 2)
    step = pl.col("step")
    near = events.filter(step.is_between(start - side, last + side) & (pl.col("kind") != "config"))
    by_distance = near.sort((step - start).abs(), maintain_order=True)
    columns = ("kind", "step", "wall_s", "source", "line", "offset", "length")
    return [
        Moment(step=at, after=at - start, clock=numbers.clock(wall_s), severity="",
               text=both(f"ui_event_{kind}"), anchor="",
               quote=quoter.quote(LineRef(source=source, line=line, offset=offset, length=length)))
        for kind, at, wall_s, source, line, offset, length
        in by_distance.select(columns).head(8).iter_rows()
    ]  # fmt: skip


def _charts(
    incident: Incident, members: tuple[Finding, ...], drawn: Sequence[Chart]
) -> tuple[tuple[Both, Markup], ...]:
    """Small drawings of the metrics that took part, around the incident."""
    if incident.step_first is None:
        return ()
    last = incident.step_last if incident.step_last is not None else incident.step_first
    named = {item.metric.name: item for item in drawn}
    wanted = list(dict.fromkeys([f.metric for f in members if f.metric in named]))
    made = []
    for name in wanted[:CHARTS_IN_CARD]:
        if name is None:
            continue
        shades = [Shade(first=f.step_first, last=f.step_last or f.step_first, severity=f.severity)
                  for f in members if f.metric == name and f.step_first is not None]  # fmt: skip
        window = _window(incident.step_first, last, named[name])
        drawing = chart(named[name].curves, named[name].metric.unit, shades=shades,
                        window=window, size=(380, 150))  # fmt: skip
        if drawing is not None:
            made.append((metric_label(name), drawing))
    return tuple(made)


def _window(first: int, last: int, item: Chart) -> tuple[int, int]:
    side = max((last - first), 60)
    low, high = item.metric.first_step, item.metric.last_step
    return (max(first - side, low if low is not None else first),
            min(last + side, high if high is not None else last))  # fmt: skip
