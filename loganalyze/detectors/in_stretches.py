"""Detection in runs too long for the memory: near in each stretch, far in an overview.

A detector that looks at neighbourhoods (`local`) is run on one stretch after the other, and what
goes on from one into the next is joined; every other one looks at the overview of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loganalyze.config import Thresholds
from loganalyze.detectors.base import Context, Detector
from loganalyze.long_runs import (
    Cut,
    Span,
    Stretch,
    cut,
    is_rare,
    overview,
    part_of,
    place,
    rows_to_show,
    step_of,
    telling_rows,
)
from loganalyze.model import Finding, Problem, RunLog, severity_rank
from loganalyze.spill import trim

Look = Callable[[Context, Sequence[Detector]], list[Finding]]
#: Two findings no farther apart than this share of the shorter one's length are one.
_NEAR = 0.1
#: Findings of one kind, metric, segment and rank that are kept, the strongest.
MOST = 30
#: Logged steps around a finding's beginning, peak and end that are all shown.
_AROUND = 300
#: Findings of which that is so; those of more are the gravest.
_SHOWN = 200
#: Statistics that count what a finding holds: those of parts add up.
_COUNTS = frozenset({
    "nonfinite_points", "absent_points", "skipped", "length_points", "records", "stalls",
    "expected", "strays", "windows", "windows_above", "bursts", "changes", "similar",
})  # fmt: skip
#: Sums over what it holds.
_SUMS = frozenset({"lost_time"})
#: What tells how strong a finding is, the first that it has.
_STRENGTHS = ("rise_nat", "ratio", "excess_share", "jump_nat", "p95_p50", "cost_share")


class _Told(Struct, frozen=True, kw_only=True):
    """A finding of a stretch. cut: it goes on to where the stretch ends, and perhaps beyond."""

    item: Finding
    cut: bool


def detect_long(
    run: RunLog, thresholds: Thresholds, able: Sequence[Detector], look: Look
) -> tuple[RunLog, list[Finding], Context]:
    """The overview of a run with all rows around its findings, these, and what saw the whole.

    able: detectors that the run has metrics for. look: runs detectors, gives what they find.
    """
    made = cut(run)
    local = [one for one in able if one.local]
    near = _near(run, thresholds, made, local, look)
    rows = telling_rows(run)
    context = Context(run=overview(run, rows), thresholds=thresholds, profile=thresholds.profile)
    whole = look(context, [one for one in able if not one.local or one.also_whole])
    whole = [_scaled(item, run) for item in whole]
    found = _with_whole(near, whole, local, _longest(made))
    trim()
    shown = overview(run, rows_to_show(rows, run, made, _spans(found, run.meta.log_interval)))
    return replace(shown, problems=(*run.problems, _what_was_seen(run, made))), found, context


def _what_was_seen(run: RunLog, made: Cut) -> Problem:
    message = (
        f"{len(run.readings):,} rows are more than are held in memory: they were looked at in "
        f"{len(made.stretches)} stretches, and one of {step_of(run)} steps for the run as a whole; "
        "curves are drawn of the latter, of the extremes of every 2,048 rows, and of all rows "
        "around findings and events"
    )
    return Problem(rule="long_run", message=message)


def _scaled(item: Finding, run: RunLog) -> Finding:
    """A finding of the overview; what it counts there stands for so many steps each."""
    column = run.readings.get_column(item.metric or "", default=None)
    times = 1 if column is None or is_rare(column) else step_of(run)
    told = {
        name: value * times
        for name, value in item.statistics.items()
        if name in _COUNTS | _SUMS and isinstance(value, int | float)
    }
    return replace(item, statistics={**item.statistics, **told})


def _near(
    run: RunLog, thresholds: Thresholds, made: Cut, local: Sequence[Detector], look: Look
) -> list[_Told]:
    told: dict[tuple[object, ...], list[_Told]] = {}
    for one in made.stretches:
        part = part_of(run, made, one)
        context = Context(run=part, thresholds=thresholds, profile=thresholds.profile)
        for item in look(context, [each for each in local if not each.missing(context)]):
            _add(told.setdefault(_sort(item), []), item, one, part)
        del part, context
        trim()
    return [one for alike in told.values() for one in _strongest(_one_habit(alike))]


def _sort(item: Finding) -> tuple[object, ...]:
    return item.kind, item.metric, item.segment, item.rank


def _add(alike: list[_Told], item: Finding, one: Stretch, part: RunLog) -> None:
    """Take in what a stretch told: new, going on from the stretch before, or the next one's."""
    begin, end = _ends(item, one, part)
    if begin >= one.own_end:
        return
    fresh = _Told(item=item, cut=end >= one.tail)
    twin = next((n for n in reversed(range(len(alike))) if _one(alike[n].item, item)), None)
    if twin is not None:
        alike[twin] = _Told(item=_joined(alike[twin], item), cut=fresh.cut)
    elif begin >= one.own or end >= one.own:
        alike.append(fresh)


def _ends(item: Finding, one: Stretch, part: RunLog) -> tuple[int, int]:
    """Places of the first and last step; of a finding without steps those of the stretch.

    Without a segment it is of the first one of the stretch that has such a step.
    """
    if item.step_first is None:
        return one.own, one.own
    first, last = item.step_first, item.step_first if item.step_last is None else item.step_last
    segment = item.segment
    if segment is None:
        held = (s.index for s in part.meta.segments if s.first <= first <= s.last)
        segment = next(held, 0)
    return int(place(segment, first)), int(place(segment, max(first, last)))


