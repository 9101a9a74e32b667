"""A comparison as text: where the curves part, the metrics, settings, cost; the verdict last."""

from __future__ import annotations

from collections.abc import Sequence

from loganalyze.compare.model import Comparison, MetricDifference, Pair
from loganalyze.compare.sentences import (
    common_steps,
    cost_sentence,
    nonfinite_sentences,
    parting_sentences,
    row,
    verdict_sentence,
)
from loganalyze.report.paper import Paper, display_width
from loganalyze.report.wording import both, joined, metric_label

_MOST_SETTINGS = 40
_STYLE = {"better": "clean", "worse": "critical", "different": "info", "same": "", "unclear": "dim"}
_HEAD = ("metric", "points", "base", "other", "difference", "late", "judgement")


def comparison_text(
    comparison: Comparison, lang: str, *, width: int = 100, color: bool = False
) -> str:
    """All pairs, then what each run took, then one verdict a pair."""
    paper = Paper(lang=lang, width=width, color=color)
    for pair in comparison.pairs:
        _pair(paper, comparison.base, pair)
    paper.heading("compare_cost")
    for name, cost in comparison.costs:
        paper.line(2, f"{name}: {paper.say(cost_sentence(cost))}")
    paper.gap()
    for pair in comparison.pairs:
        paper.line(0, paper.say(verdict_sentence(comparison.base, pair)), _STYLE[pair.verdict])
    return paper.text()


def _pair(paper: Paper, base: str, pair: Pair) -> None:
    paper.gap()
    title = both("compare_title", other=pair.other, base=base)
    paper.line(0, paper.say(title), "bold", tail=paper.say(common_steps(pair)))
    paper.heading("compare_where")
    for text in parting_sentences(pair):
        paper.line(2, paper.say(text))
    _metrics(paper, base, pair)
    _settings(paper, base, pair)


def _metrics(paper: Paper, base: str, pair: Pair) -> None:
    paper.heading("compare_metrics")
    if not pair.metrics:
        paper.line(2, paper.say(both("compare_no_metrics")))
        return
    head = [paper.say(both(f"compare_head_{name}")) for name in _HEAD]
    rows = [_row(paper, metric) for metric in pair.metrics if not metric.equal]
    widths = [max(display_width(row[at]) for row in [head, *rows]) for at in range(len(head))]
    paper.lines.append(_columns(head, widths))
    for cells in rows:
        paper.lines.append(_columns(cells, widths))
    equal = [metric_label(metric.metric) for metric in pair.metrics if metric.equal]
    if equal:
        paper.line(2, paper.say(both("compare_equal_metrics", metrics=joined(equal))))
    paper.line(2, paper.say(both("compare_how")), "dim")
    for text in nonfinite_sentences(base, pair):
        paper.line(2, paper.say(text))


def _row(paper: Paper, metric: MetricDifference) -> list[str]:
    made = row(metric)
    judgement = paper.say(both(f"compare_{made.judgement}"))
    return [paper.say(made.metric), made.points, made.base, made.other, made.difference,
            made.late, judgement]  # fmt: skip


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first and last column to the left, numbers to the right."""
    last = len(cells) - 1
    parts = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        pad = " " * (width - display_width(cell))
        parts.append(cell + pad if at in (0, last) else pad + cell)
    return "  " + "  ".join(parts)


def _settings(paper: Paper, base: str, pair: Pair) -> None:
    paper.heading("compare_settings")
    if not all(pair.settings_known):
        silent = base if not pair.settings_known[0] else pair.other
        paper.line(2, paper.say(both("compare_settings_unknown", run=silent)))
        return
    if not pair.settings:
        count = max(pair.settings_known)
        paper.line(2, paper.say(both("compare_settings_same", count=count)))
    for setting in pair.settings[:_MOST_SETTINGS]:
        one, two = (value if value is not None else "–" for value in (setting.base, setting.other))
        paper.line(2, f"{setting.name}: {_short(one)} → {_short(two)}")
    more = len(pair.settings) - _MOST_SETTINGS
    if more > 0:
        paper.line(2, paper.say(both("compare_settings_more", count=more)), "dim")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
