"""The page over many runs: runs by severity, incidents seen in several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from loganalyze.model import Report
from loganalyze.report import amounts, story
from loganalyze.report.html import CHOICES, asset, environment, policy
from loganalyze.report.many import Group, groups, occurrences
from loganalyze.report.model import RunView, views
from loganalyze.report.wording import Both

_ORDER = ("critical", "warning", "unreadable", "info", "clean")
_STYLES = ("base.css", "layout.css", "parts.css", "index.css")


class Row(Struct, frozen=True, kw_only=True):
    """One run as the table shows it. seen: the groups that its incidents belong to."""

    run: RunView
    page: str
    rank: int
    first: tuple[Both, Both] | None
    why: Both | None
    cost: int | None
    seen: tuple[Group, ...]


def render_index(report: Report, lang: str, pages: Mapping[str, str]) -> str:
    """One HTML page; pages: run id to the file name of its report in the same folder."""
    runs = views(report.diagnoses)
    shared = groups(occurrences(runs))
    rows = sorted((_row(run, pages[run.id], shared) for run in runs), key=_order)
    script = asset("js/index.js")
    return environment().get_template("index.html").render(
        report=report, version=report.version, lang=lang, rows=rows, groups=shared, pages=pages,
        policy=policy(script),
        title=f"loganalyze: {len(rows)}", choices=Markup(asset(CHOICES)),
        line=story.report_line(report, runs), counts=_counts(rows), span_text=amounts.span,
        style=Markup("\n".join(asset(f"css/{name}") for name in _STYLES)), script=Markup(script),
    )  # fmt: skip


def _row(run: RunView, page: str, shared: Sequence[Group]) -> Row:
    costs = [i.cost_steps for i in run.incidents if i.cost_steps is not None]
    return Row(
        run=run,
        page=page,
        rank=_ORDER.index(run.diagnosis.verdict),
        first=story.first_parts(run),
        why=story.why(run.headline) if run.headline is not None else None,
        cost=sum(costs) if costs else None,
        seen=tuple(group for group in shared if run.id in group.runs),
    )


def _order(row: Row) -> tuple[int, int, str]:
    return (row.rank, -(row.cost or 0), row.run.id)


def _counts(rows: Sequence[Row]) -> list[tuple[str, int]]:
    made = [(name, sum(row.run.diagnosis.verdict == name for row in rows)) for name in _ORDER]
    return [(name, count) for name, count in made if count]
