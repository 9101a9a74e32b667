"""From paths to a Report: ingest, detect, diagnose; what every command that judges runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze import __version__
from loganalyze.baseline import Baseline, load_baseline
from loganalyze.config import Thresholds, kinds, load_thresholds
from loganalyze.detectors import DETECTORS, detect_and_show
from loganalyze.detectors.against import learnt
from loganalyze.diagnose import diagnose
from loganalyze.errors import UsageError
from loganalyze.ingest import ingest, limits_reached
from loganalyze.model import (
    DetectorRun,
    Diagnosis,
    Finding,
    Profile,
    Report,
    RunLog,
    severity_rank,
)
from loganalyze.profile import choose_profile
from loganalyze.reading import Progress
from loganalyze.shards import Workers

#: A finding's own number, as in LA102-1.
_NUMBER = re.compile(r"-\d{1,9}$")
__all__ = ["Judging", "has_metrics", "judge", "limits_reached", "report_on", "worst_rank"]


class Judging(Struct, frozen=True, kw_only=True):
    """How to judge: thresholds, profile and which findings count.

    Raises UsageError where select or ignore names nothing that can be found: a slip of the pen
    would leave a check off, or on, without a word.
    """

    profile: str = "auto"
    thresholds: Path | None = None
    settings: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    named: tuple[str, ...] = ()  # NAME=GLOB: inputs that the user holds for one run
    mapped: Mapping[str, str] = field(default_factory=dict)  # column of a table -> metric
    baseline: tuple[str, ...] = ()  # healthy runs: logs or run directories

    def __post_init__(self) -> None:
        """Every code stands for something."""
        names = [(kind.code, kind.name) for kind in kinds().values()]
        for code in (*self.select, *self.ignore):
            bare = _NUMBER.sub("", code.upper()) if code.upper().startswith("LA") else code
            if not any(_matches(one, bare) for one in names):
                raise UsageError(
                    f"{code}: no finding has this code or name",
                    hint="codes are in the README, e.g. LA102; LA1 is every one that begins so",
                )


def report_on(
    paths: Sequence[str],
    judging: Judging,
    *,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Report:
    """Everything about the runs behind the paths. Raises LoganalyzeError.

    workers: who reads the inputs where they are large, see shards.workers_for.
    """
    # fail before the reading
    usual = load_thresholds("pretrain", judging.thresholds, judging.settings)
    baseline = load_baseline(judging.baseline, usual)
    made = ingest(
        paths, progress=progress, named=judging.named, mapped=judging.mapped, workers=workers
    )
    return Report(
        version=__version__,
        diagnoses=tuple(judge(run, judging, baseline) for run in made.runs),
        unread=made.unread,
        baseline=None if baseline is None else baseline.runs[0],
    )


def judge(run: RunLog, judging: Judging, baseline: Baseline | None = None) -> Diagnosis:
    """Detect and diagnose one run, against healthy ones where they are given."""
    auto = judging.profile == "auto"
    profile = choose_profile(run) if auto else Profile(judging.profile, "profile_asked")
    normals = baseline.normals if baseline is not None else ()
    thresholds = load_thresholds(profile.name, judging.thresholds, judging.settings)
    shown = {f"{n} {entry.name}": entry for n, entry in enumerate(learnt(normals))}
    shown_with = Thresholds(entries={**thresholds.entries, **shown}, profile=profile.name)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a log may print 1e308
        told_of, findings, states = detect_and_show(run, thresholds, baseline=normals)
        kept = tuple(finding for finding in findings if _counts(finding, judging))
        told = tuple(_state(state, judging) for state in states)
        left_out = len(findings) - len(kept)
        made = diagnose(told_of, kept, told, shown_with, left_out=left_out)
        return replace(made, profile=profile)


def _state(state: DetectorRun, judging: Judging) -> DetectorRun:
    """A detector of which no finding would be told is off, whatever it ran."""
    by_name = {detector.name: detector.kinds for detector in DETECTORS}
    names = [(kinds()[kind].code, kind, "") for kind in by_name[state.detector]]
    heard = any(_named(one, judging) for one in names)
    return state if heard else replace(state, status="off", missing=())


def _counts(finding: Finding, judging: Judging) -> bool:
    return _named((finding.code, finding.kind, finding.id), judging)


def _named(names: tuple[str, ...], judging: Judging) -> bool:
    if judging.select and not any(_matches(names, code) for code in judging.select):
        return False
    return not any(_matches(names, code) for code in judging.ignore)


def _matches(names: tuple[str, ...], code: str) -> bool:
    """A code, a kind, a finding's id, or the beginning of a code (LA1 is every loss finding)."""
    return code in names or (code.upper().startswith("LA") and names[0].startswith(code.upper()))


def worst_rank(report: Report) -> int:
    """Rank of the worst finding of all runs; -1 without any."""
    ranks = [severity_rank(f.severity) for d in report.diagnoses for f in d.findings]
    return max(ranks, default=-1)


def has_metrics(report: Report) -> bool:
    """Whether any run has a row of numbers."""
    return any(len(diagnosis.run.readings) for diagnosis in report.diagnoses)
