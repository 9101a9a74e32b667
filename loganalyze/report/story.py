"""The sentences that every format shares: verdict, what went wrong first, why, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from loganalyze import config
from loganalyze.incidents import CONSEQUENCES
from loganalyze.model import Cause, Evidence, Finding, Incident, Report, Threshold
from loganalyze.report import amounts, nearby, numbers
from loganalyze.report.model import (
    RunView,
    best_cause,
    detectors_by_status,
    kinds_of,
    ordered_causes,
)
from loganalyze.report.wording import (
    Both,
    both,
    cause_text,
    joined,
    kind_title,
    metric_label,
    name_of,
    plain,
)

Files = Mapping[str, PurePath]
#: From here on a cause is told as the answer; below it is only the likeliest of several.
_LIKELY = 0.5
#: With fewer logged steps than this nothing can be said of trends.
_FEW_STEPS = 10
#: Families whose findings a replay of the step can explain.
_REPLAYABLE = frozenset({"loss", "gradient", "samples", "rl", "ranks"})


def verdict_word(verdict: str) -> Both:
    """The verdict as one word."""
    return both(f"ui_verdict_{verdict}")


def verdict_line(run: RunView) -> Both:
    """What the run comes to, in one sentence, with the number of incidents behind it."""
    verdict = run.diagnosis.verdict
    count = sum(incident.severity == verdict for incident in run.incidents)
    if not count:
        count = sum(finding.severity == verdict for finding in run.findings.values())
    if verdict == "clean" and run.step_count < _FEW_STEPS:
        return both("ui_verdict_few", steps=numbers.grouped(run.step_count))
    if verdict == "info" and not count and run.diagnosis.left_out:
        return both("ui_verdict_left_out", count=run.diagnosis.left_out)
    key = f"ui_verdict_line_{verdict}" + ("_one" if count == 1 else "")
    return both(key, count=count, steps=numbers.grouped(run.step_count))


def report_line(report: Report, runs: tuple[RunView, ...]) -> Both:
    """The verdict over all runs."""
    if not runs:
        return both("ui_nothing_read", count=len(report.unread))
    if len(runs) == 1:
        return verdict_line(runs[0])
    worst = [run for run in runs if run.diagnosis.verdict == report.verdict]
    return both(
        "ui_report_line",
        verdict=verdict_word(report.verdict),
        count=len(worst),
        runs=len(runs),
    )


def basis(run: RunView) -> Both:
    """What stands behind a verdict: steps, metrics, ranks and checks."""
    return both(
        "ui_basis",
        steps=numbers.grouped(run.step_count),
        range=numbers.steps(run.step_first, run.step_last),
        metrics=len(run.metrics),
        ranks=run.reporting_ranks,
        checks=len(detectors_by_status(run.diagnosis, "ran")),
    )


def when(run: RunView, step: int | None) -> Both:
    """A step and, where the log has it, its wall time."""
    if step is None:
        return both("ui_no_step")
    clock = numbers.clock(run.wall_s(step))
    return both("ui_at_step_clock" if clock else "ui_at_step", step=step, clock=clock)


def first_parts(run: RunView) -> tuple[Both, Both] | None:
    """What went wrong first, and when; None where nothing did."""
    incident = run.headline
    if incident is None:
        return None
    mover = run.mover(incident)
    kind, step = (mover.kind, mover.step_first) if mover else (incident.kind, None)
    return kind_title(kind), when(run, incident.step_first if step is None else step)


def first_trouble(run: RunView) -> Both | None:
    """The same as one sentence."""
    parts = first_parts(run)
    return None if parts is None else both("ui_first_sentence", title=parts[0], when=parts[1])


def followed(run: RunView, most: int = 4) -> Both | None:
    """What came of the headline, in order: other kinds of its findings, each at its first step."""
    incident = run.headline
    mover = run.mover(incident) if incident else None
    if incident is None or mover is None:
        return None
    firsts: dict[str, int | None] = {}
    for finding in run.members(incident):
        at = finding.step_last if finding.kind in CONSEQUENCES else finding.step_first
        firsts.setdefault(finding.kind, at)
    firsts.pop(mover.kind, None)
    ordered = sorted(firsts.items(), key=lambda pair: (pair[1] is None, pair[1] or 0))[:most]
    parts = [
        kind_title(kind) if at is None else both("ui_then_at", title=kind_title(kind), step=at)
        for kind, at in ordered
    ]
    return joined(parts, en=" → ", zh=" → ") if parts else None


def why(incident: Incident) -> Both:
    """The surest cause in a few words; the likeliest ones where none is likelier than not."""
    cause = best_cause(incident)
    if cause is not None and settled(incident):
        title = cause_text(incident.kind, cause.id).title
        return both("ui_why_supported", cause=title, confidence=percent(cause.confidence))
    likely = [c for c in incident.causes if c.verdict != "ruled_out"]
    likely = sorted(likely, key=lambda c: -c.confidence)[:2]
    if not likely:
        return both("ui_why_unknown")
    titles = joined([_weighed(incident, c) for c in likely], en="; ", zh="；")
    return both("ui_why_likely" if cause in likely else "ui_why_open", causes=titles)


def settled(incident: Incident) -> bool:
    """Whether one cause is likelier than not."""
    cause = best_cause(incident)
    return cause is not None and cause.confidence >= _LIKELY


def _weighed(incident: Incident, cause: Cause) -> Both:
    title = cause_text(incident.kind, cause.id).title
    if cause.verdict != "supported":
        return title
    return both("ui_cause_share", cause=title, confidence=percent(cause.confidence))


def remedies(incident: Incident) -> tuple[Both, ...]:
    """What to do now: the best cause's remedies, else those of the first open cause."""
    for cause in ordered_causes(incident):
        text = cause_text(incident.kind, cause.id)
        if cause.verdict != "ruled_out" and text.remedy:
            return text.remedy
    return ()


