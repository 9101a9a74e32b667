"""What the loss and gradient detectors say of a run, for tests."""

from __future__ import annotations

from loganalyze.config import load_thresholds
from loganalyze.detectors import detect
from loganalyze.model import Finding, RunLog

FAMILIES = ("LA1", "LA2", "LA8", "LA712", "LA901")


def found(run: RunLog, profile: str = "pretrain") -> list[Finding]:
    """Findings of the loss and gradient families."""
    findings, _ = detect(run, load_thresholds(profile))
    return [f for f in findings if f.code.startswith(FAMILIES)]


def kinds(run: RunLog, profile: str = "pretrain", least: str = "info") -> set[str]:
    """Kinds of at least that severity."""
    order = ("info", "warning", "critical")
    return {f.kind for f in found(run, profile) if order.index(f.severity) >= order.index(least)}


def only(run: RunLog, kind: str, profile: str = "pretrain") -> Finding:
    """The one finding of a kind."""
    (item,) = [f for f in found(run, profile) if f.kind == kind]
    return item
