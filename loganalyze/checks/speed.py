"""Checks on where the time of a step goes, and on the GPUs' clocks, power and heat."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np

from loganalyze.checks.base import (
    Check,
    CheckContext,
    Floats,
    at_step,
    median,
    missing,
    number,
    seen,
    yes_or_no,
)
from loganalyze.model import CheckResult


def moved(check: str, metric: str, *, up: bool, ratio: str) -> Check:
    """A check that a metric's median during the incident left the one before by a ratio."""

    def run(context: CheckContext) -> CheckResult:
        before, during = context.before(metric), context.during(metric)
        if not len(before) or not len(during):
            return missing(check, metric)
        change = median(during) / median(before) if median(before) else 1.0
        limit = context.value(ratio)
        answer = change >= limit if up else change <= 1 / limit
        wanted = f">= {limit:g}" if up else f"<= {1 / limit:.3g}"
        place = at_step(context, metric, context.first, metric)
        return yes_or_no(check, answer, seen("change_ratio", change, "", wanted), place)

    run.__doc__ = f"{metric} {'rose' if up else 'fell'} at the incident."
    return run


def share(check: str, metric: str) -> Check:
    """A check that one part takes more of the step than the threshold of the same name."""

    def run(context: CheckContext) -> CheckResult:
        part, whole = context.during(metric), context.during("step_time_s")
        if not len(part) or not len(whole):
            return missing(check, metric)
        of_step = median(part) / max(median(whole), 1e-12)
        limit = context.value(check)
        evidence = seen("share_of_step", of_step, "share", f"> {limit:g}")
        return yes_or_no(check, of_step > limit, evidence)

    run.__doc__ = f"{metric} is a large share of the step."
    return run


def near_checkpoints(context: CheckContext) -> CheckResult:
    """The slow steps stand right behind checkpoint saves."""
    told = context.finding.statistics.get("at_save_share")
    if isinstance(told, int | float) and told > 0:
        evidence = seen("share_near_saves", float(told), "share", "> 0.5")
        return yes_or_no("near_checkpoints", told > 0.5, evidence)
    saves = context.events("checkpoint_save_begin", "checkpoint_save_end")["step"].drop_nulls()
    track = context.track("step_time_s")
    if not len(saves) or track is None or len(track) < 5:
        return missing("near_checkpoints", "checkpoint_lines" if not len(saves) else "step_time_s")
    slow = track.steps[track.values > 1.3 * np.nanmedian(track.values)]
    places = np.unique(saves.to_numpy())
    if not len(slow):
        return yes_or_no("near_checkpoints", False)
    behind = np.searchsorted(places, slow, side="right") - 1
    away = np.where(behind >= 0, slow - places[np.maximum(behind, 0)], np.iinfo(np.int64).max)
    part = float(np.mean(away <= 2 * track.interval))
    return yes_or_no(
        "near_checkpoints", part > 0.5, seen("share_near_saves", part, "share", "> 0.5")
    )


def near_evaluations(context: CheckContext) -> CheckResult:
    """The slow steps stand at evaluations."""
    told = context.finding.statistics.get("at_evaluation_share")
    if not isinstance(told, int | float):
        return missing("near_evaluations", "evaluation_lines")
    evidence = seen("share_near_evaluations", float(told), "share", "> 0.5")
    return yes_or_no("near_evaluations", told > 0.5, evidence)


def _period(context: CheckContext) -> float | None:
    told = [f.statistics.get("period_steps") for f in context.of_kind("throughput_stall")]
    return next((float(p) for p in told if isinstance(p, int | float) and p > 0), None)


def period_is(check: str, *names: str) -> Check:
    """A check that the period of the slow steps is a multiple (1 to 4) of a setting."""

    def run(context: CheckContext) -> CheckResult:
        period, told = _period(context), number(context.config(*names))
        if period is None or not told:
            return missing(check, "stall_period" if period is None else f"setting_{names[0]}")
        times = period / told
        near = times < 5 and 1 <= round(times) <= 4 and abs(times - round(times)) < 0.05
        return yes_or_no(check, near, seen("stall_period", period, "step", f"{told:g}"))

    run.__doc__ = f"The slow steps come every {names[0]} steps."
    return run


def short_pauses(context: CheckContext) -> CheckResult:
    """The pauses last between 0.2 and 3 seconds, as collecting garbage does."""
    told = [f.statistics.get("stall_time") for f in context.of_kind("throughput_stall")]
    times = [float(t) for t in told if isinstance(t, int | float)]
    if not times:
        return missing("short_pauses", "stall_period")
    return yes_or_no("short_pauses", 0.2 <= times[0] <= 3, seen("pause", times[0], "s", "0.2-3"))


def longer_sequences(context: CheckContext) -> CheckResult:
    """The sequences (or the tokens of a step) grew with the step time."""
    for metric in ("seq_len", "response_length"):
        before, during = context.before(metric), context.during(metric)
        if len(before) and len(during):
            ratio = median(during) / max(median(before), 1e-12)
            evidence = seen("change_ratio", ratio, "", "> 1.2")
            return yes_or_no("longer_sequences", ratio > 1.2, evidence)
    return missing("longer_sequences", "seq_len")