def log_next(incident: Incident) -> tuple[Both, ...]:
    """What to log next time, each once, from the causes that were not ruled out."""
    open_causes = [c for c in ordered_causes(incident) if c.verdict != "ruled_out"]
    items = [item for c in open_causes for item in cause_text(incident.kind, c.id).log_next]
    return tuple(dict.fromkeys(items))


def settling(incident: Incident) -> Both:
    """The check that would settle an incident, with what it needs."""
    label = both(incident.settle)
    checks = (check for cause in incident.causes for check in cause.checks)
    lack = next((c.missing for c in checks if c.check == incident.settle and c.missing), ())
    return both("ui_check_needs", check=label, missing=missing_words(lack)) if lack else label


def do_first(run: RunView) -> tuple[Both, ...]:
    """What to do first about the headline: while its cause is open, the check that settles it."""
    head = run.headline
    for incident in ((head,) if head else ()) + run.incidents:
        found = remedies(incident)
        if incident.settle and not settled(incident):
            found = (both("ui_settle", check=settling(incident)), *found)
        if found:
            return found
    return ()


def cost(incident: Incident) -> Both | None:
    """Steps and time that an incident cost; None where it cost nothing known."""
    seconds = numbers.duration(incident.cost_seconds) if incident.cost_seconds else ""
    if not incident.cost_steps:
        return both("ui_cost_time", time=seconds) if seconds else None
    key = "ui_cost_step" if incident.cost_steps == 1 else "ui_cost_steps"
    lost = both(key, steps=numbers.grouped(incident.cost_steps))
    return both("ui_cost_both", steps=lost, time=seconds) if seconds else lost


def outcome(incident: Incident) -> Both | None:
    """Whether the run recovered by itself."""
    if incident.recovered is None:
        return None
    return both("ui_recovered" if incident.recovered else "ui_not_recovered")


def percent(share: float) -> str:
    """0-1 as whole per cent."""
    return f"{round(100 * share)} %"


def limit(threshold: Threshold) -> Both:
    """A threshold as name = value unit."""
    value = amounts.amount(threshold.value, threshold.unit)
    return Both(f"{threshold.name} = {value.en}", f"{threshold.name} = {value.zh}")


