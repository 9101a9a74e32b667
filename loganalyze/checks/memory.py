"""Checks on memory: what grew, and what an out-of-memory message tells."""

from __future__ import annotations

import polars as pl

from loganalyze.checks.base import (
    Check,
    CheckContext,
    detail,
    event_evidence,
    median,
    missing,
    rows_of,
    seen,
    yes_or_no,
)
from loganalyze.model import CheckResult

_GIB = 1024.0**3
_MEMORY = ("mem_allocated_bytes", "mem_reserved_bytes", "mem_peak_allocated_bytes",
           "mem_used_bytes")  # fmt: skip


def memory_was_rising(context: CheckContext) -> CheckResult:
    """Memory on the GPU grew by 5 % or more before the incident."""
    for metric in _MEMORY:
        values = context.before(metric, 2000)
        if len(values) >= 10:
            quarter = max(len(values) // 4, 2)
            rise = median(values[-quarter:]) / max(median(values[:quarter]), 1.0) - 1
            evidence = seen("memory_rise", rise, "share", "> 0.05")
            return yes_or_no("memory_was_rising", rise > 0.05, evidence)
    return missing("memory_was_rising", "mem_allocated_bytes")


def tensors_leaked(context: CheckContext) -> CheckResult:
    """Allocated memory itself leaks: what fills the device are tensors, not pieces between them."""
    own = [f for f in context.of_kind("memory_leak") if "allocated" in str(f.metric)]
    if not own:
        return yes_or_no("tensors_leaked", False)
    return yes_or_no("tensors_leaked", True, seen("finding_beside", own[0].id))


def reserved_runs_away(context: CheckContext) -> CheckResult:
    """Reserved memory grew while allocated memory did not."""
    held, kept = context.all_of("mem_allocated_bytes"), context.all_of("mem_reserved_bytes")
    if len(held) < 10 or len(kept) < 10:
        return missing("reserved_runs_away", "mem_reserved_bytes")
    fifth = max(len(held) // 5, 2)
    grown = median(kept[-fifth:]) / max(median(kept[:fifth]), 1.0) - 1
    other = median(held[-fifth:]) / max(median(held[:fifth]), 1.0) - 1
    evidence = seen("memory_rise", grown, "share", "> 0.05")
    return yes_or_no("reserved_runs_away", grown > 0.05 and other < 0.5 * grown, evidence)


def retries_rise(context: CheckContext) -> CheckResult:
    """The allocator had to free its cache and try again."""
    values = context.all_of("alloc_retries")
    if not len(values):
        return missing("retries_rise", "alloc_retries")
    more = float(values[-1] - values[0])
    return yes_or_no("retries_rise", more > 0, seen("retries", more, "", "0"))


def one_rank_fuller(context: CheckContext) -> CheckResult:
    """One rank's peak is 10 % above the others' median."""
    for metric in ("mem_peak_allocated_bytes", "mem_allocated_bytes", "mem_used_bytes"):
        levels = {
            t.rank: float(t.values.max()) for t in context.tracks(metric) if t.rank is not None
        }
        if len(levels) < 2:
            continue
        usual = float(sorted(levels.values())[len(levels) // 2])
        rank, top = max(levels.items(), key=lambda item: item[1])
        evidence = seen("ratio", top / max(usual, 1.0), "", "<= 1.1")
        return yes_or_no("one_rank_fuller", top > 1.1 * usual, seen("rank", float(rank)), evidence)
    return missing("one_rank_fuller", "per_rank_memory")


def _messages(context: CheckContext) -> list[dict[str, object]]:
    rows = rows_of(context.events("oom"))
    return [{**row, "facts": detail(row)} for row in rows]


def oom_fragmented(context: CheckContext) -> CheckResult:
    """The request would have fitted into memory that was reserved but unallocated."""
    for row in _messages(context):
        facts = _facts(row)
        wanted = facts.get("requested_bytes")
        idle = facts.get("reserved_unallocated_bytes") or _gap(facts)
        if wanted and idle is not None:
            evidence = seen("idle_reserved", idle, "B", f"< {wanted / _GIB:.2f} GiB")
            line = event_evidence("log_line", row)
            return yes_or_no("oom_fragmented", idle > wanted, evidence, line)
    return missing("oom_fragmented", "oom_message")


def _facts(row: dict[str, object]) -> dict[str, float]:
    facts = row["facts"]
    assert isinstance(facts, dict)
    return {k: float(v) for k, v in facts.items() if isinstance(v, int | float)}


def _gap(facts: dict[str, float]) -> float | None:
    """Reserved minus allocated, in messages that print both."""
    kept, held = facts.get("reserved_bytes"), facts.get("allocated_bytes")
    return kept - held if kept is not None and held is not None else None


def oom_full(context: CheckContext) -> CheckResult:
    """Tensors fill nine tenths of the device, or with the request more than all of it.

    In the second case no tidying up would have helped: the sum does not fit.
    """
    for row in _messages(context):
        facts = _facts(row)
        total = facts.get("total_bytes") or facts.get("total_bytes2")
        held = facts.get("allocated_bytes")
        if total and held:
            both = (held + facts.get("requested_bytes", 0.0)) / total
            evidence = (
                seen("allocated_share", held / total, "share", "> 0.9"),
                seen("asked_share", both, "share", "> 1"),
            )
            return yes_or_no("oom_full", held / total > 0.9 or both > 1.0, *evidence)
    return missing("oom_full", "oom_message")


def other_process(context: CheckContext) -> CheckResult:
    """Another process holds a gibibyte or more of the same GPU."""
    for row in _messages(context):
        held = _facts(row).get("other_process_bytes")
        if held:
            line = event_evidence("log_line", row)
            return yes_or_no("other_process", held > _GIB, seen("other_process_bytes", held, "B"),
                             line)  # fmt: skip
    found = context.run.events.filter(pl.col("text").str.contains("Process .{1,20} has .{1,20} "
                                                                  "memory in use"))  # fmt: skip
    if len(found):
        return yes_or_no("other_process", True, event_evidence("log_line", rows_of(found, 1)[0]))
    rest = [r for row in _messages(context) if (r := _of_others(_facts(row))) is not None]
    if rest:
        evidence = seen("other_process_bytes", max(rest), "B", "< 1 GiB")
        return yes_or_no("other_process", max(rest) > _GIB, evidence)
    return missing("other_process", "oom_message")


def _of_others(facts: dict[str, float]) -> float | None:
    """Bytes in use on the device that are not this process's, by the message's own numbers."""
    total = facts.get("total_bytes") or facts.get("total_bytes2")
    free, own = facts.get("free_bytes"), facts.get("process_bytes")
    if total is None or free is None or own is None:
        return None
    return max(0.0, total - free - own)


def vocabulary_sized(context: CheckContext) -> CheckResult:
    """The request is a large part of the device at once, as logits over the vocabulary are."""
    for row in _messages(context):
        facts = _facts(row)
        total = facts.get("total_bytes") or facts.get("total_bytes2")
        wanted = facts.get("requested_bytes")
        if wanted and total:
            part = wanted / total
            evidence = seen("requested_share", part, "share", "> 0.1")
            return yes_or_no("vocabulary_sized", part > 0.1, evidence)
    return missing("vocabulary_sized", "oom_message")


def oom_at_start(context: CheckContext) -> CheckResult:
    """It ran out before or within the first three steps."""
    track = context.track("step_time_s") or context.track("loss")
    steps = context.events("oom")["step"].drop_nulls()
    if track is None or not len(track):
        return yes_or_no("oom_at_start", True, seen("steps_before", 0, "step", "<= 3"))
    at = int(steps[0]) if len(steps) else int(track.steps[-1])  # without a step it ended the run
    done = at - int(track.steps[0])
    return yes_or_no("oom_at_start", done <= 3, seen("steps_before", done, "step", "<= 3"))


def oom_in_evaluation(context: CheckContext) -> CheckResult:
    """The stack or the last lines before it are an evaluation's."""
    words = "evaluation_loop|nested_concat|prediction_step|evaluate|validate"
    return _in_phase(context, "oom_in_evaluation", words, "evaluation", "val_loss")


def oom_in_save(context: CheckContext) -> CheckResult:
    """The stack or the last lines before it are a save's."""
    words = "save_checkpoint|state_dict|full_tensor|_gather|save_model|get_model_state"
    return _in_phase(context, "oom_in_save", words, "checkpoint_save_begin", "")


def oom_in_load(context: CheckContext) -> CheckResult:
    """It ran out while a checkpoint was being loaded."""
    words = "load_checkpoint|load_state_dict|torch.load|_load_from|from_pretrained"
    return _in_phase(context, "oom_in_load", words, "checkpoint_load", "")


def _in_phase(context: CheckContext, check: str, words: str, kind: str, metric: str) -> CheckResult:
    """By words of the traceback (in the events' details), else by the event right before."""
    rows = rows_of(context.events("oom", "exception"))
    for row in rows:
        if pl.Series([f"{row['text']} {row['detail']}"]).str.contains(words)[0]:
            return yes_or_no(check, True, event_evidence("log_line", row))
    if not rows:
        return missing(check, "oom_message")
    place = min((row["offset"] for row in rows if row["kind"] == "oom"), default=None)
    before = context.events(kind).filter(pl.col("offset") < (place or 0))
    if len(before):
        row = before.row(-1, named=True)
        rows_between = context.run.readings.filter(
            (pl.col("offset") > row["offset"])
            & (pl.col("offset") < (place or 0))
            & (pl.col("source") == row["source"])
        )
        if not len(rows_between):
            return yes_or_no(check, True, event_evidence("log_line", row))
    near = context.track(metric) if metric else None
    if near is not None and context.first is not None:
        away = int(context.first) - int(near.steps[-1])
        if 0 <= away <= context.run.meta.log_interval:
            return yes_or_no(check, True, seen("last_validation", int(near.steps[-1]), "step"))
    return yes_or_no(check, False)


def saves_before_kill(context: CheckContext) -> CheckResult:
    """A save had just begun when the process was killed."""
    kills = context.events("killed", "signal", "host_oom")
    saves = context.events("checkpoint_save_begin")
    if not len(kills) or not len(saves):
        return yes_or_no("saves_before_kill", False)
    kill, save = kills.row(0, named=True), saves.row(-1, named=True)
    same = kill["source"] == save["source"]
    close = same and 0 <= kill["line"] - save["line"] <= 200
    if kill["step"] is not None and save["step"] is not None:  # steps went by: the save was over
        close = close and kill["step"] - save["step"] <= 2 * context.run.meta.log_interval
    if kill["wall_s"] is not None and save["wall_s"] is not None:
        close = 0 <= kill["wall_s"] - save["wall_s"] <= 60
    return yes_or_no("saves_before_kill", close, event_evidence("log_line", save))


MEMORY: dict[str, Check] = {
    check.__name__: check
    for check in (
        memory_was_rising, tensors_leaked, reserved_runs_away, retries_rise, one_rank_fuller,
        oom_fragmented, oom_full,
        other_process, vocabulary_sized, oom_at_start, oom_in_evaluation, oom_in_save,
        oom_in_load, saves_before_kill,
    )
}  # fmt: skip
