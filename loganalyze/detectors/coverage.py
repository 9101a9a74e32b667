"""What the log cannot tell: input that was not read, metrics that are absent."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from loganalyze.config import metrics
from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.model import READING_COLUMNS, Evidence, Finding, Problem, Source

#: A problem whose rule holds one of these words means that bytes could not be used.
_UNREAD_WORDS = (
    "crc", "corrupt", "damaged", "torn", "truncat", "zero_block", "unread", "breaks_off", "bad_",
    "not_json", "stopped", "limit_",
)  # fmt: skip
_KEY_METRICS = ("loss", "grad_norm")
_OTHER_LOSSES = ("reward", "val_loss")
_SHOWN = 5


def detect_unread(context: Context) -> list[Finding]:
    """unread_input: damaged inputs, and inputs of which much was not understood."""
    run = context.run
    found = []
    for index, source in enumerate(run.sources):
        own = [p for p in run.problems if _unread(p) and index == _source_of(p, run.sources)]
        share = source.account.unknown / max(1, source.account.lines)
        much = source.account.unknown >= context.value(
            "unread_input.least_lines"
        ) and share > context.value("unread_input.info_share")
        if own or much:
            found.append(_unread_finding(context, source, share, own))
    return found


def _source_of(problem: Problem, sources: Sequence[Source]) -> int:
    """The input that a problem is about: its line's, the one it names, else the first."""
    if problem.ref is not None:
        return problem.ref.source
    named = (i for i, source in enumerate(sources) if source.path in problem.message)
    return next(named, 0)


def _unread(problem: Problem) -> bool:
    return any(word in problem.rule for word in _UNREAD_WORDS)


def _unread_finding(
    context: Context, source: Source, share: float, problems: Sequence[Problem]
) -> Finding:
    evidence = [
        Evidence(label="unread_problem", value=problem.message[:300], ref=problem.ref)
        for problem in problems[:_SHOWN]
    ]
    evidence += [
        Evidence(label="unread_line", value=text)
        for text in source.account.unknown_samples[: _SHOWN if not problems else 1]
    ]
    return finding(
        "unread_input",
        "info",
        statistics={
            "path": source.path,
            "unknown_lines": source.account.unknown,
            "lines": source.account.lines,
            "unknown_share": share,
            "problems": len(problems),
        },
        threshold=context.thresholds["unread_input.info_share"],
        evidence=tuple(evidence),
    )


def detect_missing(context: Context) -> list[Finding]:
    """metrics_missing: no loss, no gradient norm or no step axis."""
    missing = [name for name in _KEY_METRICS if not context.has(name)]
    if any(context.has(name) for name in _OTHER_LOSSES):
        missing = [name for name in missing if name != "loss"]
    frame = context.run.readings
    if not len(frame) or frame["step"].null_count() == len(frame):
        missing.append("step")
    if not missing:
        return []
    present = levels_of(frame)
    return [
        finding(
            "metrics_missing",
            "info",
            statistics={
                "missing": ",".join(missing),
                "levels": ",".join(sorted(present)),
                "levels_missing": ",".join(sorted(_all_levels() - present)),
                "records": len(frame),
            },
        )
    ]


def levels_of(frame: pl.DataFrame) -> set[str]:
    """Levels of the observability pyramid (L1 to L7) of which the log has a number."""
    known = metrics()
    return {
        known[name].level
        for name in frame.columns
        if name in known and name not in READING_COLUMNS and frame[name].null_count() < len(frame)
    }


def _all_levels() -> set[str]:
    return {f"L{number}" for number in range(1, 8)}


COVERAGE = (
    Detector(name="unread_input", kinds=("unread_input",), needs=(), run=detect_unread),
    Detector(name="metrics_missing", kinds=("metrics_missing",), needs=(), run=detect_missing),
)