def finding_where(finding: Finding) -> Both:
    """Metric and rank of a finding; empty where it is about the whole run."""
    parts: list[Both | str] = []
    if finding.metric:
        parts.append(metric_label(finding.metric))
    if finding.rank is not None:
        parts.append(both("ui_rank_n", rank=finding.rank))
    return joined(parts, en=" · ", zh=" · ") if parts else plain("")


def evidence_line(evidence: Evidence) -> Both:
    """One observation: label, value, what was expected."""
    # A step may be a place or a count: the label says which.
    unit = "" if evidence.unit == "step" else evidence.unit
    value = plain("") if evidence.value is None else amounts.amount(evidence.value, unit)
    expected = amounts.expectation(evidence.expected, unit) if evidence.expected else plain("")
    label = both(evidence.label, value=value, unit=unit, expected=expected,
                 step="" if evidence.step is None else evidence.step)  # fmt: skip
    if not value.en:
        return label
    key = "ui_evidence_expected" if evidence.expected else "ui_evidence_value"
    return both(key, label=label, value=value, expected=expected)


def statistics(finding: Finding) -> tuple[tuple[Both, Both], ...]:
    """The statistics of a finding, labelled, sorted by key."""
    return tuple(
        (both(key), amounts.amount(value)) for key, value in sorted(finding.statistics.items())
    )


def detector_name(detector: str) -> Both:
    """A detector by what it looks for: at most three kinds."""
    kinds = kinds_of(detector)
    words = joined([kind_title(kind) for kind in kinds[:3]])
    return words if len(kinds) <= 3 else both("ui_and_others", names=words)


def missing_words(names: tuple[str, ...]) -> Both:
    """Names of what is missing as one list."""
    return joined([name_of(name) for name in names])


def commands(run: RunView, files: Files) -> tuple[str, ...]:
    """The next commands to type: open the page, replay the worst step, explain its code."""
    made = []
    page = files.get(run.id)
    if page is not None:
        made.append(f"loganalyze open {quoted(str(page))}")
    worst = run.headline
    finding = run.mover(worst) if worst else next(iter(run.findings.values()), None)
    if finding is not None and finding.severity != "info" and can_replay(finding):
        made.append(replay_command(run, finding, files))
    if finding is not None and len(made) < 2:
        made.append(f"loganalyze explain {finding.code}")
    return tuple(made[:2])


def can_replay(finding: Finding) -> bool:
    """Whether running the step again can tell more: it is about numbers and has a step."""
    kind = config.kinds().get(finding.kind)
    return finding.step_first is not None and kind is not None and kind.family in _REPLAYABLE


def replay_command(run: RunView, finding: Finding, files: Files) -> str:
    """The command that replays a finding from its report (or its run, if none was written).

    Where the run left a black box or checkpoints beside its log, they are named.
    """
    page = files.get(run.id)
    target = str(page.with_suffix(".json")) if page is not None else run.id
    steps = (finding.step_peak, finding.step_first, finding.step_last)
    step = next((s for s in steps if s is not None), 0)
    found = nearby.start([source.path for source in run.diagnosis.run.sources], step)
    options = [("finding", finding.id), ("recipe", found.recipe),
               ("checkpoint", found.checkpoint), ("data", found.data)]  # fmt: skip
    shown = [f"--{name} {quoted(value)}" for name, value in options if value]
    return " ".join(["loganalyze replay", quoted(target), *shown])


def quoted(word: str) -> str:
    """A word as a POSIX shell needs it; control characters can't be typed and become ?."""
    safe = "".join(ch if ch.isprintable() else "?" for ch in word)
    if safe and all(ch.isalnum() or ch in "._-/:=+,@%" for ch in safe):
        return safe
    return "'" + safe.replace("'", "'\"'\"'") + "'"


def code_of(kind: str) -> str:
    """Stable code of a kind; "" for one that is not in the vocabulary."""
    entry = config.kinds().get(kind)
    return entry.code if entry else ""
