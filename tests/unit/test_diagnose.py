"""Incidents with a first mover, causes for and against, verdicts that are earned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from textlogs import megatron_line, run_of

from loganalyze.checks import CHECKS, CheckContext
from loganalyze.config import kinds, load_thresholds
from loganalyze.diagnose import MAX_CAUSES, diagnose
from loganalyze.incidents import stories
from loganalyze.model import CheckResult, Diagnosis, Finding, RunLog, Severity
from loganalyze.pipeline import Judging, judge

THRESHOLDS = load_thresholds("pretrain")


def finding(
    kind: str, first: int | None, last: int | None = None, severity: Severity = "warning",
    segment: int = 0, **statistics: float,
) -> Finding:  # fmt: skip
    """A finding of a kind at some steps."""
    code = kinds()[kind].code
    return Finding(
        id=f"{code}-{first}", code=code, kind=kind, metric=None, severity=severity,
        step_first=first, step_last=first if last is None else last, segment=segment,
        statistics=statistics,
    )  # fmt: skip


def quiet_run(folder: Path, steps: int = 300, **extra: str) -> RunLog:
    """A run of quiet steps with loss, norm, rate and step time."""
    rng = np.random.default_rng(4)
    lines = [
        megatron_line(
            n, **{"elapsed_time_per_iteration_(ms)": f"{500 + rng.normal(0, 3):.1f}"},
            learning_rate="1.000000E-04", lm_loss=f"{3 + 1 / n + rng.normal(0, 0.01):.6E}",
            loss_scale="1.0", grad_norm=f"{0.5 + rng.normal(0, 0.02):.3f}", **extra,
        )
        for n in range(1, steps + 1)
    ]  # fmt: skip
    return run_of("\n".join(lines) + "\n", folder)


@pytest.fixture
def run(tmp_path: Path) -> RunLog:
    """A quiet run."""
    return quiet_run(tmp_path)


def test_gradient_before_loss_is_one_story(run: RunLog) -> None:
    """A norm that rises three steps before the loss is the same incident, and named first."""
    found = [finding("loss_spike", 103, 110), finding("grad_explosion", 100, 108)]
    (story,) = stories(run, found)
    assert story.kind == "loss_spike"
    assert story.first_mover.kind == "grad_explosion"
    assert (story.first, story.last) == (100, 110)


def test_far_apart_are_two_stories(run: RunLog) -> None:
    """A spike two hundred lines later is another story."""
    found = [finding("loss_spike", 20, 25), finding("loss_spike", 240, 245)]
    assert len(stories(run, found)) == 2


def test_loss_and_speed_are_two_stories(run: RunLog) -> None:
    """A slow-down at the same steps has no mechanism in common with a loss spike."""
    found = [finding("loss_spike", 100, 110), finding("throughput_drop", 100, 150)]
    assert {story.kind for story in stories(run, found)} == {"loss_spike", "throughput_drop"}


def test_leak_leads_to_out_of_memory(run: RunLog) -> None:
    """A leak and the out-of-memory behind it are one story, however long it took."""
    found = [finding("memory_leak", 10, 200), finding("oom", 299, severity="critical")]
    (story,) = stories(run, found)
    assert (story.kind, story.first_mover.kind) == ("oom", "memory_leak")


def test_what_was_lost_comes_last(run: RunLog) -> None:
    """Lost work is a consequence: it neither moves first nor stretches the story's steps."""
    found = [
        finding("work_lost", 201, 300), finding("loss_nonfinite", 290, 300, "critical"),
        finding("crash", 300, severity="critical"),
    ]  # fmt: skip
    (story,) = stories(run, found)
    assert [f.kind for f in story.findings] == ["loss_nonfinite", "crash", "work_lost"]
    assert story.first == 290


def test_notes_alone_are_no_incident(run: RunLog) -> None:
    """A story of notes only is not told as an incident."""
    assert stories(run, [finding("grad_explosion", 50, severity="info")]) == ()


def test_lost_steps_cost_their_usual_time(run: RunLog) -> None:
    """Steps of NaN that never end are lost, each at the run's usual step time."""
    (story,) = stories(run, [finding("loss_nonfinite", 291, 300, "critical", recovered=0)])
    assert story.cost_steps == 10
    assert story.cost_seconds == pytest.approx(10 * float(run.readings["step_time_s"].median()))


def test_a_spike_that_healed_costs_no_steps(run: RunLog) -> None:
    """Nothing has to be done again after a spike that recovered, nor after one that is open."""
    for recovered in (0, 1):
        (story,) = stories(
            run, [finding("loss_spike", 100, 109, recovered=recovered, cost_steps=10)]
        )
        assert (story.recovered, story.cost_steps) == (bool(recovered), None)
        assert story.cost_seconds is None


def test_slow_steps_cost_time_and_no_steps(run: RunLog) -> None:
    """A slow stretch costs what its steps took beyond the usual time."""
    (story,) = stories(run, [finding("throughput_drop", 100, 109)])
    times = run.readings["step_time_s"].to_numpy()
    excess = sum(max(0.0, float(t) - float(np.median(times))) for t in times[99:109])
    assert story.cost_steps is None
    assert story.cost_seconds == pytest.approx(excess)


