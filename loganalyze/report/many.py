"""Many runs at a glance: a summary of each, and which incidents were seen before in others."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from loganalyze.model import Finding, Incident, severity_rank
from loganalyze.report import story
from loganalyze.report.model import RunView, best_cause
from loganalyze.report.wording import Both, kind_title

#: Two incidents are alike up to this ratio of their lengths and of their heights: a factor of
#: four in steps and of two in height tells a blip from a collapse and lets noise pass.
LENGTH_RATIO, HEIGHT_RATIO = 4.0, 2.0
#: Statistics that tell how far a finding stands out, the first that is there.
_HEIGHTS = ("ratio", "excess_share", "drop_share", "growth_share", "z")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:[.,:]\d+)*", re.IGNORECASE)
_WORDS = 12


class Signature(Struct, frozen=True, kw_only=True):
    """What two incidents must share to be the same trouble. text: a crash's words, numbers out."""

    kind: str
    mover: str
    cause: str
    text: str


class Occurrence(Struct, frozen=True, kw_only=True):
    """One incident of one run. length: in steps; height: its mover's excess; None if unknown."""

    run: str
    incident: Incident
    signature: Signature
    length: int | None
    height: float | None


class Group(Struct, frozen=True, kw_only=True):
    """Incidents that are alike, in at least two runs; number: from 1, the most severe first."""

    number: int
    title: Both
    severity: str
    occurrences: tuple[Occurrence, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs in which it was seen, each once."""
        return tuple(dict.fromkeys(one.run for one in self.occurrences))


def occurrences(runs: Sequence[RunView]) -> tuple[Occurrence, ...]:
    """Every incident of every run."""
    return tuple(_occurrence(run, incident) for run in runs for incident in run.incidents)


def _occurrence(run: RunView, incident: Incident) -> Occurrence:
    mover = run.mover(incident)
    cause = best_cause(incident)
    return Occurrence(
        run=run.id,
        incident=incident,
        signature=Signature(
            kind=incident.kind,
            mover=mover.kind if mover else "",
            cause=cause.id if cause is not None and story.settled(incident) else "",
            text=_said(run, incident),
        ),
        length=_length(incident),
        height=_height(mover),
    )


def _length(incident: Incident) -> int | None:
    if incident.step_first is None or incident.step_last is None:
        return None
    return incident.step_last - incident.step_first + 1


def _height(mover: Finding | None) -> float | None:
    for name in _HEIGHTS:
        value = mover.statistics.get(name) if mover is not None else None
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            return float(value)
    return None


def _said(run: RunView, incident: Incident) -> str:
    """The first words that an incident's line of text says, without its numbers."""
    for finding in run.members(incident):
        for evidence in finding.evidence:
            if isinstance(evidence.value, str) and evidence.ref is not None:
                words = _NUMBERS.sub("#", evidence.value).split()
                return " ".join(words[:_WORDS])
    return ""


def alike(one: Occurrence, other: Occurrence) -> bool:
    """Whether two incidents have one signature, and lengths and heights of one order."""
    return (
        one.signature == other.signature
        and _near(one.length, other.length, LENGTH_RATIO)
        and _near(one.height, other.height, HEIGHT_RATIO)
    )


def _near(one: float | None, other: float | None, ratio: float) -> bool:
    if one is None or other is None:
        return one is None and other is None
    return max(one, other) <= ratio * min(one, other)


def groups(found: Sequence[Occurrence]) -> tuple[Group, ...]:
    """Incidents seen in several runs: each joins the first group whose first one it is like."""
    made: dict[Signature, list[list[Occurrence]]] = {}
    for one in found:
        rows = made.setdefault(one.signature, [])
        home = next((row for row in rows if alike(row[0], one)), None)
        if home is None:
            rows.append([one])
        else:
            home.append(one)
    shared = [row for rows in made.values() for row in rows if len({o.run for o in row}) > 1]
    shared.sort(key=lambda row: (-_worst(row), -len(row), row[0].run))
    return tuple(_group(number, row) for number, row in enumerate(shared, 1))


def _worst(row: Sequence[Occurrence]) -> int:
    return max(severity_rank(one.incident.severity) for one in row)


def _group(number: int, row: list[Occurrence]) -> Group:
    worst = max(row, key=lambda one: severity_rank(one.incident.severity)).incident.severity
    title = kind_title(row[0].incident.kind)
    return Group(number=number, title=title, severity=worst, occurrences=tuple(row))
