"""What a check is, and the small questions that all checks ask of a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.config import Thresholds
from loganalyze.model import CheckResult, CheckState, Evidence, Finding, LineRef, RunLog
from loganalyze.tracks import Track, row_ref, tracks

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """All that a check may look at: the run, the incident's findings and the one it is about."""

    run: RunLog
    findings: tuple[Finding, ...]
    finding: Finding
    thresholds: Thresholds

    @property
    def first(self) -> int | None:
        """The incident's first step (what was lost later does not count)."""
        moving = [f for f in self.findings if f.kind not in ("work_lost", "restart")]
        steps = [f.step_first for f in moving if f.step_first is not None]
        return min(steps, default=self.finding.step_first)

    @property
    def last(self) -> int | None:
        """The incident's last step."""
        moving = [f for f in self.findings if f.kind not in ("work_lost", "restart")]
        steps = [f.step_last for f in moving if f.step_last is not None]
        return max(steps, default=self.finding.step_last)

    def value(self, name: str) -> float:
        """A threshold of checks.toml."""
        return self.thresholds.value(f"check.{name}")

    def of_kind(self, *kinds: str) -> tuple[Finding, ...]:
        """The incident's findings of these kinds."""
        return tuple(f for f in self.findings if f.kind in kinds)

    def track(self, metric: str) -> Track | None:
        """The metric's track in the finding's segment (the longest, if several); None without."""
        found = tracks(self.run, metric)
        same = [t for t in found if t.segment == (self.finding.segment or 0)] or list(found)
        return max(same, key=len, default=None)

    def before(self, metric: str, points: int = 100) -> Floats:
        """The metric's finite values before the incident, the last `points` of them."""
        track = self.track(metric)
        if track is None:
            return np.empty(0)
        end = len(track) if self.first is None else int(np.searchsorted(track.steps, self.first))
        values = track.values[max(0, end - points) : end]
        return values[np.isfinite(values)]

    def during(self, metric: str) -> Floats:
        """The metric's finite values from the incident's first to its last step."""
        track = self.track(metric)
        if track is None or self.first is None:
            return np.empty(0)
        inside = (track.steps >= self.first) & (track.steps <= (self.last or self.first))
        values = track.values[inside]
        return values[np.isfinite(values)]

    def events(self, *kinds: str, margin: int | None = None) -> pl.DataFrame:
        """Events of these kinds; with a margin only those within so many steps of the incident."""
        frame = self.run.events.filter(pl.col("kind").is_in(kinds))
        if margin is None or self.first is None:
            return frame
        low, high = self.first - margin, (self.last or self.first) + margin
        return frame.filter(pl.col("step").is_between(low, high))

    def config(self, *names: str) -> str | None:
        """A setting by any of its names in the frameworks' dumps; None if it was not printed."""
        lowered = {key.lower(): text for key, text in self.run.meta.config.items()}
        return next((lowered[name] for name in names if name in lowered), None)


Check = Callable[[CheckContext], CheckResult]


def result(
    check: str, state: CheckState, *evidence: Evidence, missing: Sequence[str] = ()
) -> CheckResult:
    """A check's answer."""
    return CheckResult(check=check, state=state, evidence=evidence, missing=tuple(missing))


def yes_or_no(check: str, answer: bool, *evidence: Evidence) -> CheckResult:
    """Supported or ruled out."""
    return result(check, "supported" if answer else "ruled_out", *evidence)


def missing(check: str, *names: str) -> CheckResult:
    """Not checkable: these metrics or settings would have settled it."""
    return result(check, "not_checkable", missing=names)


def seen(
    label: str,
    value: float | str | None,
    unit: str = "",
    expected: str = "",
    step: int | None = None,
    ref: LineRef | None = None,
) -> Evidence:
    """A piece of evidence; label is a key of strings/."""
    return Evidence(label=label, value=value, unit=unit, expected=expected, step=step, ref=ref)


def at_step(context: CheckContext, metric: str, step: int | None, label: str) -> Evidence:
    """The metric's value at a step (or the last before it), with its line."""
    track = context.track(metric)
    if track is None or step is None or not len(track):
        return seen(label, None)
    at = max(int(np.searchsorted(track.steps, step, side="right")) - 1, 0)
    ref = row_ref(context.run, int(track.rows[at]))
    return seen(label, float(track.values[at]), step=int(track.steps[at]), ref=ref)


def event_evidence(label: str, row: dict[str, Any]) -> Evidence:
    """An event as evidence: its text and its line."""
    ref = LineRef(
        source=row["source"], line=row["line"], offset=row["offset"], length=row["length"]
    )
    return seen(label, row["text"][:160], step=row["step"], ref=ref)


def detail(row: dict[str, Any]) -> dict[str, Any]:
    """An event's detail as a dict."""
    found: dict[str, Any] = json.loads(row["detail"] or "{}")
    return found


def truth(text: str | None) -> bool | None:
    """A printed setting as a truth value; None where it was not printed."""
    if text is None:
        return None
    return text.strip().lower() in ("true", "1", "yes", "on")


def number(text: str | None) -> float | None:
    """A printed setting as a number; None where it was not printed or is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
