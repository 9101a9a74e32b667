"""Facts to view model: what each report shows of a run, free of any language."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze import config
from loganalyze.model import (
    Cause,
    Diagnosis,
    Finding,
    Incident,
    LineRef,
    Source,
    severity_rank,
)
from loganalyze.report.counted import Held, MetricView, counted, whole_number

LEVELS = ("L1", "L2", "L3", "L4", "L5", "L6", "L7")
PANELS = ("overview", "efficiency", "resources", "stability", "distributed", "other")
#: What the seeds ask each panel to show; what a log lacks of it is named in the report.
EXPECTED: Mapping[str, tuple[str, ...]] = {
    "overview": ("loss", "val_loss", "perplexity", "lr"),
    "efficiency": ("tokens_per_s", "step_time_s", "gpu_util", "mfu"),
    "resources": ("mem_allocated_bytes", "gpu_power_w", "comm_time_s"),
    "stability": ("grad_norm", "grad_clip_share", "loss_scale"),
    "distributed": ("loss", "comm_time_s", "step_time_s"),
    "other": (),
}
CAUSE_ORDER = ("supported", "not_checkable", "ruled_out")


class RunView(Struct, frozen=True, kw_only=True, dict=True):
    """One run as every format shows it; `index` is its place in the report."""

    index: int
    diagnosis: Diagnosis
    metrics: tuple[MetricView, ...]
    ranks: tuple[int, ...]
    step_first: int | None
    step_last: int | None
    step_count: int

    @property
    def id(self) -> str:
        """The run's name."""
        return self.diagnosis.run.meta.id

    @cached_property
    def findings(self) -> Mapping[str, Finding]:
        """Findings by id, worst first, then by step."""
        ordered = sorted(self.diagnosis.findings, key=_finding_order)
        return {finding.id: finding for finding in ordered}

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Incidents by severity, then cost, then step."""
        return tuple(sorted(self.diagnosis.incidents, key=_incident_order))

    @cached_property
    def loose(self) -> tuple[Finding, ...]:
        """Findings that belong to no incident."""
        held = {item for incident in self.incidents for item in incident.findings}
        return tuple(f for f in self.findings.values() if f.id not in held)

    @cached_property
    def headline(self) -> Incident | None:
        """Where the trouble began: the earliest incident of the worst severity."""
        worst = [i for i in self.incidents if i.severity == self.incidents[0].severity]
        return min(worst, key=_by_step, default=None)

    def mover(self, incident: Incident) -> Finding | None:
        """The finding that an incident began with."""
        return self.findings.get(incident.first_mover)

    def members(self, incident: Incident) -> tuple[Finding, ...]:
        """The findings of an incident, in its order of time."""
        found = (self.findings.get(item) for item in incident.findings)
        return tuple(finding for finding in found if finding is not None)

    def metric(self, name: str | None) -> MetricView | None:
        """A metric of this run by name."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def source(self, ref: LineRef | None) -> Source | None:
        """The input that a line stands in."""
        sources = self.diagnosis.run.sources
        return sources[ref.source] if ref is not None and 0 <= ref.source < len(sources) else None

    @cached_property
    def _clock(self) -> tuple[np.ndarray, np.ndarray]:
        frame = self.diagnosis.run.readings
        if "wall_s" not in frame.columns:
            return np.empty(0), np.empty(0)
        known = frame.select("step", "wall_s").drop_nulls().group_by("step").min().sort("step")
        return known["step"].to_numpy(), known["wall_s"].to_numpy()

    def wall_s(self, step: int | None) -> float | None:
        """When a step was first logged, in seconds since the epoch; None if no line says."""
        steps, walls = self._clock
        if step is None or not len(steps):
            return None
        at = int(np.searchsorted(steps, step))
        return float(walls[at]) if at < len(steps) and steps[at] == step else None

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """Metrics that occur, by level of the pyramid."""
        return {
            level: tuple(sorted(m.name for m in self.metrics if m.level == level))
            for level in LEVELS
        }

    def panel_missing(self, panel: str) -> tuple[str, ...]:
        """What a panel should show and this log does not have."""
        have = self.distributed if panel == "distributed" else {m.name for m in self.metrics}
        return tuple(name for name in EXPECTED[panel] if name not in have)

    @cached_property
    def reporting_ranks(self) -> int:
        """Ranks that report the same metric of the same step; 1 where one rank prints for all."""
        frame, names = self.diagnosis.run.readings, self.distributed
        if not names:
            return 1
        rank = pl.col("rank")
        at_once = frame.filter(rank.is_not_null()).group_by("segment", "step").agg(
            rank.filter(pl.col(name).is_not_null()).n_unique().alias(name) for name in names
        )  # fmt: skip
        return max(1, *(whole_number(at_once[name].max()) or 0 for name in names))

    @cached_property
    def distributed(self) -> tuple[str, ...]:
        """Metrics that two ranks or more report."""
        frame = self.diagnosis.run.readings
        if len(self.ranks) < 2:
            return ()
        names = [metric.name for metric in self.metrics]
        rank = pl.col("rank")
        known = frame.select(
            rank.filter(pl.col(name).is_not_null()).n_unique().alias(name) for name in names
        )
        return tuple(name for name in names if known[name][0] > 1)


