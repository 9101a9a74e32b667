"""Renders records of confirmed incidents as logs: what their author saw, and nothing of the cause.

A record has the kind of its symptom, the lines that mattered (patterns, or words about settings),
sometimes a trace, and when it began. From these a log is written in a trainer's format with quiet
numbers before; then the whole program reads and judges it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from incident_curves import Row, rows_of_record
from incident_lines import failure_lines
from msgspec.structs import replace
from paths import SHARED
from textlogs import run_of

from loganalyze.config import kinds, load_thresholds
from loganalyze.detectors import detect
from loganalyze.diagnose import diagnose
from loganalyze.model import Cause, Finding, Incident, RunLog
from loganalyze.profile import choose_profile

INCIDENTS = SHARED / "knowledge" / "INCIDENTS.jsonl"
#: Kind of a record -> the finding kind that opens its tree.
KIND = {
    "divergence": "loss_divergence", "layer_dead": "grad_vanishing",
    "env_change": "loss_discontinuity", "grad_drift": "grad_explosion",
    "grad_spike": "grad_explosion", "resume_jump": "loss_discontinuity",
    "hardware": "hardware_error", "loss_zero": "loss_too_low", "nan_inf": "loss_nonfinite",
    "scale_mismatch": "loss_misscaled", "plateau": "loss_plateau", "lr_anomaly": "lr_schedule",
    "epoch_pattern": "loss_too_low", "eval_rise": "val_loss_rising", "gpu_mem_leak": "memory_leak",
    "gpu_oom": "oom", "host_mem_leak": "host_memory_leak", "host_oom": "killed",
    "periodic_slow": "throughput_stall", "throughput_degrade": "throughput_degradation",
    "hang": "hang", "net_error": "comm_timeout", "ckpt_corrupt": "crash",
    "rl_no_signal": "reward_anomaly", "rl_collapse": "kl_blowup", "pref_stuck": "loss_plateau",
    "telemetry": "metrics_missing",
}  # fmt: skip
#: Words in which a record tells of a setting -> the setting as a trainer prints it.
SETTINGS = (
    (r"\bfp16\b", "fp16", "True"),
    (r"\bbf16\b(?! (?:branch|run|fine|is))", "bf16", "True"),
    (r"\bfp8\b", "fp8", "hybrid"),
    (r"\bTP ?[=>+]|tensor parallel > 1|TP > 1", "tensor_model_parallel_size", "2"),
    (r"compile flag|torch\.compile", "torch_compile", "True"),
    (r"use_liger_kernel", "use_liger_kernel", "True"),
    (r"init_method_std 0\.02", "init_method_std", "0.02"),
    (r"hidden size > 10k", "hidden_size", "11600"),
    (r"ZeRO-[123]", "overlap_comm", "True"),
    (r"\bMoE\b|Expert|\bEP\b", "num_experts", "8"),
    (r"CPU offload", "optimizer_cpu_offload", "True"),
    (r"accumulation > 1|accumulation 2", "gradient_accumulation_steps", "2"),
    (r"num_workers", "num_workers", "8"),
    (r"first logged loss of a pre-trained model", "finetune", "True"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A record and what the program made of it."""

    record: Mapping[str, Any]
    incident: Incident | None
    detected: bool  # a detector found the symptom by itself

    @property
    def place(self) -> int | None:
        """1-based place of the confirmed cause among the open ones; None if it is not there."""
        open_ones = [c.id for c in self.causes if c.verdict != "ruled_out"]
        wanted = self.record["cause_id"]
        return open_ones.index(wanted) + 1 if wanted in open_ones else None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the incident."""
        return self.incident.causes if self.incident else ()


def records() -> tuple[Mapping[str, Any], ...]:
    """All records."""
    lines = INCIDENTS.read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines if line.strip())


def judge_record(record: Mapping[str, Any], folder: Path) -> Judged:
    """Write the record's log, read it and diagnose it."""
    run = run_of(text_of(record), folder, f"{record['id'][:7]}.log")
    thresholds = load_thresholds(choose_profile(run)[0])
    found = list(detect(run, thresholds)[0])
    wanted = KIND.get(record["kind"], record["kind"])
    detected = any(f.kind == wanted and f.severity != "info" for f in found)
    if not detected:
        found = [f for f in found if f.kind != wanted] + [_symptom(record, wanted, run)]
    told = diagnose(run, found, (), thresholds)
    own = {f.id for f in found if f.kind == wanted}
    incident = next((i for i in told.incidents if own & set(i.findings)), None)
    return Judged(record=record, incident=incident, detected=detected)


