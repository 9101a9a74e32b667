"""Curves of a symptom's kind, with a record's own trace where it has one; quiet numbers before."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

_BEFORE, _AFTER = 120, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One logged step. marked: the symptom is there."""

    step: int
    loss: float
    grad_norm: float | None
    lr: float = 1e-4
    scale: float | None = None
    step_time: float = 2.0
    marked: bool = False
    more: Mapping[str, float] = field(default_factory=dict)


def rows_of_record(record: Mapping[str, Any]) -> list[Row]:
    """The rows of a record's log; some symptoms (crashes at the start) have few."""
    trace = {k: v for k, v in record.get("trace", {}).items() if isinstance(v, list)}
    numbers = [v for v in record.get("trace", {}).items() if not isinstance(v[1], list)]
    if _is_curve(trace):
        return _traced(record, trace)
    return _shaped(record, dict(numbers))


def _is_curve(trace: Mapping[str, Any]) -> bool:
    keys = {"loss", "grad_norm", "loss_scale", "step_time_s"} & set(trace)
    return bool(keys) and all(not isinstance(v, str) for v in trace.get("loss", [0])[:1])


def _quiet(count: int, first: int, level: float, norm: float | None, seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        Row(
            step=first + n,
            loss=float(level + 0.01 * level * rng.standard_normal()),
            grad_norm=None if norm is None else float(norm * np.exp(0.1 * rng.standard_normal())),
            step_time=float(2.0 + 0.01 * rng.standard_normal()),
        )
        for n in range(count)
    ]


def _numbers(values: list[Any]) -> list[float]:
    return [float(v) for v in values]


def _traced(record: Mapping[str, Any], trace: Mapping[str, list[Any]]) -> list[Row]:
    """Quiet rows on the trace's first level, then the trace, then its end held."""
    length = max(len(v) for v in trace.values())
    steps = [int(s) for s in trace.get("step", range(1, length + 1))][:length]
    gap = steps[1] - steps[0] if len(steps) > 1 else 1
    losses = _numbers(trace.get("loss", [3.0] * length))
    norms = _numbers(trace["grad_norm"]) if "grad_norm" in trace else [0.5] * length
    scales = _numbers(trace["loss_scale"]) if "loss_scale" in trace else None
    times = _numbers(trace["step_time_s"]) if "step_time_s" in trace else [2.0] * length
    before = _before(steps[0], gap, losses[0], norms[0], times[0])
    rows = [
        replace(row, scale=scales[0] if scales else None)
        for row in (before if steps[0] > 5 else [])
    ]
    for n in range(length):
        rows.append(
            Row(
                step=steps[n],
                loss=losses[min(n, len(losses) - 1)],
                grad_norm=norms[min(n, len(norms) - 1)],
                scale=scales[min(n, len(scales) - 1)] if scales else None,
                step_time=times[min(n, len(times) - 1)],
                marked=n > 0,
            )
        )
    return rows + _after(record, rows, gap)


