"""Crashes, saves and restarts against logs whose story is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from synth_system import by_kind, context, event, make_run, step_time, worst

from loganalyze.detectors.life import detect_failures
from loganalyze.detectors.life_saves import detect_saves
from loganalyze.model import Event, Finding, Problem, RunLog

N = 100


def _run(events: Sequence[Event] = (), **more: object) -> RunLog:
    values = {"loss": np.linspace(5, 4, N), "step_time_s": step_time(N, 0)}
    return make_run(values, events=tuple(events), **more)  # type: ignore[arg-type]


def _failures(*events: Event, **more: object) -> list[Finding]:
    return detect_failures(context(_run(events, **more)))


def test_a_run_without_events_is_silent() -> None:
    """No events, no failures, no restarts."""
    run = _run()
    assert detect_failures(context(run)) == []
    assert detect_saves(context(run)) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("oom", "oom"),
        ("exception", "crash"),
        ("comm_timeout", "comm_timeout"),
        ("xid", "hardware_error"),
        ("hardware_error", "hardware_error"),
    ],
)
def test_a_failure_that_ended_the_run_is_critical(kind: str, expected: str) -> None:
    """The last thing in the log is a failure: look now."""
    found = _failures(event(kind, N - 1))
    assert [(f.kind, f.severity, f.step_first) for f in found] == [(expected, "critical", N)]


@pytest.mark.parametrize("kind", ["killed", "signal", "time_limit"])
def test_a_stop_from_outside_is_a_warning(kind: str) -> None:
    """A scheduler's stop is somebody's will, not a fault of the program."""
    assert [(f.kind, f.severity) for f in _failures(event(kind, N - 1))] == [("killed", "warning")]


def test_the_host_memory_killer_is_critical() -> None:
    """The kernel killed the process: that is a fault."""
    assert worst(_failures(event("host_oom", N - 1)), "killed") == "critical"


def test_echoes_of_one_kind_are_one_finding_with_ranks() -> None:
    """Eight ranks report the time-out: one finding, seven echoes, the ranks named."""
    found = _failures(*(event("comm_timeout", N - 1 + r, rank=r) for r in range(8)))
    (one,) = found
    assert one.statistics["echoes"] == 7
    assert one.statistics["ranks"] == "0,1,2,3,4,5,6,7"


def test_the_first_error_leads_and_its_consequences_are_notes() -> None:
    """OOM on one rank, then time-outs and signals: one critical finding, the rest follows."""
    found = _failures(
        event("oom", N - 1, rank=3),
        event("exception", N, rank=3),
        event("comm_timeout", N + 1, rank=0),
        event("signal", N + 2, rank=0),
    )
    severities = {f.kind: f.severity for f in found}
    assert severities == {"oom": "critical", "comm_timeout": "info", "killed": "info"}
    assert {f.statistics["follows_from"] for f in found if f.kind != "oom"} == {"oom"}
    assert by_kind(found)["oom"][0].rank == 3


def test_a_signal_before_the_traceback_does_not_lead() -> None:
    """The launcher's SIGTERM line may come first; the exception is the cause all the same."""
    found = _failures(event("signal", N - 1), event("exception", N))
    assert {f.kind: f.severity for f in found} == {"killed": "info", "crash": "critical"}


def test_wall_time_outranks_the_order_of_lines() -> None:
    """Buffered output puts the first error last; its clock shows the truth."""
    found = _failures(
        event("comm_timeout", N - 1, wall_s=2000.0), event("xid", N, wall_s=1000.0, xid=79)
    )
    assert {f.kind: f.severity for f in found} == {
        "comm_timeout": "info",
        "hardware_error": "critical",
    }


def test_corrected_memory_errors_are_a_note() -> None:
    """Xid 92 tells of a high rate of corrected errors: a trend, no failure."""
    assert worst(_failures(event("xid", 50, xid=92)), "hardware_error") == "info"


def test_noise_after_a_clean_end_is_a_note() -> None:
    """The program had said good-bye; what its ranks print while they die is no crash."""
    found = _failures(event("exit", N - 1), event("comm_timeout", N), event("exception", N + 1))
    assert {f.severity for f in found} == {"info"}


def test_noise_after_the_last_planned_step_is_a_note() -> None:
    """The configuration asked for a hundred steps and they were made."""
    found = _failures(event("config", -1, train_iters="100"), event("exception", N - 1))
    assert {f.severity for f in found} == {"info"}


@pytest.mark.parametrize(
    ("code", "kind", "severity"), [(1, "crash", "critical"), (255, "killed", "warning")]
)
def test_an_exit_code_tells_how_it_ended(code: int, kind: str, severity: str) -> None:
    """A tracker writes only the code: an error is a crash, an interrupt a stop."""
    found = _failures(event("exit", N - 1, exit_code=code))
    assert [(f.kind, f.severity) for f in found] == [(kind, severity)]


def test_an_exit_code_after_a_traceback_is_its_echo() -> None:
    """The exception tells the story, the code adds nothing."""
    found = _failures(event("exception", N - 1), event("exit", N, exit_code=1))
    assert [(f.kind, f.severity) for f in found] == [("crash", "critical")]
    assert found[0].statistics["event"] == "exception"