def _symptom(record: Mapping[str, Any], kind: str, run: RunLog) -> Finding:
    """The symptom as a finding, where no detector saw it in the rendered log."""
    steps = run.readings["step"].drop_nulls()
    last = int(steps[-1]) if len(steps) else None
    first = next((row.step for row in rows_of_record(record) if row.marked), last)
    code = kinds()[kind].code
    made = Finding(
        id=f"{code}-0", code=code, kind=kind, metric=None, severity="warning",
        step_first=first, step_last=last,
        segment=max((s.index for s in run.meta.segments), default=0),
    )  # fmt: skip
    return replace(made, statistics={"training_falls": 1} if kind == "val_loss_rising" else {})


def text_of(record: Mapping[str, Any]) -> str:
    """The log of a record."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    rows = rows_of_record(record)
    failures = [*_right_before(record, rows), *failure_lines(record)]
    yield from _settings(record)
    marked = [n for n, row in enumerate(rows) if row.marked]
    early = record["kind"] in ("resume_jump", "ckpt_corrupt", "loss_zero", "plateau")
    at = (marked[0] if early else marked[-1] + 1) if marked else len(rows)
    for number, row in enumerate(rows):
        if number == at:
            yield from failures
        yield _row(row, huggingface=_is_huggingface(record))
    if at >= len(rows):
        yield from failures


def _right_before(record: Mapping[str, Any], rows: list[Row]) -> Iterator[str]:
    """The save or the evaluation that the record names as the last thing before."""
    step = rows[-1].step if rows else 1
    words = " ".join((record["time_relation"], *record["log_lines_that_matter"]))
    if re.search(r"save line|first checkpoint", words):
        yield f"saving checkpoint at iteration {step:7d} to /ckpt/run in torch_dist format"
    if re.search(r"validation result|eval start|first evaluation", words):
        yield f" validation loss at iteration {step} | lm loss value: 3.012345E+00 |"


def _settings(record: Mapping[str, Any]) -> Iterator[str]:
    words = " ".join((record["framework"], record["symptom_signature"],
                      *record["log_lines_that_matter"]))  # fmt: skip
    found = [(name, value) for words_of, name, value in SETTINGS if re.search(words_of, words)]
    if found:
        yield "------------------------ arguments ------------------------"
        for name, value in (*found, ("padded_vocab_size", "50304")):
            yield f"  {name} {'.' * (48 - len(name))} {value}"
        yield "-------------------- end of arguments ---------------------"


def _is_huggingface(record: Mapping[str, Any]) -> bool:
    words = f"{record['framework']} {record['log_lines_that_matter']}"
    return bool(re.search(r"HF |TRL|'loss'|'reward|unsloth|Trainer", words))


def _row(row: Row, *, huggingface: bool) -> str:
    if huggingface:
        pairs = {"loss": row.loss, "grad_norm": row.grad_norm, "learning_rate": row.lr,
                 **row.more, "epoch": round(row.step / 100, 2)}  # fmt: skip
        return str({k: _python(v) for k, v in pairs.items() if v is not None})
    cells = [f" iteration {row.step:8d}/ {100000:8d} |"]
    cells.append(f" elapsed time per iteration (ms): {1000 * row.step_time:.1f} |")
    cells.append(f" learning rate: {row.lr:.6E} | global batch size: 512 |")
    cells.append(f" lm loss: {row.loss:.6E} |")
    if row.scale is not None:
        cells.append(f" loss scale: {row.scale:.1f} |")
    if row.grad_norm is not None:
        cells.append(f" grad norm: {row.grad_norm:.3f} |")
    cells.append(" number of skipped iterations:   0 | number of nan iterations:   0 |")
    return "".join(cells)


def _python(value: float) -> float | str:
    return "nan" if np.isnan(value) else round(float(value), 6)