def _before(step: int, gap: int, loss: float, norm: float, time: float) -> list[Row]:
    count = min(_BEFORE, max((step - 1) // gap, 0))
    sound = loss if math.isfinite(loss) and loss > 0 else 3.0
    quiet = _quiet(count, 0, sound, norm if math.isfinite(norm) else 1.0, 1)
    return [
        replace(row, step=step - gap * (count - n), step_time=row.step_time * time / 2.0,
                grad_norm=0.0 if norm == 0 else row.grad_norm)
        for n, row in enumerate(quiet)
    ]  # fmt: skip


def _after(record: Mapping[str, Any], rows: list[Row], gap: int) -> list[Row]:
    """A spike that healed comes back; everything else stays where it is."""
    last = rows[-1]
    words = f"{record['symptom_signature']} {record['time_relation']} {record['fix']}"
    healed = record["kind"] in ("loss_spike", "grad_spike") and re.search(
        r"recover|back near|unaffected|Continue|Patience", words
    )
    ended = record["kind"] in ("loss_scale_collapse", "hang", "crash")
    made = []
    for n in range(0 if ended else _AFTER):
        loss, norm = last.loss, last.grad_norm
        if healed:
            fade = math.exp(-n / 8)
            loss = rows[0].loss + (last.loss - rows[0].loss) * fade
            norm = rows[0].grad_norm
        still = len({row.loss for row in rows}) == 1  # a constant is the symptom itself
        wobble = 1.0 if still else 1 + 0.005 * math.sin(1.7 * n)
        made.append(replace(last, step=last.step + gap * (n + 1), loss=loss * wobble,
                            grad_norm=norm, marked=False))  # fmt: skip
    return made


def _onset(record: Mapping[str, Any]) -> int:
    """Step at which the symptom begins, as the record's words tell."""
    words = record["time_relation"]
    told = re.search(r"^step (\d+)|at step (\d+)|exactly at step (\d+)", words)
    if told:
        return max(1, int(next(group for group in told.groups() if group)))
    if re.search(r"from step [01]|step 1\b|from the beginning|from the start|throughout", words):
        return 1
    if re.search(r"tens of steps|after about 34", words):
        return 34
    return _BEFORE


def _shaped(record: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[Row]:
    kind, onset = record["kind"], _onset(record)
    if kind in ("crash", "ckpt_corrupt", "gpu_oom", "host_oom", "hang", "net_error", "hardware"):
        return _quiet(0 if onset == 1 or _in_start_up(record) else _BEFORE, 1, 3.0, 0.5, 2)
    quiet = _quiet(onset - 1, 1, 3.0, 0.5, 3)
    shape = _SHAPES.get(kind, _flat)
    return quiet + [replace(row, marked=True) for row in shape(record, numbers, onset, _AFTER + 40)]


def _in_start_up(record: Mapping[str, Any]) -> bool:
    return bool(re.search(r"start-up|at load|at start$|first batch", record["time_relation"]))


def _flat(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    if "grad_norm inf" in record["symptom_signature"]:
        return [replace(r, grad_norm=math.inf) for r in _quiet(n, first, 7.4, 0.5, 4)]
    return _quiet(n, first, float(numbers.get("loss0_bad", 3.0)), 0.5, 4)


def _rising(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    slow = "creep" in record["symptom_signature"]
    rows = _quiet(4 * n if slow else n, first, 3.0, 0.5, 5)
    rate = 0.004 if slow else 0.05
    scaler = "loss scale" in record["symptom_signature"]
    made = []
    for i, r in enumerate(rows):
        rise = rate * max(i - 30, 0) if scaler else rate * i  # the scale falls 30 steps before
        made.append(
            replace(
                r,
                loss=min(r.loss + rise, 9.0),
                lr=1e-4 * (0.995**i if slow else 1),
                scale=max(65536.0 / 2 ** min(i, 12), 16.0) if scaler else None,
            )
        )
    return made


def _spike(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    rows = _quiet(n, first, 3.0, 0.5, 6)
    return [replace(r, loss=r.loss + 4 * math.exp(-i / 6)) for i, r in enumerate(rows)]


def _broken(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    return [replace(r, loss=math.nan, grad_norm=math.nan) for r in _quiet(n, first, 3.0, 0.5, 7)]


def _zero(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    told = re.search(r"grad_norm': (nan|[\d\\.]+)", " ".join(record["log_lines_that_matter"]))
    norm = float(told[1].replace("\\", "")) if told else math.nan
    return [replace(r, loss=0.0, grad_norm=norm) for r in _quiet(n, first, 3.0, 0.5, 8)]


def _resumed(
    record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int
) -> list[Row]:
    """Steps go back by twenty; the level behind the border is the trace's, or the words'."""
    start = max(first - 20, 1)
    rows = _quiet(6 * n, start, 3.0, 0.5, 9)
    level = float(numbers.get("loss_after", numbers.get("loss_resume0", 3.0)))
    scale = 3.0 / float(numbers.get("loss_before", 3.0))
    words = record["symptom_signature"] + " " + record["time_relation"]
    made = []
    for i, row in enumerate(rows):
        loss = row.loss
        if "loss_after" in numbers or "as high as at the start" in words:
            loss = 10.6 - min(2.0, 0.01 * i)
        elif "loss_resume1" in numbers and i >= 1:
            loss = float(numbers["loss_resume1"])
        elif "NaN" in words and i >= 2:
            loss = math.nan
        elif "abnormally low" in words:
            loss -= 0.6
        elif "bump" in words or "spike" in words or "worse" in words:
            loss += 0.4 * math.exp(-i / (20 if "50" in words else 300))
        lr = 1e-4 * (0.01 + i / 600 if "warm-up" in words else 1)
        made.append(replace(row, loss=loss if level else loss * scale, lr=lr))
    return made


def _slow(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    rows = _quiet(2 * n, first, 3.0, 0.5, 10)
    if record["kind"] == "periodic_slow":
        pause = 1.4 if "1.3-1.5 s" in record["symptom_signature"] else 4.0
        return [replace(r, step_time=r.step_time + (pause if i % 8 == 0 else 0))
                for i, r in enumerate(rows)]  # fmt: skip
    return [replace(r, step_time=r.step_time * (1 + 0.002 * i)) for i, r in enumerate(rows)]


def _drift(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    rows = _quiet(5 * n, first, 3.0, 0.5, 11)
    spikes = "spikes" in record["symptom_signature"]
    return [
        replace(r, grad_norm=(r.grad_norm or 0.5) * (1 + i / n) * (30 if spikes and i % 97 == 0
                                                                  else 1))
        for i, r in enumerate(rows)
    ]  # fmt: skip


def _low(record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int) -> list[Row]:
    rows = _quiet(3 * n, first, 3.0, 0.5, 12)
    eval_too = "eval" in record["symptom_signature"].lower()
    more = {"eval_loss": 0.03} if eval_too else {}
    return [
        replace(r, loss=3.0 * math.exp(-i / 20) + 0.01 * r.loss, more={} if i % 20 else more)
        for i, r in enumerate(rows)
    ]


def _reinforced(
    record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int
) -> list[Row]:
    more: dict[str, float] = {}
    for line in record["log_lines_that_matter"]:
        for key, value in re.findall(r"'([\w/]+)': (\d[\d.]*)", line.replace("\\", "")):
            more[key] = float(value.rstrip("."))
    if "is_ratio_step1" in numbers or "bad" in numbers:
        more["sampling/importance_sampling_ratio/mean"] = float(
            numbers.get("is_ratio_step1", numbers.get("bad", 1.0))
        )
    rows = _quiet(n, first, 0.01, 0.5, 13)
    grows = "growing" in record["symptom_signature"]
    return [
        replace(r, loss=0.0, grad_norm=0.0 if "grad norm 0" in record["symptom_signature"] else 0.5,
                more={"reward": 0.0 if "reward 0" in record["symptom_signature"] else r.loss,
                      **more, **({"kl": 0.02 * 1.06**i, "reward": 1.0} if grows else {})})
        for i, r in enumerate(rows)
    ]  # fmt: skip


def _schedule(
    record: Mapping[str, Any], numbers: Mapping[str, Any], first: int, n: int
) -> list[Row]:
    rows = _quiet(5 * n, first, 3.0, 0.5, 14)
    return [replace(r, lr=max(1e-4 * (1 - i / (1.5 * n)), 1e-6)) for i, r in enumerate(rows)]


_SHAPES = {
    "divergence": _rising, "loss_spike": _spike, "nan_inf": _broken, "loss_zero": _zero,
    "resume_jump": _resumed, "env_change": _resumed, "periodic_slow": _slow,
    "throughput_degrade": _slow, "grad_drift": _drift, "loss_too_low": _low,
    "rl_no_signal": _reinforced, "rl_collapse": _reinforced, "lr_anomaly": _schedule,
}  # fmt: skip
