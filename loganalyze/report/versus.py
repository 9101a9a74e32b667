"""A run beside its baseline, as the page shows it: verdict, where they part, metrics, settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from loganalyze import config
from loganalyze.compare.curves import Curve as Line
from loganalyze.compare.curves import curve
from loganalyze.compare.judge import compare_runs
from loganalyze.compare.model import Comparison, Cost, Pair, SettingDifference
from loganalyze.compare.sentences import (
    Row,
    common_steps,
    cost_sentence,
    nonfinite_sentences,
    parting_sentences,
    row,
    verdict_sentence,
)
from loganalyze.config import Thresholds
from loganalyze.model import Diagnosis, RunLog
from loganalyze.report.curves import Curve
from loganalyze.report.svg import Shade, chart
from loganalyze.report.wording import Both, joined, metric_label

#: Metrics that are drawn over each other, as far as both runs have them.
DRAWN = ("loss", "val_loss", "reward", "grad_norm", "tokens_per_s", "step_time_s")
MOST_DRAWN, MOST_SETTINGS = 4, 60
_RUN, _BASE = 0, 1  # colours of the drawings


class Versus(Struct, frozen=True, kw_only=True):
    """One run against the baseline. settings_known: whether both logs show a configuration."""

    base: str
    other: str
    verdict: str
    sentence: Both
    common: Both
    parting: tuple[Both, ...]
    drawings: tuple[tuple[Both, Markup], ...]
    rows: tuple[Row, ...]
    equal: Both | None
    broken: tuple[Both, ...]  # NaN or Inf in one of them
    settings: tuple[SettingDifference, ...]
    settings_known: bool
    more_settings: int
    costs: tuple[tuple[str, Both], ...]


def versus(diagnosis: Diagnosis, baseline: RunLog) -> Versus:
    """Compares a run with the baseline by the thresholds in force; the run is `other`."""
    run = diagnosis.run
    base = _named_apart(baseline, run.meta.id)
    made = _compared(diagnosis, base)
    pair = made.pairs[0]
    equal = [metric_label(metric.metric) for metric in pair.metrics if metric.equal]
    return Versus(
        base=made.base,
        other=pair.other,
        verdict=pair.verdict,
        sentence=verdict_sentence(made.base, pair),
        common=common_steps(pair),
        parting=tuple(parting_sentences(pair)),
        drawings=_drawings(base, run, pair),
        rows=tuple(row(metric) for metric in pair.metrics if not metric.equal),
        equal=joined(equal) if equal else None,
        broken=tuple(nonfinite_sentences(made.base, pair)),
        settings=pair.settings[:MOST_SETTINGS],
        settings_known=all(pair.settings_known),
        more_settings=max(0, len(pair.settings) - MOST_SETTINGS),
        costs=_costs(made.costs),
    )


def in_short(diagnosis: Diagnosis, baseline: RunLog) -> tuple[Both, ...]:
    """The verdict and where the losses part, in sentences: what text formats say."""
    made = _compared(diagnosis, _named_apart(baseline, diagnosis.run.meta.id))
    pair = made.pairs[0]
    return (verdict_sentence(made.base, pair), *parting_sentences(pair)[:2])


def _compared(diagnosis: Diagnosis, base: RunLog) -> Comparison:
    return compare_runs((base, diagnosis.run), _thresholds(diagnosis))


def _named_apart(baseline: RunLog, other: str) -> RunLog:
    if baseline.meta.id != other:
        return baseline
    return replace(baseline, meta=replace(baseline.meta, id=f"{other} (baseline)"))


def _thresholds(diagnosis: Diagnosis) -> Thresholds:
    """Those the run was judged by; the packaged ones where it carries none."""
    known = dict(config.load_thresholds().entries)
    known.update({threshold.name: threshold for threshold in diagnosis.thresholds})
    return Thresholds(entries=known, profile="")


def _costs(costs: Sequence[tuple[str, Cost]]) -> tuple[tuple[str, Both], ...]:
    return tuple((name, cost_sentence(cost)) for name, cost in costs)


def _drawings(base: RunLog, run: RunLog, pair: Pair) -> tuple[tuple[Both, Markup], ...]:
    """Both curves of the telling metrics; the stretch in which the loss parts is shaded."""
    shared = {metric.metric for metric in pair.metrics}
    made = []
    for name in [name for name in DRAWN if name in shared][:MOST_DRAWN]:
        lines = (_line(curve(base, name), _BASE), _line(curve(run, name), _RUN))
        drawing = chart(lines, config.metrics()[name].unit, shades=_shade(pair, name))
        if drawing is not None:
            made.append((metric_label(name), drawing))
    return tuple(made)


def _shade(pair: Pair, name: str) -> tuple[Shade, ...]:
    found = pair.parting
    if name != "loss" or found is None or found.step is None:
        return ()
    first = found.after if found.after is not None else found.first_unequal
    return (Shade(first=first or found.step, last=found.step, severity="info"),)


def _line(line: Line, colour: int) -> Curve:
    empty = np.empty(0, dtype=np.int64)
    return Curve(
        segment=0, rank=colour, role="raw", steps=line.steps, values=line.values,
        total=len(line.steps), gaps=empty, raw=(), smooth_at=empty, smooth={},
    )  # fmt: skip
