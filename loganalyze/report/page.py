"""What the page shows of a run, part by part: facts and wording joined, no markup."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from loganalyze import config
from loganalyze.model import DetectorRun, Finding, LineRef, RunLog, Threshold, severity_rank
from loganalyze.report import amounts, numbers, story
from loganalyze.report.bands import mfu_band
from loganalyze.report.curves import MOST_CHARTS, Chart
from loganalyze.report.heat import HeatMap, heat_maps
from loganalyze.report.incident import FindingBlock, IncidentCard, cards, finding_block
from loganalyze.report.memory import MemoryBudget, memory_budget
from loganalyze.report.model import (
    LEVELS,
    PANELS,
    RunView,
    detectors_by_status,
    fine,
)
from loganalyze.report.quotes import Quoter
from loganalyze.report.story import Files
from loganalyze.report.svg import Shade, chart
from loganalyze.report.text import skip_reason
from loganalyze.report.wording import Both, both, kind_title, metric_label

if TYPE_CHECKING:
    from loganalyze.report.versus import Versus

MOST_BLOCKS = 16  # findings shown with their evidence; more are rows of the list
MOST_CONFIG = 300
#: What the configuration section shows, where no incident holds it.
AUDITED = frozenset({"config_audit", "lr_schedule"})


class ChartView(Struct, frozen=True, kw_only=True):
    """A chart of a panel: static drawing, and how much of the log it shows."""

    chart: Chart
    index: int  # of the chart in the page's data
    label: Both
    svg: Markup | None
    complete: bool


class Panel(Struct, frozen=True, kw_only=True):
    """One of the seeds' panels, with what this log lacks for it."""

    key: str
    charts: tuple[ChartView, ...]
    values: tuple[tuple[Both, Both, Both], ...]  # metrics that need no drawing: label, value, when
    missing: Both | None


class Level(Struct, frozen=True, kw_only=True):
    """A level of the pyramid: the metrics there, and canonical ones that are not."""

    key: str
    present: Both | None
    count: int
    absent: Both


class RunPage(Struct, frozen=True, kw_only=True):
    """Everything about one run. prefix: of its anchors (empty for the first run)."""

    run: RunView
    prefix: str
    first: tuple[Both, Both] | None
    then: Both | None
    why: Both | None
    do: tuple[Both, ...]
    commands: tuple[str, ...]
    hero: ChartView | None
    cards: tuple[IncidentCard, ...]
    loose: tuple[FindingBlock, ...]
    audit: tuple[FindingBlock, ...]  # remarks about the configuration
    memory: MemoryBudget | None
    versus: Versus | None
    rows: tuple[tuple[Finding, bool], ...]  # finding, and whether the page shows its evidence
    panels: tuple[Panel, ...]
    undrawn: int  # metrics beyond those that the page draws
    heat: tuple[HeatMap, ...]
    levels: tuple[Level, ...]
    fine: tuple[Both, ...]
    skipped: tuple[tuple[Both, Both], ...]
    off: tuple[Both, ...]
    thresholds: tuple[tuple[Threshold, bool], ...]  # threshold, and whether it decided a finding
    settings: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str, str], ...]


def run_page(
    run: RunView, drawn: tuple[Chart, ...], files: Files, baseline: RunLog | None = None
) -> RunPage:
    """The page's view of a run; reads the quoted lines from the inputs."""
    prefix = "" if run.index == 0 else f"run{run.index + 1}-"
    quoter = Quoter(sources=run.diagnosis.run.sources)
    try:
        incident_cards = cards(run, drawn, quoter, files, prefix)
        audit = _blocks(run, quoter, prefix, audited=True)
        loose = _blocks(run, quoter, prefix, audited=False)
    finally:
        quoter.close()
    shown = {block.finding.id for card in incident_cards for block in card.findings}
    shown |= {block.finding.id for block in loose + audit}
    head = run.headline
    made = tuple(_chart_view(run, item, index) for index, item in enumerate(drawn))
    return RunPage(
        run=run,
        prefix=prefix,
        first=story.first_parts(run),
        then=story.followed(run),
        why=story.why(head) if head else None,
        do=story.do_first(run),
        commands=story.commands(run, files),
        hero=_hero(run, drawn),
        cards=incident_cards,
        loose=loose,
        audit=audit,
        memory=memory_budget(run),
        versus=_versus(run, baseline),
        rows=tuple((finding, finding.id in shown) for finding in run.findings.values()),
        panels=_panels(run, made),
        undrawn=max(0, len(run.metrics) - MOST_CHARTS),
        heat=heat_maps(run),
        levels=_levels(run),
        fine=tuple(kind_title(name) for name in fine(run)),
        skipped=tuple((story.detector_name(d.detector), skip_reason(d)) for d in _skipped(run)),
        off=tuple(story.detector_name(name) for name in detectors_by_status(run.diagnosis, "off")),
        thresholds=_thresholds(run),
        settings=tuple(sorted(run.diagnosis.run.meta.config.items()))[:MOST_CONFIG],
        problems=_problems(run),
    )


def _versus(run: RunView, baseline: RunLog | None) -> Versus | None:
    """The comparison, whose modules are loaded only where there is a baseline."""
    if baseline is None:
        return None
    from loganalyze.report.versus import versus

    return versus(run.diagnosis, baseline)


