"""DeepSpeed's engine: progress, throughput and timer lines.

    [2031-04-02 10:11:12,345] [INFO] [logging.py:1:log_dist] [Rank 0] step=40, skipped=3,
        lr=[1.2e-05, 1.2e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
    epoch=0/micro_step=160/global_step=40, RunningAvgSamplesPerSec=31.5,
        CurrSamplesPerSec=30.9, MemAllocated=1.9GB, MaxMemAllocated=7.4GB
    steps: 40 loss: 2.3456 iter time (s): 1.234 samples/sec: 51.8
    rank=0 time (ms) | forward: 164.8 | backward: 352.1 | backward_allreduce: 110.0 | step: 12.3

What the fields mean (deepspeed/runtime/engine.py, utils/timer.py, runtime/pipe/engine.py):
`skipped` counts since the start, so its difference is the metric; CurrSamplesPerSec is the whole
job's rate over the last step, RunningAvgSamplesPerSec its mean since step 3 (kept as raw);
memory is that of rank 0's device; timers are milliseconds of one rank.
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import GIB, Engine, State, parsed, rank_of, reading, wall_of
from loganalyze_parsers.numbers import NUMBER, number

_PROGRESS = lazy.pattern(
    r"\bstep=(\d{1,15}), skipped=(\d{1,15}), lr=\[([^\]]{0,4000})\], mom=\[[\[(]?"
    rf"({NUMBER})?(?:, ({NUMBER}))?"
)
_THROUGHPUT = lazy.pattern(
    r"(?:epoch=(?P<epoch>\d{1,15})/micro_step=(?P<micro>\d{1,15})/global_step=(?P<step>\d{1,15})"
    r"|\b(?P<old_epoch>\d{1,15})/(?P<count>\d{1,15})), "
    r"(?P<fields>(?:(?:RunningAvg|Curr)?SamplesPerSec=|vm %: )[^\[\]{}]*)"
)
_FIELD = lazy.pattern(rf"(\w{{1,120}})=({NUMBER})(GB)?")
_HOST = lazy.pattern(rf"vm %: ({NUMBER}), swap %: ({NUMBER})")
_PIPE = lazy.pattern(
    rf"\bsteps?: {{1,9}}(\d{{1,15}})(?: / {{1,9}}\d{{1,15}})? loss: ({NUMBER})"
    rf"(?P<more>.{{0,400}}?) iter time \(s\): ({NUMBER})"
    rf" samples/sec: ({NUMBER})"
)
_NAMED = lazy.pattern(rf"([A-Za-z]\w{{0,120}})(?: loss)?: ({NUMBER})")
_TIMER = lazy.pattern(rf"(?<![\w-])([A-Za-z0-9][\w-]*): ({NUMBER})")
_TIMERS = lazy.pattern(r"time \(ms\) \| (.*)")

_MEMORY = {"MemAllocated": "mem_allocated_bytes", "MaxMemAllocated": "mem_peak_allocated_bytes"}
#: Timer names of both eras (long before 0.10, short since) that have a canonical metric.
_CANONICAL_TIMERS = {
    "forward": "forward_time_s", "fwd": "forward_time_s",
    "backward": "backward_time_s", "bwd": "backward_time_s",
    "step": "optimizer_time_s",
    "backward_allreduce": "comm_time_s", "bwd_allreduce": "comm_time_s",
    "batch_input": "data_time_s", "train_batch": "step_time_s",
}  # fmt: skip
_TIMER_WORDS = (
    "forward", "backward", "fwd", "bwd", "step", "optimizer_", "pipe_", "batch_input",
    "train_batch", "comms", "eval_batch", "zero_", "compute_norm", "overflow_check",
    "unscale_and_clip", "basic_step", "update_fp16",
)  # fmt: skip
#: Two progress lines of one step within this time are two engines (actor and critic).
_TWO_ENGINES_S = 60.0
_NEAR_START = 200


#: Measured only where the engine's own batch loop runs; elsewhere it prints a zero.
_ZERO_IS_MISSING = "train_batch"


def take_progress(line: Line, state: State) -> Taken | None:
    """Engine progress lines; several may be glued together."""
    matches = list(_PROGRESS.finditer(line.text))
    if not matches:
        return None
    if state.beside_megatron:
        return Taken(ignored="deepspeed progress beside Megatron's own line")
    return Taken(readings=[_progress(line, match, state) for match in matches])


def _progress(line: Line, match: re.Match[str], state: State) -> Reading:
    step, skipped = int(match[1]), int(match[2])
    rates = [value for part in match[3].split(",") if (value := number(part)) is not None]
    wall_s = wall_of(line, match.start())
    key = rank_of(line, line.text[: match.start()])
    number_of_engine = _engine(state, -1 if key is None else key, step, wall_s)
    suffix = f"_engine{number_of_engine}" if number_of_engine else ""
    values: dict[str, float] = {f"raw/skipped{suffix}": float(skipped)}
    for group, rate in enumerate(rates):
        if group == 0:
            values[f"raw/lr{suffix}" if suffix else "lr"] = rate
        elif rate != rates[0]:
            values[f"raw/lr_group{group}{suffix}"] = rate
    for name, group_text in (("mom_beta1", match[4]), ("mom_beta2", match[5])):
        value = number(group_text or "")
        if value is not None:
            values[f"raw/{name}{suffix}"] = value
    engines = state.engines[-1 if key is None else key]
    new = _newly_skipped(engines[number_of_engine], step, skipped)
    if new is not None:
        values[f"raw/skipped_steps{suffix}" if suffix else "skipped_steps"] = float(new)
    engines[number_of_engine] = Engine(step, skipped, wall_s)
    state.step, state.lines_since_step = step, 0
    return reading(line, step, values, match.start())


def _engine(state: State, key: int, step: int, wall_s: float | None) -> int:
    """Which engine of the rank speaks: 0, or the next one where the step repeats at once."""
    engines = state.engines.setdefault(key, [Engine(-1, 0, None)])
    for index, engine in enumerate(engines):
        late = wall_s is not None and engine.wall_s is not None and (
            wall_s - engine.wall_s > _TWO_ENGINES_S
        )  # fmt: skip
        if engine.step != step or late:
            return index
    engines.append(Engine(-1, 0, None))
    return len(engines) - 1


def _newly_skipped(before: Engine, step: int, skipped: int) -> int | None:
    """Steps skipped since the engine's last line; None where that line is of another run."""
    if before.step < 0:
        return first_skipped(step, skipped)
    if step < before.step or skipped < before.skipped:
        return None
    return skipped - before.skipped


