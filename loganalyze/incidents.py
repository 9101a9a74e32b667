"""Joins findings of one story into incidents: near in time, joined by a known mechanism."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze.config import kinds
from loganalyze.knowledge import gravity, mechanisms
from loganalyze.long_runs import LONGEST
from loganalyze.model import SEVERITIES, Finding, RunLog, Severity, severity_rank
from loganalyze.spill import slices

#: Log lines between two findings of one kind that are still one story.
_SAME_KIND_LINES = 50
#: The same where one of them is only a note: it belongs to a story only right beside it.
_NOTE_LINES = 10
#: Kinds that follow from how a run ended; their steps are the steps that were lost.
CONSEQUENCES = frozenset({"work_lost", "restart", "checkpoint_incomplete"})
#: Kinds that tell about the log or the set-up, not of anything that happened.
_STANDING = frozenset({"config_audit", "metrics_missing", "unread_input", "data_exhausted"})
#: Families whose notes may lead a story: a small rise of the norm goes before a spike of the loss.
_LEADING_NOTES = frozenset({"gradient", "loss"})
#: Notes of these families that lead nothing: a loss scaler skips steps in healthy runs.
_QUIET_NOTES = frozenset({"skipped_steps", "loss_scale_collapse"})
#: After these the model learns nothing more unless the run is taken back.
_LASTING = frozenset({"loss_frozen", "no_learning", "grad_vanishing", "loss_divergence"})
#: Kinds whose steps are worth nothing where the run did not come back from them.
_WASTING = frozenset({"loss_nonfinite", "grad_nonfinite", "loss_divergence"}) | {
    "loss_frozen", "no_learning",
}  # fmt: skip
#: Kinds that sum up what is spread over many steps: only their onset can be part of a story.
_SPREAD = frozenset({
    "skipped_steps", "grad_clip_rate", "grad_oscillation", "loss_oscillation", "lr_schedule",
    "throughput_variance", "throughput_stall", "grad_concentration", "update_ratio",
})  # fmt: skip
#: So many stories of one kind are one: what returns has one root.
_RETURNS = 4
_RECOVERED = {"yes": True, "1": True, "True": True, "no": False, "0": False, "False": False}


class Story(Struct, frozen=True, kw_only=True):
    """Findings of one incident in order of time, and what is known of it as a whole."""

    findings: tuple[Finding, ...]
    kind: str  # the gravest kind: it names the story and chooses the tree
    severity: Severity
    first: int | None
    last: int | None
    recovered: bool | None
    cost_steps: int | None
    cost_seconds: float | None

    @property
    def first_mover(self) -> Finding:
        """The finding that moved first; notes only where they may lead."""
        return next((f for f in self.findings if _leads(f)), self.findings[0])

    @property
    def main(self) -> Finding:
        """The gravest finding of the story's kind."""
        own = [f for f in self.findings if f.kind == self.kind]
        return max(own, key=lambda f: severity_rank(f.severity))


def stories(run: RunLog, findings: Sequence[Finding]) -> tuple[Story, ...]:
    """Stories with at least one warning, gravest first; what stands alone as a note is left out."""
    moving = [f for f in findings if f.kind not in _STANDING]
    groups = _returning(_joined(moving, run.meta.log_interval))
    standing = [[f] for f in findings if f.kind in _STANDING]
    told = [_story(run, group) for group in [*groups, *standing]]
    kept = [story for story in told if story.severity != "info"]
    return tuple(sorted(kept, key=_order))


def _order(story: Story) -> tuple[int, float, int]:
    """Gravest first, then what came first: later stories may follow from it."""
    first = float("inf") if story.first is None else float(story.first)
    return (-severity_rank(story.severity), first, _gravity(story.kind))


def _gravity(kind: str) -> int:
    return gravity().index(kind) if kind in gravity() else len(gravity())


