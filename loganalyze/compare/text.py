"""A comparison as text: where the curves part, the metrics, settings, cost; the verdict last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loganalyze.compare.judge import decisive
from loganalyze.compare.model import Comparison, Cost, MetricDifference, Pair
from loganalyze.report import numbers
from loganalyze.report.paper import Paper, display_width
from loganalyze.report.wording import Both, Param, both, joined, metric_label

_MOST_SETTINGS = 40
#: Units that change the digits (MiB, ms, %); others are said by the metric's name.
_SCALED = frozenset({"B", "s", "share", "Hz"})
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
        paper.line(2, f"{name}: {paper.say(_cost(cost))}")
    paper.gap()
    for pair in comparison.pairs:
        paper.line(0, paper.say(_verdict(comparison.base, pair)), _STYLE[pair.verdict])
    return paper.text()


def _pair(paper: Paper, base: str, pair: Pair) -> None:
    paper.gap()
    common = both("compare_common", count=pair.common, first=pair.common_first or 0,
                  last=pair.common_last or 0)  # fmt: skip
    tail = common if pair.common else both("compare_no_common")
    title = both("compare_title", other=pair.other, base=base)
    paper.line(0, paper.say(title), "bold", tail=paper.say(tail))
    paper.heading("compare_where")
    for text in _parting(pair):
        paper.line(2, paper.say(text))
    _metrics(paper, base, pair)
    _settings(paper, base, pair)


def _parting(pair: Pair) -> Sequence[Both]:
    """Where the loss parts, in sentences."""
    found = pair.parting
    if found is None:
        return [both("compare_too_few")]
    if found.first_unequal is None:
        return [both("compare_equal")]
    texts = [both("compare_equal_until", step=found.first_unequal)]
    facts: dict[str, Param] = {
        "window": found.window, "band": numbers.number(found.band), "sigmas": f"{found.sigmas:g}",
        "twice": 2 * found.window,
    }  # fmt: skip
    if found.step is None:
        return [*texts, both("compare_together", **facts)]
    side = "higher" if found.higher else "lower"
    texts.append(both(f"compare_parts_{side}", step=found.step, other=pair.other))
    if found.after is None:
        return [*texts, both("compare_began_first", **facts)]
    return [*texts, both("compare_began", step=found.step, after=found.after, **facts)]


def _metrics(paper: Paper, base: str, pair: Pair) -> None:
    paper.heading("compare_metrics")
    if not pair.metrics:
        paper.line(2, paper.say(both("compare_no_metrics")))
        return
    head = [paper.say(both(f"compare_head_{name}")) for name in _HEAD]
    rows = [_row(paper, metric) for metric in pair.metrics if not metric.equal]
    widths = [max(display_width(row[at]) for row in [head, *rows]) for at in range(len(head))]
    paper.lines.append(_columns(head, widths))
    for row in rows:
        paper.lines.append(_columns(row, widths))
    equal = [metric_label(metric.metric) for metric in pair.metrics if metric.equal]
    if equal:
        paper.line(2, paper.say(both("compare_equal_metrics", metrics=joined(equal))))
    paper.line(2, paper.say(both("compare_how")), "dim")
    for metric in pair.metrics:
        if metric.base_nonfinite or metric.other_nonfinite:
            paper.line(2, paper.say(both(
                "compare_nonfinite", metric=metric_label(metric.metric), base=base,
                other=pair.other, base_count=metric.base_nonfinite,
                other_count=metric.other_nonfinite,
            )))  # fmt: skip


def _row(paper: Paper, metric: MetricDifference) -> list[str]:
    def shown(value: float) -> str:
        return numbers.number(value, metric.unit if metric.unit in _SCALED else "")

    interval = f"{_signed(shown, metric.difference)} [{shown(metric.low)}, {shown(metric.high)}]"
    return [
        paper.say(metric_label(metric.metric)), str(metric.points), shown(metric.base),
        shown(metric.other), interval, _signed(shown, metric.late),
        paper.say(both(f"compare_{metric.judgement}")),
    ]  # fmt: skip


def _signed(shown: Callable[[float], str], value: float) -> str:
    return f"+{shown(value)}" if value > 0 else shown(value)


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


def _cost(cost: Cost) -> Both:
    return both(
        "compare_cost_line", steps="–" if cost.steps is None else cost.steps,
        repeated=cost.repeated, seconds=numbers.number(cost.seconds, "s"),
        tokens=numbers.number(cost.tokens),
    )  # fmt: skip


def _verdict(base: str, pair: Pair) -> Both:
    names = {"other": pair.other, "base": base}
    if pair.verdict == "unclear":
        return both("compare_verdict_unclear", **names)
    found = decisive(pair.metrics)
    if found is None:
        return both("compare_verdict_nonfinite", judgement=both(f"compare_{pair.verdict}"), **names)
    label = metric_label(found.metric)
    metric = Both(label.en.lower(), label.zh)
    if pair.verdict == "same":
        return both("compare_verdict_same", metric=metric, **names)
    judgement = both(f"compare_{pair.verdict}")
    return both("compare_verdict", metric=metric, judgement=judgement, **names)