def time_follows_length(context: CheckContext) -> CheckResult:
    """The step time follows the length of sequences or answers (correlation above 0.8)."""
    frame = context.run.readings
    for metric in ("seq_len", "response_length"):
        if metric not in frame.columns or "step_time_s" not in frame.columns:
            continue
        pairs = frame.select(metric, "step_time_s").drop_nulls().to_numpy()
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        if len(pairs) < 20 or np.std(pairs[:, 0]) == 0 or np.std(pairs[:, 1]) == 0:
            continue
        link = float(np.corrcoef(pairs[:, 0], pairs[:, 1])[0, 1])
        return yes_or_no("time_follows_length", link > 0.8, seen("correlation", link, "", "> 0.8"))
    return missing("time_follows_length", "seq_len")


def batch_grew(context: CheckContext) -> CheckResult:
    """The global batch grew at the same time: more work a step, not slower work."""
    before, during = context.before("global_batch_size"), context.during("global_batch_size")
    if not len(before) or not len(during):
        return missing("batch_grew", "global_batch_size")
    ratio = median(during) / max(median(before), 1e-12)
    return yes_or_no("batch_grew", ratio > 1.02, seen("change_ratio", ratio, "", "> 1.02"))


def abrupt_and_lasting(context: CheckContext) -> CheckResult:
    """The time per step shifted by 3 % or more within a few lines and stayed."""
    before, during = context.before("step_time_s"), context.during("step_time_s")
    if len(before) < 2 or len(during) < 2:
        return missing("abrupt_and_lasting", "step_time_s")
    ratio = median(during) / max(median(before), 1e-12)
    calm = float(np.percentile(during, 75)) < 1.2 * median(during)
    evidence = seen("change_ratio", ratio, "", ">= 1.03")
    return yes_or_no("abrupt_and_lasting", ratio >= 1.03 and calm, evidence)


def slow_from_start(context: CheckContext) -> CheckResult:
    """It was so from the first steps on: a matter of set-up, not a fault."""
    track = context.track("step_time_s")
    if track is None or context.first is None:
        return missing("slow_from_start", "step_time_s")
    start = int(track.steps[min(5, len(track) - 1)])
    return yes_or_no("slow_from_start", context.first <= start, seen("first_step", start, "step"))


def _by_rank(context: CheckContext, metric: str) -> dict[int, float]:
    """Median of a metric for each rank that has one."""
    return {
        t.rank: float(np.nanmedian(t.values))
        for t in context.tracks(metric)
        if t.rank is not None and np.isfinite(t.values).any()
    }


def one_gpu_slower(context: CheckContext) -> CheckResult:
    """One GPU's clock or power lies 5 % (clock) or 30 % (power) below its neighbours'."""
    for metric, limit in (("gpu_sm_clock_hz", 0.95), ("gpu_power_w", 0.7)):
        levels = _by_rank(context, metric)
        if len(levels) < 2:
            continue
        usual = float(np.median(list(levels.values())))
        rank, low = min(levels.items(), key=lambda item: item[1])
        evidence = seen("share_of_neighbours", low / max(usual, 1e-9), "", f">= {limit}")
        return yes_or_no("one_gpu_slower", low < limit * usual, seen("rank", float(rank)), evidence)
    return missing("one_gpu_slower", "gpu_sm_clock_hz")