def _joined(findings: Sequence[Finding], interval: int) -> list[list[Finding]]:
    """Connected groups of findings (small numbers: every pair is looked at)."""
    parent = list(range(len(findings)))

    def root(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    for a in range(len(findings)):
        for b in range(a + 1, len(findings)):
            if _belong(findings[a], findings[b], interval):
                parent[root(b)] = root(a)
    groups: dict[int, list[Finding]] = {}
    for index, item in enumerate(findings):
        groups.setdefault(root(index), []).append(item)
    return [sorted(group, key=_time) for group in groups.values()]


def _returning(groups: list[list[Finding]]) -> list[list[Finding]]:
    """Stories of one kind and segment that return again and again become one."""
    alike: dict[tuple[str, int], list[list[Finding]]] = {}
    for group in groups:
        kind = _kind(group)
        alike.setdefault((kind, group[0].segment or 0), []).append(group)
    made = []
    for own in alike.values():
        told = [group for group in own if _worst(group).severity != "info"]
        if len(told) < _RETURNS:
            made += own
        else:
            made += [group for group in own if group not in told]
            made.append(sorted((item for group in told for item in group), key=_time))
    return made


def _worst(group: Sequence[Finding]) -> Finding:
    return max(group, key=lambda f: severity_rank(f.severity))


def _kind(group: Sequence[Finding]) -> str:
    """The gravest of a group's kinds."""
    top = _worst(group).severity
    return min((f.kind for f in group if f.severity == top), key=_gravity)


def _time(item: Finding) -> tuple[float, int, str]:
    """Earlier first; of equal steps the gradient before the loss before the end of the run.

    What was lost is known only when the run has ended, so such findings stand at their last step.
    """
    at = item.step_last if item.kind in CONSEQUENCES else item.step_first
    step = float("inf") if at is None else float(at)
    early = {"gradient": 0, "loss": 1, "memory": 1}.get(_family(item.kind), 2)
    early += item.kind in CONSEQUENCES
    return (step, early, item.id)


def _family(kind: str) -> str:
    return kinds()[kind].family if kind in kinds() else ""


def _belong(one: Finding, other: Finding, interval: int) -> bool:
    early, late = sorted((one, other), key=_time)
    if (early.segment or 0) != (late.segment or 0) and _family(late.kind) != "life":
        return False
    if early.kind == late.kind and early.rank == late.rank:
        return _near(early, late, _SAME_KIND_LINES, interval)
    return any(
        early.kind in m.first and late.kind in m.then and _near(early, late, m.lag, interval)
        for m in mechanisms()
    )


def _near(early: Finding, late: Finding, lag: int, interval: int) -> bool:
    if "info" in (early.severity, late.severity):
        lag = min(lag, _NOTE_LINES) if lag >= 0 else _NOTE_LINES
    if lag < 0 or early.step_first is None or late.step_first is None:
        return True
    spread = early.kind in _SPREAD or early.step_last is None or _state(early)
    end = early.step_first if spread else early.step_last
    start = late.step_last if late.kind in CONSEQUENCES else late.step_first
    return (start or 0) - (end or 0) <= max(lag, 1) * interval


def _state(item: Finding) -> bool:
    """Whether a note tells of a slow drift: what comes late in it need not follow from it."""
    return item.severity == "info" and _family(item.kind) in _LEADING_NOTES


def _story(run: RunLog, group: list[Finding]) -> Story:
    worst, kind = _worst(group), _kind(group)
    first, last = _span(group)
    recovered = _recovered(group)
    lost = _cost_steps(group, recovered, first, last)
    return Story(
        findings=tuple(group),
        kind=kind,
        severity=SEVERITIES[severity_rank(worst.severity)],
        first=first,
        last=last,
        recovered=recovered,
        cost_steps=lost,
        cost_seconds=_cost_seconds(run, group, _family(kind), lost, first, last),
    )


def _leads(item: Finding) -> bool:
    """Whether a finding can be what moved first; a note only if its family goes before others."""
    if item.severity != "info":
        return item.kind not in CONSEQUENCES
    return _family(item.kind) in _LEADING_NOTES and item.kind not in _QUIET_NOTES


def _span(group: Sequence[Finding]) -> tuple[int | None, int | None]:
    """First and last step of what moved; of the whole group where that has no step."""
    for part in ([f for f in group if _leads(f)], group):
        firsts = [f.step_first for f in part if f.step_first is not None]
        lasts = [f.step_last for f in part if f.step_last is not None]
        if firsts:
            return min(firsts), max(lasts, default=None)
    return None, None


def _recovered(group: Sequence[Finding]) -> bool | None:
    """Whether the run came back by itself: False if anything lasts, None where nothing tells."""
    grave = [f for f in group if f.severity != "info"]
    said = [_RECOVERED.get(str(f.statistics["recovered"])) for f in grave
            if "recovered" in f.statistics]  # fmt: skip
    if not said:
        return None
    if False in said or any(f.kind in _LASTING for f in grave):
        return False
    return True if all(said) else None


def _cost_steps(
    group: Sequence[Finding], recovered: bool | None, first: int | None, last: int | None
) -> int | None:
    """Steps that have to be done again: skipped, run twice, or run by a broken model.

    A spike that healed and a slow stretch cost no steps.
    """
    said = [f.statistics.get("lost_steps") for f in group]
    said += [f.statistics.get("cost_steps") for f in group if f.kind in _WASTING]
    lost = [int(value) for value in said if isinstance(value, int | float)]
    broken = any(f.kind in _WASTING and f.severity == "critical" for f in group)
    if broken and recovered is not True and first is not None and last is not None:
        lost.append(last - first + 1)
    return max(lost, default=0) or None


def _cost_seconds(
    run: RunLog, group: Sequence[Finding], family: str, lost: int | None,
    first: int | None, last: int | None,
) -> float | None:  # fmt: skip
    """Seconds lost: those of the lost steps at the usual pace, or the excess of slow ones."""
    if "step_time_s" not in run.readings.columns or not (lost or family == "speed"):
        return None
    segment = group[0].segment or 0
    times = _times(run.readings, segment)["step_time_s"]
    if not len(times):
        return None
    usual = float(np.median(times.to_numpy()))
    if lost:
        return usual * lost
    if first is None or last is None:
        return None
    excess = 0.0
    for piece in slices(run.readings if run.whole is None else run.whole, LONGEST):
        slow = _times(piece, segment).filter(pl.col("step").is_between(first, last))
        excess += float(np.clip(slow["step_time_s"].to_numpy() - usual, 0.0, None).sum())
    return excess * run.meta.log_interval or None


def _times(readings: pl.DataFrame, segment: int) -> pl.DataFrame:
    rows = readings.filter(pl.col("segment") == segment).select("step", "step_time_s")
    return rows.filter(pl.col("step_time_s").is_finite())