def _one(old: Finding, new: Finding) -> bool:
    """Whether two findings alike are one: over each other, or hardly apart for their length."""
    if old.step_first is None or new.step_first is None:
        return True
    old_last, new_last = (one.step_last or one.step_first or 0 for one in (old, new))
    gap = max(new.step_first - old_last, old.step_first - new_last)
    return gap <= _NEAR * min(old_last - old.step_first, new_last - new.step_first)


def _joined(old: _Told, new: Finding) -> Finding:
    """One finding of both parts. How it ended is known to the later one."""
    first = old.item
    lasts = [one.step_last for one in (first, new) if one.step_last is not None]
    firsts = [one.step_first for one in (first, new) if one.step_first is not None]
    graver = severity_rank(new.severity) > severity_rank(first.severity)
    chosen = new if old.cut or graver else first
    begin = first.evidence[:1]
    return replace(
        chosen,
        step_first=min(firsts, default=None),
        step_last=max(lasts, default=None),
        evidence=(*begin, *(entry for entry in chosen.evidence if entry not in begin)),
        statistics={**chosen.statistics, **_added(first, new), **_cost(first, new)},
    )


def _added(old: Finding, new: Finding) -> dict[str, float | int | str | None]:
    """Counts of both; what lies in both is counted once, as if it were spread evenly."""
    if new.step_first is None or old.step_last is None or new.step_last is None:
        share = 1.0
    else:
        length = new.step_last - new.step_first + 1
        share = min(max(new.step_last - max(old.step_last, new.step_first - 1), 0) / length, 1.0)
    made: dict[str, float | int | str | None] = {}
    for name in (_COUNTS | _SUMS) & old.statistics.keys() & new.statistics.keys():
        one, two = old.statistics[name], new.statistics[name]
        if isinstance(one, int | float) and isinstance(two, int | float):
            made[name] = one + (round(two * share) if isinstance(two, int) else two * share)
    return made


def _cost(old: Finding, new: Finding) -> dict[str, float | int | str | None]:
    """Steps from the beginning of the one to the end of the other."""
    cost = new.statistics.get("cost_steps")
    if not isinstance(cost, int) or new.step_first is None or new.step_last is None:
        return {}
    first = new.step_first if old.step_first is None else min(old.step_first, new.step_first)
    last = max(new.step_last, old.step_last or new.step_last)
    return {"cost_steps": last - first + cost - (new.step_last - new.step_first)}


def _one_habit(alike: list[_Told]) -> list[_Told]:
    """Notes that stand for many of their kind become one; see loss_spikes."""
    habits = [one for one in alike if "similar" in one.item.statistics]
    if len(habits) < 2:
        return alike
    largest = max(habits, key=lambda one: _strength(one.item))
    count = sum(int(one.item.statistics["similar"] or 0) for one in habits)
    statistics = {**largest.item.statistics, "similar": count}
    told = replace(largest, item=replace(largest.item, statistics=statistics))
    return [one for one in alike if one not in habits] + [told]


def _strongest(alike: list[_Told]) -> list[_Told]:
    def weight(one: _Told) -> tuple[int, float]:
        return -severity_rank(one.item.severity), -_strength(one.item)

    return sorted(alike, key=weight)[:MOST]


def _strength(item: Finding) -> float:
    told = (item.statistics.get(name) for name in _STRENGTHS)
    return next((float(value) for value in told if isinstance(value, int | float)), 0.0)


def _longest(made: Cut) -> int:
    """Steps of the longest stretch that has two borders; what is longer only the whole shows."""
    return max((one.own_end - one.own for one in made.stretches[1:-1]), default=0)


def _with_whole(
    near: Iterable[_Told], whole: Sequence[Finding], local: Sequence[Detector], longest: int
) -> list[Finding]:
    """What was found near, and of what the overview shows all that could not be found so."""
    both = {kind for one in local for kind in one.kinds}
    wanted = {kind for one in local for kind in one.also_whole}
    found = list(near)
    kept = [item for item in whole if item.kind not in both]
    for item in (item for item in whole if item.kind in wanted):
        over = [n for n, one in enumerate(found) if _over(one.item, item)]
        cut_short = [n for n in over if found[n].cut]
        if cut_short:  # the overview shows how it went on
            told = _Told(item=_joined(found[cut_short[0]], item), cut=False)
            found = [one for n, one in enumerate(found) if n not in cut_short] + [told]
        elif not over and (item.step_last or 0) - (item.step_first or 0) > longest:
            kept.append(item)
    return [one.item for one in found] + kept


def _over(one: Finding, other: Finding) -> bool:
    return _sort(one) == _sort(other) and _one(one, other)


def _spans(found: Sequence[Finding], interval: int) -> list[Span]:
    """The steps around the beginning, the peak and the end of the gravest findings."""
    reach = _AROUND * max(interval, 1)
    gravest = sorted(found, key=lambda item: -severity_rank(item.severity))[:_SHOWN]
    return [
        (item.segment or 0, step - reach, step + reach)
        for item in gravest
        for step in (item.step_first, item.step_peak, item.step_last)
        if step is not None
    ]
