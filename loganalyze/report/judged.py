"""By what a run was judged: profile and why, thresholds that are not the packaged ones."""

from __future__ import annotations

from loganalyze import config
from loganalyze.model import Threshold
from loganalyze.report import story
from loganalyze.report.model import RunView
from loganalyze.report.wording import Both, both, joined, plain

LEARNT = "baseline."


def judged_by(run: RunView) -> tuple[Both, ...]:
    """Sentences: the profile and what decided it, own thresholds, what the baseline taught."""
    profile = run.diagnosis.profile
    if profile is None:
        return ()
    told = [both("ui_profile", profile=profile.name, why=both(profile.why, seen=profile.seen))]
    own, learnt = changed(run)
    if own:
        told.append(both("ui_own_thresholds", values=joined([_cited(entry) for entry in own])))
    if learnt:
        values = joined([story.limit(entry) for entry in learnt])
        told.append(both("ui_learnt", values=values))
    return tuple(told)


def changed(run: RunView) -> tuple[list[Threshold], list[Threshold]]:
    """Thresholds that a file or a setting changed, and those learnt from healthy runs."""
    profile = run.diagnosis.profile
    packaged = config.load_thresholds(profile.name if profile is not None else "pretrain").entries
    other = [
        entry for entry in run.diagnosis.thresholds
        if entry.name not in packaged or packaged[entry.name].source != entry.source
    ]  # fmt: skip
    learnt = [entry for entry in other if entry.name not in packaged]
    return [entry for entry in other if entry.name in packaged], learnt


def _cited(entry: Threshold) -> Both:
    limit, source = story.limit(entry), plain(f" ({entry.source})")
    return Both(limit.en + source.en, limit.zh + source.zh)