def expert_load(context: CheckContext) -> CheckResult:
    """The load of the fullest expert (or the balancing loss) rose at the incident."""
    columns = context.run.readings.columns
    loads = [name for name in columns if re.search(r"(moe|expert|router)\w*(max|load|imbal)", name)]
    balance = [name for name in columns if re.search(r"aux_loss/.*(load|balanc)", name)]
    for names, limit in ((loads, 1.3), (balance, 1.1)):
        for name in names:
            before, during = context.before(name, 100_000), context.during(name)
            if len(before) < 5 or not len(during):
                continue
            size = max(len(before) // 20, 5)
            blocks = [median(before[i : i + size]) for i in range(0, len(before), size)]
            ratio = max(median(during), blocks[-1]) / max(min(blocks), 1e-12)
            evidence = seen("change_ratio", ratio, "", f"< {limit:g}")
            place = at_step(context, name, context.first, "expert_load_value")
            return yes_or_no("expert_load", ratio > limit, evidence, place)
    return missing("expert_load", "tokens_per_expert")


def load_rises_late(context: CheckContext) -> CheckResult:
    """The experts had been in balance before: it is no matter of the start (TREES, T-27)."""
    own = context.of_kind("expert_imbalance")
    track = context.track(str(own[0].metric)) if own else None
    if track is None or own[0].step_first is None:
        return missing("load_rises_late", "tokens_per_expert")
    start = int(track.steps[0])
    share = (own[0].step_first - start) / max(int(track.steps[-1]) - start, 1)
    evidence = seen("share_of_run", share, "share", "> 0.1")
    return yes_or_no("load_rises_late", share > 0.1, evidence)


def one_gpu_hotter(context: CheckContext) -> CheckResult:
    """One GPU is 8 °C or more above the median of its neighbours."""
    levels = _by_rank(context, "gpu_temp_c")
    if len(levels) < 2:
        return missing("one_gpu_hotter", "temperature_of_neighbours")
    rank, top = max(levels.items(), key=lambda item: item[1])
    others = [level for other, level in levels.items() if other != rank]
    excess = top - float(np.median(others))
    evidence = (seen("rank", float(rank)), seen("degrees_above", excess, "°C", "< 8"))
    return yes_or_no("one_gpu_hotter", excess >= 8, *evidence)


def hot(context: CheckContext) -> CheckResult:
    """A GPU reached 83 °C or more."""
    values = context.all_of("gpu_temp_c")
    if not len(values):
        return missing("hot", "gpu_temp_c")
    top = float(values.max())
    return yes_or_no("hot", top >= 83, at_step(context, "gpu_temp_c", context.first, "gpu_temp_c"),
                     seen("highest_temperature", top, "°C", "< 83"))  # fmt: skip


def busy_without_power(context: CheckContext) -> CheckResult:
    """The GPUs look busy (95 % or more) at under half of their power: they wait in a collective."""
    use, power = context.during("gpu_util"), context.during("gpu_power_w")
    usual = context.all_of("gpu_power_w")
    if not len(use) or not len(power):
        return missing("busy_without_power", "gpu_power_w")
    part = median(power) / max(float(np.percentile(usual, 90)), 1e-9)
    answer = median(use) >= 0.95 and part < 0.5
    return yes_or_no("busy_without_power", answer, seen("share_of_power", part, "share", "< 0.5"))


def idle_gpu(context: CheckContext) -> CheckResult:
    """GPU utilisation is below 60 % while it lasts."""
    values = context.during("gpu_util")
    if not len(values):
        return missing("idle_gpu", "gpu_util")
    level = median(values)
    return yes_or_no("idle_gpu", level < 0.6, seen("gpu_util", level, "share", ">= 0.6"))


def mfu_impossible(context: CheckContext) -> CheckResult:
    """MFU is above 75 %: more likely a wrong formula or peak than a fast job."""
    values = context.all_of("mfu")
    if not len(values):
        return missing("mfu_impossible", "mfu")
    level = median(values)
    return yes_or_no("mfu_impossible", level > 0.75, seen("mfu", level, "share", "<= 0.75"))


def waits_least(context: CheckContext) -> CheckResult:
    """One rank waits least in the collectives: the others wait for it."""
    told = [f.statistics.get("waits_least") for f in context.of_kind("straggler_rank")]
    known = [t for t in told if t is not None]
    if not known:
        return missing("waits_least", "per_rank_compute")
    return yes_or_no("waits_least", bool(known[0]), seen("waits_least", _number(known[0])))


def _number(value: object) -> float | str | None:
    return value if isinstance(value, int | float | str) else None


def creeps_slower(context: CheckContext) -> CheckResult:
    """The time per step rises steadily, not in one step."""
    values: Floats = context.during("step_time_s")
    if len(values) < 50:
        return missing("creeps_slower", "step_time_s")
    tenth = len(values) // 10
    blocks = [median(values[i * tenth : (i + 1) * tenth]) for i in range(10)]
    rises = sum(b > a for a, b in pairwise(blocks))
    total = blocks[-1] / max(blocks[0], 1e-12)
    steady = rises >= 6 and total > 1.03 and math.isfinite(total)
    return yes_or_no("creeps_slower", steady, seen("blocks_rising", rises, "", ">= 6 of 9"))


SPEED: dict[str, Check] = {
    **{
        check.__name__: check
        for check in (
            near_checkpoints, near_evaluations, short_pauses, longer_sequences,
            time_follows_length, batch_grew, abrupt_and_lasting, slow_from_start, one_gpu_slower,
            expert_load, load_rises_late, one_gpu_hotter, hot, busy_without_power,
            idle_gpu, mfu_impossible, waits_least,
            creeps_slower,
        )
    },
    "data_share": share("data_share", "data_time_s"),
    "comm_share": share("comm_share", "comm_time_s"),
    "data_time_rose": moved("data_time_rose", "data_time_s", up=True, ratio="time_rise"),
    "comm_time_rose": moved("comm_time_rose", "comm_time_s", up=True, ratio="time_rise"),
    "clock_fell": moved("clock_fell", "gpu_sm_clock_hz", up=False, ratio="clock_fall"),
    "power_fell": moved("power_fell", "gpu_power_w", up=False, ratio="power_fall"),
    "period_is_workers": period_is("period_is_workers", "num_workers", "dataloader_num_workers"),
    "period_is_logging": period_is("period_is_logging", "log_interval", "logging_steps"),
}  # fmt: skip