def test_a_log_without_an_end_may_have_been_killed() -> None:
    """The tracker's file has no exit record: a note, it may still be running."""
    problem = Problem(rule="no_exit_record", message="the log has no exit record")
    run = replace(_run(), problems=(problem,))
    assert [(f.kind, f.severity) for f in detect_failures(context(run))] == [("killed", "info")]


def test_a_new_start_that_dies_after_a_finished_run_is_a_crash() -> None:
    """Two runs ended by plan, a third start printed its configuration and died."""
    found = _failures(event("exit", N - 1), event("config", N), event("exception", N + 1))
    assert [(f.kind, f.severity) for f in found] == [("crash", "critical")]


def test_an_earlier_attempt_is_a_warning() -> None:
    """The run crashed at step 60, was resumed from 41 and went on to the end."""
    steps = np.r_[np.arange(1, 61), np.arange(41, 81)]
    found = _failures(event("oom", 59), event("checkpoint_load", 59, step=40), steps=steps)
    assert [(f.kind, f.severity) for f in found] == [("oom", "warning")]


def test_data_used_up_gracefully_is_a_note() -> None:
    """The trainer says that the data is at its end, saves and stops."""
    found = _failures(event("data_exhausted", N - 1), event("exit", N))
    assert [(f.kind, f.severity) for f in found] == [("data_exhausted", "info")]


def test_silence_before_a_timeout_is_a_hang() -> None:
    """Half an hour without a step, then the watchdog: the run hung at its last step."""
    wall = 1.7e9 + np.cumsum(step_time(N, 0))
    found = _failures(event("comm_timeout", N - 1, wall_s=float(wall[-1]) + 1800.0), wall_s=wall)
    (hang,) = by_kind(found)["hang"]
    assert hang.statistics["silent_seconds"] == pytest.approx(1800.0)


# -- saves and restarts -----------------------------------------------------------------------


def _saves(upto: int, every: int = 20, last_confirmed: bool = True) -> list[Event]:
    events = []
    for step in range(every, upto + 1, every):
        events.append(event("checkpoint_save_begin", step - 1, step=step))
        if step < upto or last_confirmed:
            events.append(event("checkpoint_save_end", step - 1, step=step))
    return events


def test_confirmed_saves_are_silent() -> None:
    """Every save has its confirmation."""
    assert detect_saves(context(_run(_saves(N)))) == []


def test_a_log_that_never_confirms_says_nothing_about_saves() -> None:
    """Many trainers print only the beginning of a save."""
    events = [e for e in _saves(N - 1) if e.kind == "checkpoint_save_begin"]
    assert detect_saves(context(_run(events))) == []


def test_the_file_ends_inside_a_save() -> None:
    """The last of many confirmed saves was begun and never confirmed."""
    found = detect_saves(context(_run(_saves(N, last_confirmed=False))))
    (one,) = by_kind(found)["checkpoint_incomplete"]
    assert (one.severity, one.step_first) == ("warning", N)


def test_the_only_save_is_judged_if_the_file_ends_with_it() -> None:
    """No habit to compare with, but nothing at all follows the line."""
    events = [event("checkpoint_save_begin", N - 1, step=N)]
    run = _run(events, lines=2 * (N - 1) + 3)
    assert worst(detect_saves(context(run)), "checkpoint_incomplete") == "warning"


def test_a_failed_save_without_a_later_one_is_critical() -> None:
    """The writer died at the last save of the log."""
    found = detect_saves(context(_run([*_saves(80), event("checkpoint_failed", N - 1, step=N)])))
    assert worst(found, "checkpoint_failed") == "critical"


def test_a_failed_save_followed_by_a_good_one_is_a_warning() -> None:
    """The next save was confirmed."""
    found = detect_saves(context(_run([event("checkpoint_failed", 49, step=50), *_saves(N)])))
    assert worst(found, "checkpoint_failed") == "warning"


def test_a_resume_is_a_restart_with_the_work_it_did_again() -> None:
    """Stopped at 60, resumed at 41: twenty steps superseded."""
    steps = np.r_[np.arange(1, 61), np.arange(41, 81)]
    events = [event("checkpoint_load", 59, step=40)]
    kinds = by_kind(detect_saves(context(_run(events, steps=steps))))
    assert set(kinds) == {"restart", "work_lost"}
    assert kinds["restart"][0].statistics["superseded_steps"] == 20
    assert kinds["work_lost"][0].statistics["lost_steps"] == 20
    assert kinds["work_lost"][0].severity == "info"


def test_another_run_in_the_same_file_is_no_restart() -> None:
    """Steps begin again at one without a load: a fresh run."""
    steps = np.r_[np.arange(1, 51), np.arange(1, 51)]
    assert detect_saves(context(_run(steps=steps))) == []


def test_the_unsaved_tail_of_a_crashed_run_is_lost() -> None:
    """Last confirmed save at 80, crash at 100."""
    events = [*_saves(80), event("oom", N - 1)]
    (one,) = by_kind(detect_saves(context(_run(events))))["work_lost"]
    assert (one.step_first, one.step_last, one.statistics["lost_steps"]) == (81, N, 20)