def _blocks(
    run: RunView, quoter: Quoter, prefix: str, *, audited: bool
) -> tuple[FindingBlock, ...]:
    """Findings outside of incidents: those about the configuration, or all the others."""
    held = [f for f in run.loose if (f.kind in AUDITED) == audited]
    return tuple(finding_block(run, f, quoter, prefix) for f in held[:MOST_BLOCKS])


def _skipped(run: RunView) -> list[DetectorRun]:
    skipped = [d for d in run.diagnosis.detectors if d.status == "skipped"]
    return sorted(skipped, key=lambda d: d.detector)


def shades(run: RunView, metric: str | None) -> tuple[Shade, ...]:
    """Stretches to shade on a chart: findings of its metric; for None, incidents. Worst last."""
    spans = (
        [(i.step_first, i.step_last, i.severity) for i in run.incidents]
        if metric is None
        else [(f.step_first, f.step_last, f.severity)
              for f in run.findings.values() if f.metric == metric]
    )  # fmt: skip
    made = [Shade(first=first, last=first if last is None else last, severity=severity)
            for first, last, severity in spans if first is not None]  # fmt: skip
    return tuple(sorted(made, key=lambda shade: severity_rank(shade.severity)))[-60:]


def restarts(run: RunView) -> list[int]:
    """Steps at which a later segment took over."""
    return [s.first for s in run.diagnosis.run.meta.segments if s.relation != "start"][:40]


def _chart_view(run: RunView, item: Chart, index: int) -> ChartView:
    return _drawn(run, item, index, shades(run, item.metric.name), (440, 180))


def _hero(run: RunView, drawn: tuple[Chart, ...]) -> ChartView | None:
    """The loss (else the first metric with a chart), with every incident shaded."""
    names = [item.metric.name for item in drawn]
    if not names:
        return None
    index = next((names.index(name) for name in ("loss", "reward") if name in names), 0)
    return _drawn(run, drawn[index], index, shades(run, None), (720, 270))


def _drawn(
    run: RunView, item: Chart, index: int, shaded: tuple[Shade, ...], size: tuple[int, int]
) -> ChartView:
    name, unit = item.metric.name, item.metric.unit
    return ChartView(
        chart=item,
        index=index,
        label=metric_label(name),
        svg=chart(item.curves, unit, shades=shaded, restarts=restarts(run), size=size),
        complete=item.shown >= item.total,
    )


def _panels(run: RunView, made: tuple[ChartView, ...]) -> tuple[Panel, ...]:
    found = []
    judged = {finding.metric for finding in run.findings.values()}
    for key in PANELS:
        missing = run.panel_missing(key)
        held = [v for v in made if v.chart.metric.panel == key and v.svg is not None]
        flat = [v for v in held if v.chart.metric.name not in judged and is_flat(v.chart)]
        if held or missing or (key == "distributed" and run.distributed):
            found.append(
                Panel(
                    key=key,
                    charts=tuple(v for v in held if v not in flat),
                    values=(*(_flat_value(v) for v in flat), *_bands(run, key)),
                    missing=_lack(key, missing) if missing else None,
                )
            )
    return tuple(found)


def _bands(run: RunView, panel: str) -> tuple[tuple[Both, Both, Both], ...]:
    band = mfu_band(run) if panel == "efficiency" else None
    return () if band is None else (band,)


def _lack(panel: str, missing: tuple[str, ...]) -> Both:
    key = "ui_panel_missing_ranks" if panel == "distributed" else "ui_panel_missing"
    return both(key, names=story.missing_words(missing))


def is_flat(item: Chart) -> bool:
    """Whether a number says as much as a drawing: one value throughout, or one point."""
    first = next((curve.values[0] for curve in item.curves if len(curve.values)), math.nan)
    return math.isfinite(first) and all(bool((one.values == first).all()) for one in item.curves)


def _flat_value(view: ChartView) -> tuple[Both, Both, Both]:
    metric = view.chart.metric
    value = float(view.chart.curves[0].values[0])
    step = metric.first_step if view.chart.total == 1 else None
    when = both("ui_always", count=numbers.grouped(view.chart.total))
    return (
        view.label,
        amounts.amount(value, metric.unit),
        when if step is None else both("ui_at_step", step=step),
    )


def _levels(run: RunView) -> tuple[Level, ...]:
    levels = []
    for key in LEVELS:
        present = run.levels[key]
        known = [m for m in config.metrics().values() if m.level == key and "/" not in m.name]
        absent = tuple(m.name for m in known if m.name not in present)
        words = story.missing_words(present) if present else None
        levels.append(Level(key=key, present=words, count=len(present),
                            absent=story.missing_words(absent[:8])))  # fmt: skip
    return tuple(levels)


def _thresholds(run: RunView) -> tuple[tuple[Threshold, bool], ...]:
    used = {f.threshold.name for f in run.findings.values() if f.threshold is not None}
    used |= {rule.name for f in run.findings.values() for rule in f.rules}
    ordered = sorted(run.diagnosis.thresholds, key=lambda t: (t.name not in used, t.name))
    return tuple((threshold, threshold.name in used) for threshold in ordered)


def _problems(run: RunView) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (problem.rule, problem.message, _place(run, problem.ref))
        for problem in run.diagnosis.run.problems[:100]
    )


def _place(run: RunView, ref: LineRef | None) -> str:
    source = run.source(ref)
    return f"{source.path}:{ref.line}" if source is not None and ref is not None else ""