def test_what_lasts_has_not_recovered(run: RunLog) -> None:
    """NaN that passes but leaves a frozen loss behind is no recovery."""
    found = [
        finding("grad_nonfinite", 1, 1, "critical", recovered=1),
        finding("loss_frozen", 3, 300, "critical"),
    ]
    (story,) = stories(run, found)
    assert story.recovered is False
    assert story.cost_steps == 300


def test_a_note_on_memory_leads_nothing(run: RunLog) -> None:
    """A small leak right before a crash is told with it and not named as its first mover."""
    found = [finding("host_memory_leak", 50, 295, "info"), finding("crash", 300, None, "critical")]
    (story,) = stories(run, found)
    assert story.first_mover.kind == "crash"
    assert (story.first, story.last) == (300, 300)


def judged(run: RunLog, found: list[Finding]) -> Diagnosis:
    """A diagnosis of these findings."""
    return diagnose(run, found, (), THRESHOLDS)


def test_open_causes_are_few_and_ruled_out_ones_are_kept(run: RunLog) -> None:
    """At most three causes stay open, likeliest first; the ruled-out ones are listed behind."""
    (incident,) = judged(run, [finding("loss_spike", 100, 105)]).incidents
    verdicts = [cause.verdict for cause in incident.causes]
    open_ones = [cause for cause in incident.causes if cause.verdict != "ruled_out"]
    assert len(open_ones) <= MAX_CAUSES
    assert "ruled_out" in verdicts
    assert verdicts == sorted(verdicts, key=lambda v: v == "ruled_out")
    confidences = [cause.confidence for cause in open_ones]
    assert confidences == sorted(confidences, reverse=True)


def test_no_confident_cause_without_a_decisive_check(run: RunLog) -> None:
    """Without a decisive check no cause is held for likelier than 60 %."""
    found = [finding("loss_spike", 103, 110), finding("grad_explosion", 100, 108)]
    (incident,) = judged(run, found).incidents
    assert max(cause.confidence for cause in incident.causes) <= 0.6


def test_the_settling_check_is_open(run: RunLog) -> None:
    """The check that would settle it is one that the log could not answer."""
    (incident,) = judged(run, [finding("loss_spike", 100, 105)]).incidents
    checks = {c.check: c for cause in incident.causes for c in cause.checks}
    assert checks[incident.settle].state == "not_checkable"
    assert checks[incident.settle].missing


def test_clean_must_be_earned(run: RunLog, tmp_path: Path) -> None:
    """Clean needs a finite loss with steps; without findings and without loss it is a note."""
    assert judged(run, []).verdict == "clean"
    no_loss = run_of(megatron_line(1, grad_norm="0.500") + "\n", tmp_path, "other.log")
    assert judged(no_loss, []).verdict == "info"
    assert judged(run_of("hello\n", tmp_path, "text.log"), []).verdict == "unreadable"


def test_verdict_is_the_worst_finding(run: RunLog) -> None:
    """The verdict is the severity of the worst finding."""
    found = [finding("loss_spike", 1, severity="info"), finding("oom", 9, severity="critical")]
    assert judged(run, found).verdict == "critical"


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_answers_on_any_run(name: str, run: RunLog, tmp_path: Path) -> None:
    """A check never raises: on a full run, on a run without numbers, without steps."""
    bare = run_of("hello\n", tmp_path, "bare.log")
    for subject, first in ((run, 100), (run, None), (bare, None)):
        about = finding("loss_spike", first)
        context = CheckContext(run=subject, findings=(about,), finding=about, thresholds=THRESHOLDS)
        answer = CHECKS[name](context)
        assert isinstance(answer, CheckResult)
        assert answer.check == name
        assert answer.missing if answer.state == "not_checkable" else not answer.missing


def _answer(run: RunLog, name: str, *found: Finding) -> str:
    context = CheckContext(run=run, findings=found, finding=found[-1], thresholds=THRESHOLDS)
    return CHECKS[name](context).state


def test_learning_rate_jump_is_supported(tmp_path: Path) -> None:
    """A learning rate that triples right before a spike supports the learning-rate cause."""
    lines = [
        megatron_line(n, learning_rate=f"{1e-4 * (3 if n >= 100 else 1):.6E}",
                      lm_loss=f"{3 + (0.9 if 101 <= n < 106 else 0):.4f}", grad_norm="0.5")
        for n in range(1, 200)
    ]  # fmt: skip
    run = run_of("\n".join(lines) + "\n", tmp_path)
    spike = finding("loss_spike", 101, 105)
    assert _answer(run, "lr_changed", spike) == "supported"
    assert _answer(run, "came_back", spike) == "supported"
    (incident,) = judged(run, [spike]).incidents
    assert incident.causes[0].id == "C.LR.TOO_HIGH"
    assert incident.causes[0].confidence > 0.6


def test_quiet_run_rules_out(run: RunLog) -> None:
    """On a quiet run the same checks are ruled out."""
    spike = finding("loss_spike", 101, 105)
    assert _answer(run, "lr_changed", spike) == "ruled_out"
    assert _answer(run, "scale_halves", spike) == "ruled_out"
    assert _answer(run, "after_resume", spike) == "ruled_out"
    assert _answer(run, "layer_outlier", spike) == "not_checkable"


def test_quiet_run_is_clean_end_to_end(run: RunLog) -> None:
    """A quiet log gets no finding above a note."""
    assert all(found.severity == "info" for found in judge(run, Judging()).findings)