def first_skipped(step: int, skipped: int) -> int | None:
    """Steps skipped before an engine's first line, counted from the start of the run.

    None unless the line stands near the start: a resumed engine brings its count along.
    """
    return skipped if step <= _NEAR_START and skipped <= step else None


def take_throughput(line: Line, state: State) -> Taken | None:
    """ThroughputTimer of every generation."""
    made = [_throughput(line, match, state) for match in _THROUGHPUT.finditer(line.text)]
    return Taken(readings=made) if made else None


def _throughput(line: Line, match: re.Match[str], state: State) -> Reading:
    values: dict[str, float] = {}
    for name, raw, unit in _FIELD.findall(match["fields"]):
        value = number(raw)
        if value is None:
            continue
        if unit:
            values[_MEMORY.get(name, f"raw/{name}_bytes")] = value * GIB
        elif name == "CurrSamplesPerSec" and not (state.chat or state.beside_megatron):
            values["samples_per_s"] = value
        else:
            values[f"raw/{name}"] = value
    host = _HOST.search(match["fields"])
    if host:
        values["host_mem_share"] = parsed(host[1]) / 100.0
        values["raw/swap_share"] = parsed(host[2]) / 100.0
    if match["step"] is not None:
        step: int | None = int(match["step"])
        values["raw/micro_step"] = parsed(match["micro"])
        values["raw/epoch_count"] = parsed(match["epoch"])
        state.step = step
    else:  # counts micro steps of the epoch; the step printed just before is the better axis
        step = int(match["count"]) if state.step is None else state.step
        values["raw/step_count"] = parsed(match["count"])
        values["raw/epoch_count"] = parsed(match["old_epoch"])
    return reading(line, step, values, match.start())


def take_pipeline(line: Line, state: State) -> Taken | None:
    """PipelineEngine's line: loss is the mean over micro batches and data-parallel ranks."""
    match = _PIPE.search(line.text)
    if match is None:
        return None
    state.step, state.timed_elsewhere = int(match[1]), True
    if state.beside_megatron:
        return Taken(ignored="deepspeed progress beside Megatron's own line")
    values = {"loss": parsed(match[2])}
    for name, raw in _NAMED.findall(match["more"]):
        values[f"aux_loss/{name}"] = parsed(raw)
    values["step_time_s"] = parsed(match[4])
    values["samples_per_s"] = parsed(match[5])
    return Taken(readings=[reading(line, state.step, values)])


def take_timers(line: Line, state: State) -> Taken | None:
    """wall_clock_breakdown; a line of another maker's timers is not taken."""
    match = _TIMERS.search(line.text)
    pairs = _TIMER.findall(match[1]) if match else []
    foreign = any("-" in name for name, _ in pairs)  # Megatron's and NeoX's timers
    if foreign or not any(name.startswith(_TIMER_WORDS) for name, _ in pairs):
        return None
    micro = any(name.endswith("_microstep") for name, _ in pairs)
    values: dict[str, float] = {}
    for name, raw in pairs:
        seconds = parsed(raw) / 1000.0
        metric = _CANONICAL_TIMERS.get(name, f"raw/{name}_s")
        unmeasured = seconds == 0.0 and name == _ZERO_IS_MISSING
        values[f"raw/{name}_s" if unmeasured else metric] = seconds
    parts = [values.get(f"{part}_time_s") for part in ("forward", "backward", "optimizer")]
    whole = [part for part in parts if part is not None]
    if len(whole) == 3 and not state.timed_elsewhere:
        values.setdefault("step_time_s", sum(whole))
    step = None if micro else _timer_step(state, ends_step=len(whole) == 3)
    return Taken(readings=[reading(line, step, values)])


def _timer_step(state: State, *, ends_step: bool) -> int | None:
    """Step of a timer line: that of the progress line before it, then one more each step."""
    if state.step is None:
        return None
    step = state.step + state.lines_since_step
    state.lines_since_step += ends_step
    return step
