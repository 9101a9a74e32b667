"""Checks on how runs end and hang: who fell silent first, on which operation, for how long."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    detail,
    event_evidence,
    missing,
    rows_of,
    seen,
    yes_or_no,
)
from loganalyze.model import CheckResult

_COMM = ("comm_timeout", "comm_error")
#: Failures after which the other ranks can only wait.
_DEATHS = ("exception", "oom", "host_oom", "killed", "xid", "hardware_error")
#: Time-outs that frameworks set by themselves, in seconds.
_USUAL_TIMEOUTS = (600, 1800, 3600, 7200)


def rank_died_first(context: CheckContext) -> CheckResult:
    """A failure stands before the first communication error: the other ranks only waited."""
    comm = _first_place(context, _COMM)
    if comm is None:
        return yes_or_no("rank_died_first", False)
    frame = context.known_events()
    role = pl.col("detail").str.json_path_match("$.role")
    roots = frame.filter(
        pl.col("kind").is_in(_DEATHS) & (role.is_null() | (role == "root"))
        & ~pl.col("text").str.contains("(?i)nccl|DistBackendError|watchdog|StopIteration")
    )  # fmt: skip
    earlier = [row for row in rows_of(roots) if _before(row, comm)]
    if not earlier:
        return yes_or_no("rank_died_first", False, event_evidence("log_line", comm))
    lines = [event_evidence("log_line", row) for row in (earlier[0], comm)]
    return yes_or_no("rank_died_first", True, *lines)


def _first_place(context: CheckContext, kinds: tuple[str, ...]) -> dict[str, object] | None:
    rows = rows_of(context.events(*kinds))
    return min(rows, key=_order) if rows else None


def _order(row: dict[str, object]) -> tuple[float, object, object]:
    at = row["wall_s"]
    return (float(at) if isinstance(at, float) else math.inf, row["source"], row["offset"])


def _before(row: dict[str, object], other: dict[str, object]) -> bool:
    """By the clock (two seconds of skew are allowed), else by the place in the same input."""
    one, two = row["wall_s"], other["wall_s"]
    if isinstance(one, float) and isinstance(two, float):
        return one <= two + 2.0
    same = row["source"] == other["source"]
    return bool(same and row["offset"] < other["offset"])  # type: ignore[operator]


def data_ended_first(context: CheckContext) -> CheckResult:
    """Some ranks reached the end of the data before the others timed out."""
    ends = _first_place(context, ("data_exhausted",))
    stops = [
        row for row in rows_of(context.events("exception")) if "StopIteration" in str(row["text"])
    ]
    first = ends or (stops[0] if stops else None)
    comm = _first_place(context, _COMM)
    if first is None:
        return yes_or_no("data_ended_first", False)
    answer = comm is None or _before(first, comm)
    return yes_or_no("data_ended_first", answer, event_evidence("log_line", first))


def _timeouts(context: CheckContext) -> list[dict[str, object]]:
    """Details of the time-outs, each with its row under `row`."""
    return [{**detail(row), "row": row} for row in rows_of(context.events(*_COMM), 200)]


def waited_to_the_limit(context: CheckContext) -> CheckResult:
    """The operation waited for exactly one usual time-out: somebody never came."""
    for told in _timeouts(context):
        ran, limit = told.get("ran_ms"), told.get("timeout_ms")
        value = ran if isinstance(ran, int | float) else limit
        if isinstance(value, int | float):
            near = any(abs(value / 1000 - usual) < 0.02 * usual for usual in _USUAL_TIMEOUTS)
            line = event_evidence("log_line", told["row"])  # type: ignore[arg-type]
            evidence = seen("waited", value / 1000, "s", "600 s / 1800 s")
            return yes_or_no("waited_to_the_limit", near, evidence, line)
    return missing("waited_to_the_limit", "watchdog_line")


def one_element(context: CheckContext) -> CheckResult:
    """The operation that waited carries one number: a barrier or a flag, not gradients."""
    told = [t.get("elements_in") for t in _timeouts(context)]
    sizes = [float(size) for size in told if isinstance(size, int | float)]
    if not sizes:
        return missing("one_element", "watchdog_line")
    small = min(sizes)
    return yes_or_no("one_element", small <= 1, seen("elements", small, "", "1"))


def operations_differ(context: CheckContext) -> CheckResult:
    """Ranks waited in different operations, sizes or sequence numbers."""
    told = [
        (t.get("op"), t.get("elements_in")) for t in _timeouts(context) if t.get("op") is not None
    ]
    if len(told) < 2:
        return missing("operations_differ", "flight_recorder")
    kinds = {str(pair) for pair in told}
    evidence = seen("operations", ", ".join(sorted({str(op) for op, _ in told}))[:80])
    return yes_or_no("operations_differ", len(kinds) > 1, evidence)


def broadcast_waits(context: CheckContext) -> CheckResult:
    """The waiting operation is a broadcast: the receiving ranks got nothing to work on."""
    told = [str(t.get("op")) for t in _timeouts(context) if t.get("op") is not None]
    if not told:
        return missing("broadcast_waits", "watchdog_line")
    hit = any("BROADCAST" in op.upper() for op in told)
    return yes_or_no("broadcast_waits", hit, seen("operations", told[0]))


def before_first_step(context: CheckContext) -> CheckResult:
    """No step had been logged: it stands in the start-up, if the log shows steps at all."""
    track = context.track("loss") or context.track("step_time_s")
    numbers = [t.get("seq") for t in _timeouts(context)]
    done = max((int(seq) for seq in numbers if isinstance(seq, int | float)), default=0)
    if done >= context.value("start_up_operations"):
        return yes_or_no("before_first_step", False, seen("operations_before", done, "", "few"))
    if track is None and not len(context.events("config", "start_fresh", "checkpoint_load")):
        return missing("before_first_step", "training_lines")
    rows = 0 if track is None else len(track)
    return yes_or_no("before_first_step", rows == 0, seen("steps_before", rows, "", "0"))


def ran_for_long(context: CheckContext) -> CheckResult:
    """It had run for hundreds of steps before."""
    track = context.track("loss") or context.track("step_time_s")
    if track is None or not len(track):
        return missing("ran_for_long", "training_lines")
    span = int(track.steps[-1]) - int(track.steps[0])
    return yes_or_no("ran_for_long", span >= 100, seen("steps_before", span, "step", ">= 100"))


def finished_before(context: CheckContext) -> CheckResult:
    """Training had finished (its last line says so, or the planned steps were done)."""
    clean = [f for f in context.findings if f.statistics.get("after_clean_end") == 1]
    exits = rows_of(context.events("exit"), 1)
    comm = _first_place(context, _COMM)
    if clean:
        return yes_or_no("finished_before", True, seen("finding_beside", clean[0].id))
    if exits and comm is not None and _before(exits[0], comm):
        return yes_or_no("finished_before", True, event_evidence("log_line", exits[0]))
    return yes_or_no("finished_before", False)


def after_evaluation(context: CheckContext) -> CheckResult:
    """An evaluation was the last thing before it."""
    return _last_thing(context, "after_evaluation", ("evaluation",), "val_loss")


def after_save(context: CheckContext) -> CheckResult:
    """A save had begun and was the last thing before it."""
    return _last_thing(context, "after_save", ("checkpoint_save_begin",), "")


def _last_thing(
    context: CheckContext, check: str, kinds: tuple[str, ...], metric: str
) -> CheckResult:
    step = context.last if context.last is not None else context.first
    found = context.events(*kinds)
    near = 2 * context.run.meta.log_interval
    if step is not None and len(found):
        close = found.filter((pl.col("step") - step).abs() <= near)
        if len(close):
            return yes_or_no(check, True, event_evidence("log_line", close.row(-1, named=True)))
    track = context.track(metric) if metric else None
    if track is not None and step is not None and len(track):
        away = int(np.min(np.abs(track.steps - step)))
        return yes_or_no(check, away <= near, seen("last_validation", int(track.steps[-1]), "step"))
    if step is None and len(found):
        return yes_or_no(check, True, event_evidence("log_line", found.row(-1, named=True)))
    return yes_or_no(check, False)


def at_planned_end(context: CheckContext) -> CheckResult:
    """It stands at the last planned steps or at the end of an epoch."""
    told = context.config("train_iters", "max_steps", "total_steps", "num_train_steps")
    step = context.last
    epoch = context.track("epoch")
    if told is not None and step is not None and told.isdecimal() and int(told) > 0:
        near = step >= 0.99 * int(told)
        return yes_or_no("at_planned_end", near, seen("share_of_plan", step / int(told), "share"))
    if epoch is not None and len(epoch):
        last = float(epoch.values[-1])
        near = 0.5 < last < np.inf and abs(last - round(last)) < 0.03
        return yes_or_no("at_planned_end", near, seen("epoch_reached", last))
    return missing("at_planned_end", "setting_total_steps")


def on_one_rank(context: CheckContext) -> CheckResult:
    """The failure was told by one rank only, in a log that names its ranks."""
    told = [str(f.statistics.get("ranks") or "") for f in context.findings]
    ranks = {part for text in told for part in text.split(",") if part.strip().isdecimal()}
    if not ranks:
        return missing("on_one_rank", "rank_logs")
    named = context.run.readings["rank"].drop_nulls().n_unique() if len(
        context.run.readings) else 0  # fmt: skip
    many = named > 1 or context.run.events["rank"].drop_nulls().n_unique() > 1
    if len(ranks) == 1 and not many:
        return missing("on_one_rank", "rank_logs")
    return yes_or_no("on_one_rank", len(ranks) == 1, seen("ranks", ",".join(sorted(ranks))))


def no_reason_said(context: CheckContext) -> CheckResult:
    """The log ends without one word of failure."""
    loud = context.events("exception", "oom", "host_oom", "comm_timeout", "comm_error", "xid",
                          "hardware_error", "killed", "signal", "time_limit")  # fmt: skip
    return yes_or_no("no_reason_said", not len(loud), seen("failure_lines", len(loud), "", "0"))


ENDS: dict[str, Check] = {
    check.__name__: check
    for check in (
        rank_died_first, data_ended_first, waited_to_the_limit, one_element, operations_differ,
        broadcast_waits, before_first_step, ran_for_long, finished_before, after_evaluation,
        after_save, at_planned_end, on_one_rank, no_reason_said,
    )
}  # fmt: skip
