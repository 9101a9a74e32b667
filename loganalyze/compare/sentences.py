"""A comparison in words of both languages: what the text and the page share."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from loganalyze.compare.judge import decisive
from loganalyze.compare.model import Cost, Judgement, MetricDifference, Pair
from loganalyze.report import numbers
from loganalyze.report.wording import Both, Param, both, metric_label

#: Units that change the digits (MiB, ms, %); others are said by the metric's name.
_SCALED = frozenset({"B", "s", "share", "Hz"})


class Row(Struct, frozen=True, kw_only=True):
    """A metric of a comparison as it is shown."""

    metric: Both
    points: str
    base: str
    other: str
    difference: str  # with its 95 % interval
    late: str
    judgement: Judgement


def row(difference: MetricDifference) -> Row:
    """The numbers of a metric's comparison, in its unit."""

    def shown(value: float) -> str:
        return numbers.number(value, difference.unit if difference.unit in _SCALED else "")

    def signed(value: float) -> str:
        return f"+{shown(value)}" if value > 0 else shown(value)

    low, high = shown(difference.low), shown(difference.high)
    return Row(
        metric=metric_label(difference.metric),
        points=str(difference.points),
        base=shown(difference.base),
        other=shown(difference.other),
        difference=f"{signed(difference.difference)} [{low}, {high}]",
        late=signed(difference.late),
        judgement=difference.judgement,
    )


def common_steps(pair: Pair) -> Both:
    """How many steps both runs have."""
    if not pair.common:
        return both("compare_no_common")
    return both("compare_common", count=pair.common, first=pair.common_first or 0,
                last=pair.common_last or 0)  # fmt: skip


def parting_sentences(pair: Pair) -> Sequence[Both]:
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


def nonfinite_sentences(base: str, pair: Pair) -> Sequence[Both]:
    """For each metric with NaN or Inf: at how many common steps of which run."""
    return [
        both("compare_nonfinite", metric=metric_label(metric.metric), base=base, other=pair.other,
             base_count=metric.base_nonfinite, other_count=metric.other_nonfinite)
        for metric in pair.metrics
        if metric.base_nonfinite or metric.other_nonfinite
    ]  # fmt: skip


def cost_sentence(cost: Cost) -> Both:
    """What a run took."""
    return both(
        "compare_cost_line", steps="–" if cost.steps is None else cost.steps,
        repeated=cost.repeated, seconds=numbers.number(cost.seconds, "s"),
        tokens=numbers.number(cost.tokens),
    )  # fmt: skip


def verdict_sentence(base: str, pair: Pair) -> Both:
    """Which run is better, and by what."""
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