def views(diagnoses: tuple[Diagnosis, ...]) -> tuple[RunView, ...]:
    """A view of each run, in the report's order."""
    return tuple(view(diagnosis, index) for index, diagnosis in enumerate(diagnoses))


def view(diagnosis: Diagnosis, index: int = 0) -> RunView:
    """A run with what its readings hold, counted once.

    step_count: records of training steps over all segments and ranks; steps that were run again
    count again.
    """
    held = _held(diagnosis)
    return RunView(
        index=index,
        diagnosis=diagnosis,
        metrics=held.metrics,
        ranks=held.ranks,
        step_first=held.first,
        step_last=held.last,
        step_count=held.count,
    )


#: By the identity of a diagnosis, while it lives: the rows of many runs are read from the disk
#: each time that they are looked at.
_HELD: dict[int, Held] = {}


def _held(diagnosis: Diagnosis) -> Held:
    key = id(diagnosis)
    if key not in _HELD:
        run = diagnosis.run
        _HELD[key] = counted(run.readings if run.whole is None else run.whole)
        weakref.finalize(diagnosis, _HELD.pop, key, None).atexit = False
    return _HELD[key]


def _finding_order(finding: Finding) -> tuple[int, int, str, str]:
    return (-severity_rank(finding.severity), _step(finding.step_first), finding.code, finding.id)


def _incident_order(incident: Incident) -> tuple[int, float, float, int, str]:
    return (
        -severity_rank(incident.severity),
        -(incident.cost_steps or 0),
        -(incident.cost_seconds or 0.0),
        _step(incident.step_first),
        incident.id,
    )


def _by_step(incident: Incident) -> tuple[int, str]:
    return (_step(incident.step_first), incident.id)


def _step(step: int | None) -> int:
    return step if step is not None else 2**62


def ordered_causes(incident: Incident) -> tuple[Cause, ...]:
    """Supported causes first, then the undecided, then those ruled out; surer ones before."""
    return tuple(
        sorted(incident.causes, key=lambda c: (CAUSE_ORDER.index(c.verdict), -c.confidence))
    )


def best_cause(incident: Incident) -> Cause | None:
    """The surest supported cause, if any."""
    supported = [cause for cause in ordered_causes(incident) if cause.verdict == "supported"]
    return supported[0] if supported else None


def missing_of(incident: Incident) -> tuple[str, ...]:
    """What would have settled the open causes of an incident, each once, in order."""
    names = (
        name
        for cause in ordered_causes(incident)
        for name in (*cause.missing, *(m for check in cause.checks for m in check.missing))
    )
    return tuple(dict.fromkeys(names))


def detectors_by_status(diagnosis: Diagnosis, status: str) -> tuple[str, ...]:
    """Names of the detectors with a status, sorted."""
    return tuple(sorted({d.detector for d in diagnosis.detectors if d.status == status}))


def kinds_of(detector: str) -> tuple[str, ...]:
    """The kinds that a detector can find; its own name where it is not of this version."""
    from loganalyze.detectors import DETECTORS

    return next((known.kinds for known in DETECTORS if known.name == detector), (detector,))


def fine(run: RunView) -> tuple[str, ...]:
    """Kinds of trouble that were looked for and not found, in the order of the vocabulary."""
    found = {finding.kind for finding in run.findings.values()}
    looked = {kind for name in detectors_by_status(run.diagnosis, "ran") for kind in kinds_of(name)}
    order = {name: index for index, name in enumerate(config.kinds())}
    return tuple(sorted(looked - found, key=lambda kind: (order.get(kind, len(order)), kind)))
