"""What a check is, and the small questions that all checks ask of a log."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.config import Thresholds
from loganalyze.model import CheckResult, CheckState, Evidence, Finding, LineRef, RunLog
from loganalyze.tracks import Track, row_ref, tracks

Floats = npt.NDArray[np.float64]
#: Kinds that tell what a restart cost; their steps are those that were lost, not when it happened.
AFTERWARDS = frozenset({"work_lost", "restart", "checkpoint_incomplete"})
#: Kinds whose cause stands in the attempt before their own.
_OF_THE_ATTEMPT_BEFORE = frozenset({"work_lost", "restart", "loss_discontinuity", "lr_schedule"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """All that a check may look at: the run, the incident's findings and the one it is about.

    everything: all findings of the run, those of other incidents included. memo: tracks and events
    that are cut once; share it between the incidents of one run.
    """

    run: RunLog
    findings: tuple[Finding, ...]
    finding: Finding
    thresholds: Thresholds
    everything: tuple[Finding, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def first(self) -> int | None:
        """The incident's first step (what was lost later does not count)."""
        steps = [f.step_first for f in self._moving() if f.step_first is not None]
        return min(steps, default=self.finding.step_first)

    @property
    def last(self) -> int | None:
        """The incident's last step."""
        steps = [f.step_last for f in self._moving() if f.step_last is not None]
        return max(steps, default=self.finding.step_last)

    @property
    def segment(self) -> int:
        """The segment of the finding that the tree is walked for."""
        return self.finding.segment or 0

    def _moving(self) -> list[Finding]:
        return [f for f in self.findings if f.kind not in AFTERWARDS]

    def value(self, name: str) -> float:
        """A threshold of checks.toml."""
        return self.thresholds.value(f"check.{name}")

    def of_kind(self, *kinds: str) -> tuple[Finding, ...]:
        """The incident's findings of these kinds."""
        return tuple(f for f in self.findings if f.kind in kinds)

    def tracks(self, metric: str) -> tuple[Track, ...]:
        """The metric's tracks over all segments and ranks; cut once."""
        key = f"tracks {metric}"
        if key not in self.memo:
            self.memo[key] = tracks(self.run, metric)
        found: tuple[Track, ...] = self.memo[key]
        return found

    def track(self, metric: str) -> Track | None:
        """The metric's track in the finding's segment (the longest, if several); None without."""
        found = self.tracks(metric)
        same = [t for t in found if t.segment == self.segment] or list(found)
        own = [t for t in same if t.rank == self.finding.rank]
        return max(own or same, key=len, default=None)

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

    def all_of(self, metric: str) -> Floats:
        """The metric's finite values in the finding's segment."""
        track = self.track(metric)
        return np.empty(0) if track is None else track.values[np.isfinite(track.values)]

    def events(self, *kinds: str, margin: int | None = None) -> pl.DataFrame:
        """Events of these kinds in the incident's attempt; with a margin only near its steps."""
        frame = self.known_events().filter(pl.col("kind").is_in(kinds))
        if margin is None or self.first is None:
            return frame
        low, high = self.first - margin, (self.last or self.first) + margin
        return frame.filter(pl.col("step").is_between(low, high))

    def known_events(self) -> pl.DataFrame:
        """Events of the incident's segments (and of the one before, where the cause stands there).

        With one column more: `signature`, the name of the failure text, or null.
        """
        own = {f.segment for f in self.findings if f.segment is not None}
        if len(self.run.meta.segments) < 2:
            own = set()
        if own and any(f.kind in _OF_THE_ATTEMPT_BEFORE for f in self.findings):
            own |= {segment - 1 for segment in own}
        key = f"events {sorted(own)}"
        if key not in self.memo:
            name = pl.col("detail").str.json_path_match("$.signature")
            frame = self.run.events.with_columns(signature=name)
            here = pl.col("segment").is_in(sorted(own)) | pl.col("segment").is_null()
            self.memo[key] = frame.filter(here) if own else frame
        found: pl.DataFrame = self.memo[key]
        return found

    def config(self, *names: str) -> str | None:
        """A setting by any of its names in the frameworks' dumps; None if it was not printed."""
        if "config" not in self.memo:
            self.memo["config"] = _flat(self.run.meta.config)
        flat: dict[str, str] = self.memo["config"]
        return next((flat[name] for name in names if name in flat), None)


Check = Callable[[CheckContext], CheckResult]


def _flat(config: Any) -> dict[str, str]:
    """Settings by lower-case name and by the last part of a dotted name."""
    flat = {str(key).lower().replace("-", "_"): str(text) for key, text in config.items()}
    for name in list(flat):
        flat.setdefault(name.replace("/", ".").rsplit(".", 1)[-1], flat[name])
    return flat


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
    return at_point(
        context, track, max(int(np.searchsorted(track.steps, step, side="right")) - 1, 0), label
    )


def at_point(
    context: CheckContext, track: Track, at: int, label: str, expected: str = ""
) -> Evidence:
    """Point `at` of a track as evidence, with its line."""
    ref = row_ref(context.run, int(track.rows[at]))
    value, step = float(track.values[at]), int(track.steps[at])
    return seen(label, value, step=step, ref=ref, expected=expected)


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


def rows_of(frame: pl.DataFrame, most: int = 50) -> list[dict[str, Any]]:
    """The first events of a frame as dicts."""
    return frame.head(most).to_dicts()


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


def median(values: Floats) -> float:
    """Median as a Python number."""
    return float(np.median(values))


def spread(values: Floats) -> float:
    """Robust standard deviation: 1.4826 times the median distance from the median."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
