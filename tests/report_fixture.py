"""A small hand-made Report with two runs' worth of cases: one sick and restarted, one clean.

Every number is invented here, so that the tests know what the report must show.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
from msgspec.structs import replace

from loganalyze.model import (
    Account,
    Cause,
    CheckResult,
    DetectorRun,
    Diagnosis,
    Evidence,
    Finding,
    Incident,
    LineRef,
    Report,
    RunLog,
    RunMeta,
    Segment,
    Source,
    Threshold,
)

HOSTILE = "</script><img src=x onerror=\"window.pwned=1\">\u2028=cmd|' /C calc'!A0\x1b[31m|*_`@all"
SPIKE, NAN_FROM, CRASH, RESUME, END = 2600, 3780, 3800, 3500, 4600
STEPS_A = np.arange(0, CRASH + 1)
STEPS_B = np.arange(RESUME, END + 1)
START_S = 1_780_000_000.0
Z_LIMIT = Threshold(
    name="loss.spike_z", value=6.0, unit="robust z", source="median and MAD of the last 200 points"
)
SEED_RULE = Threshold(name="loss.spike_ratio", value=1.2, unit="x median", source="seed A: +20 %")


def curve(steps: np.ndarray, seed: int) -> np.ndarray:
    """A loss that falls from 10.8 to about 2.4, with noise of 0.02."""
    rng = np.random.default_rng(seed)
    return 2.3 + 8.5 * np.exp(-steps / 420.0) + rng.normal(0, 0.02, len(steps))


def log_lines(folder: Path | None, hostile: bool) -> tuple[str, dict[int, LineRef], int]:
    """Writes the sick run's log; returns its path, the place of each step, and its size."""
    loss, refs, offset, lines = curve(STEPS_A, 1), {}, 0, []
    tail = HOSTILE.replace("\n", " ") if hostile else ""
    for number, step in enumerate(STEPS_A.tolist(), 1):
        text = f" iteration {step:>8}/ 6000 | lm loss: {loss[number - 1]:.6E} |{tail}\n"
        size = len(text.encode())
        refs[step] = LineRef(source=0, line=number, offset=offset, length=size - 1)
        offset += size
        lines.append(text)
    path = "train_7b.log"
    if folder is not None:
        target = folder / path
        target.write_text("".join(lines), encoding="utf-8", newline="")
        path = str(target)
    return path, refs, offset


def _rows(steps: np.ndarray, segment: int, rank: int, start_s: float) -> pl.DataFrame:
    rng = np.random.default_rng(segment + 1)
    n = len(steps)
    loss = curve(steps, segment + 1)
    grad = np.exp(rng.normal(-1.0, 0.1, n)) + 0.2
    speed = rng.normal(182_000, 1_500, n)
    if segment == 0:
        at = slice(SPIKE, SPIKE + 30)
        loss[at] += 3.1 * np.exp(-np.arange(30) / 9.0)
        grad[SPIKE - 3 : SPIKE + 6] = [9.0, 22.0, 41.3, 57.0, 30.0, 18.0, 9.0, 5.0, 2.0]
        loss[NAN_FROM:], grad[NAN_FROM:] = math.nan, math.nan
        grad[NAN_FROM - 1] = math.inf
    speed[::500] *= 0.55
    return pl.DataFrame({
        "step": steps, "segment": np.full(n, segment, np.int32), "rank": np.full(n, rank, np.int32),
        "wall_s": start_s + np.arange(n) * 2.1, "source": np.zeros(n, np.int32),
        "line": np.arange(1, n + 1), "offset": np.arange(n) * 60, "length": np.full(n, 59),
        "loss": loss, "grad_norm": grad, "lr": 3e-4 * np.minimum(1, (steps + 1) / 200),
        "tokens_per_s": speed, "tokens_seen": (steps + 1.0) * 2_097_152,
        "mem_allocated_bytes": 6.2e10 + steps * 1.1e6, "mfu": rng.normal(0.42, 0.004, n),
        "aux_loss/load_balancing": 0.02 + rng.normal(0, 0.001, n),
        "raw/router z": rng.normal(1.0, 0.05, n),
    })  # fmt: skip


def _rank_rows(ranks: int, start_s: float) -> pl.DataFrame:
    steps = np.arange(0, 3800, 20)
    rng = np.random.default_rng(9)
    parts = []
    for rank in range(ranks):
        slow = 1.31 if rank == 5 else 1.0
        times = rng.normal(2.1, 0.015, len(steps)) * np.where(steps > 1800, slow, 1.0)
        n = len(steps)
        parts.append(pl.DataFrame({
            "step": steps, "segment": np.zeros(n, np.int32), "rank": np.full(n, rank, np.int32),
            "wall_s": start_s + steps * 2.1, "source": np.ones(n, np.int32),
            "line": np.arange(1, n + 1), "offset": np.zeros(n, np.int64),
            "length": np.zeros(n, np.int64), "step_time_s": times,
        }))  # fmt: skip
    return pl.concat(parts)


def _events(refs: dict[int, LineRef], hostile: bool) -> pl.DataFrame:
    text = HOSTILE if hostile else "loss is not a number, stopping"
    rows = [("checkpoint_save_end", step, f"saved at {step}") for step in range(500, 3800, 500)]
    rows += [
        ("evaluation", 2000, "validation at 2000"),
        ("overflow", 2599, "overflow, skipping"),
        ("exception", CRASH, text),
        ("checkpoint_load", RESUME, "resuming from 3500"),
    ]
    places = [refs[min(step, CRASH)] for _, step, _ in rows]
    return pl.DataFrame({
        "kind": [r[0] for r in rows], "step": [r[1] for r in rows],
        "segment": [int(r[0] == "checkpoint_load") for r in rows], "rank": [0] * len(rows),
        "wall_s": [START_S + r[1] * 2.1 for r in rows], "source": [0] * len(rows),
        "line": [p.line for p in places], "offset": [p.offset for p in places],
        "length": [p.length for p in places], "text": [r[2] for r in rows],
        "detail": ["{}"] * len(rows),
    })  # fmt: skip


def _findings(refs: dict[int, LineRef], label: str) -> tuple[Finding, ...]:
    grad = Finding(
        id="LA202-1", code="LA202", kind="grad_explosion", metric="grad_norm", severity="critical",
        step_first=SPIKE - 3, step_last=SPIKE + 4, step_peak=SPIKE, rank=0, segment=0,
        statistics={"z": 58.2, "baseline": 0.57, "peak": 57.0, label: label},
        threshold=replace(Z_LIMIT, name="gradient.spike_z"),
        evidence=(Evidence(label="value_before", step=SPIKE - 4, value=0.58, unit="1",
                           ref=refs[SPIKE - 4]),
                  Evidence(label="value_peak", step=SPIKE, value=57.0, unit="1",
                           expected="≤ 4.1", ref=refs[SPIKE])),
    )  # fmt: skip
    spike = Finding(
        id="LA102-1", code="LA102", kind="loss_spike", metric="loss", severity="critical",
        step_first=SPIKE, step_last=SPIKE + 29, step_peak=SPIKE + 1, rank=0, segment=0,
        statistics={"z": 41.0, "baseline": 2.317, "peak": 5.41}, threshold=Z_LIMIT,
        rules=(Z_LIMIT, SEED_RULE),
        evidence=(Evidence(label="value_peak", step=SPIKE + 1, value=5.41, unit="nat",
                           expected="≤ 2.44", ref=refs[SPIKE + 1]),),
    )  # fmt: skip
    nonfinite = Finding(
        id="LA101-1", code="LA101", kind="loss_nonfinite", metric="loss", severity="critical",
        step_first=NAN_FROM, step_last=CRASH, step_peak=NAN_FROM, rank=0, segment=0,
        statistics={"count": CRASH - NAN_FROM + 1},
        evidence=(Evidence(label="value_peak", step=NAN_FROM, value=math.nan, unit="nat",
                           ref=refs[NAN_FROM]),),
    )  # fmt: skip
    stall = Finding(
        id="LA404-1", code="LA404", kind="throughput_stall", metric="tokens_per_s",
        severity="warning", step_first=0, step_last=3500, step_peak=500, rank=0,
        statistics={"period": 500}, threshold=replace(Z_LIMIT, name="speed.stall_share", value=0.7),
    )  # fmt: skip
    straggler = Finding(
        id="LA601-1", code="LA601", kind="straggler_rank", metric="step_time_s",
        severity="warning", step_first=1820, step_last=3780, step_peak=2000, rank=5,
        statistics={"ratio": 1.31},
    )  # fmt: skip
    note = Finding(
        id="LA802-1", code="LA802", kind="config_audit", metric=None, severity="info",
        statistics={"setting": "weight_decay"},
    )  # fmt: skip
    return grad, spike, nonfinite, stall, straggler, note


def _causes(refs: dict[int, LineRef]) -> tuple[Cause, ...]:
    lead = CheckResult(
        check="grad_leads", state="supported",
        evidence=(Evidence(label="value_peak", step=SPIKE - 3, value=9.0, unit="1",
                           ref=refs[SPIKE - 3]),),
    )  # fmt: skip
    return (
        Cause(id="C.SPIKE.TRANSIENT", verdict="supported", confidence=0.72, checks=(
            lead, CheckResult(check="recovered", state="supported"),
            CheckResult(check="sample_outlier", state="not_checkable", missing=("sample_losses",)),
        ), missing=("sample_losses",)),
        Cause(id="C.LR.TOO_HIGH", verdict="not_checkable", confidence=0.2, checks=(
            CheckResult(check="lr_changed", state="not_checkable", missing=("lr",)),),
            missing=("lr",)),
        Cause(id="C.PREC.FP16_OVERFLOW", verdict="ruled_out", confidence=0.0, checks=(
            CheckResult(check="scale_halves", state="ruled_out"),)),
    )  # fmt: skip


def _incidents(refs: dict[int, LineRef]) -> tuple[Incident, ...]:
    return (
        Incident(id="I2", severity="warning", kind="throughput_stall", step_first=0, step_last=3500,
                 first_mover="LA404-1", findings=("LA404-1", "LA601-1"), causes=(),
                 cost_steps=0, cost_seconds=940.0),
        Incident(id="I1", severity="critical", kind="loss_spike", step_first=SPIKE - 3,
                 step_last=SPIKE + 29, first_mover="LA202-1", findings=("LA202-1", "LA102-1"),
                 causes=_causes(refs), recovered=True, cost_steps=32, cost_seconds=67.2,
                 settle="sample_outlier"),
        Incident(id="I3", severity="critical", kind="loss_nonfinite", step_first=NAN_FROM,
                 step_last=CRASH, first_mover="LA101-1", findings=("LA101-1",), causes=(),
                 recovered=False, cost_steps=300, cost_seconds=630.0),
    )  # fmt: skip


def sick_run(folder: Path | None = None, *, hostile: bool = False, ranks: int = 8) -> Diagnosis:
    """A run with a spike led by the gradient, NaN, a crash, a resume and a slow rank."""
    path, refs, size = log_lines(folder, hostile)
    name = f"pretrain {HOSTILE}" if hostile else "pretrain-7b"
    second = START_S + 9000
    readings = pl.concat(
        [_rows(STEPS_A, 0, 0, START_S), _rows(STEPS_B, 1, 0, second), _rank_rows(ranks, START_S)],
        how="diagonal",
    )
    if hostile:
        readings = readings.rename({"raw/router z": f"raw/{HOSTILE}"})
    segments = (
        Segment(index=0, first=0, last=CRASH, count=len(STEPS_A), relation="start"),
        Segment(index=1, first=RESUME, last=END, count=len(STEPS_B), relation="resume",
                superseded_steps=CRASH - RESUME + 1, reason="checkpoint_load"),
    )  # fmt: skip
    lines = len(STEPS_A)
    account = Account(
        lines=lines + 120, read=lines, ignored={"blank": 60, "banner": 40}, unknown=20,
        unknown_samples=(HOSTILE if hostile else "node17: fabric manager says hello",),
    )  # fmt: skip
    meta = RunMeta(id=name, framework="megatron", segments=segments, config={"lr": "3e-4"},
                   log_interval=1, grouping="same_folder")  # fmt: skip
    sources = (
        Source(path=path, sha256="ab" * 32, bytes=size, parser="text", encoding="utf-8",
               account=account),
        Source(path="ranks/=evil.csv" if hostile else "ranks/step_time.csv", sha256="cd" * 32,
               bytes=9000, parser="csv", encoding="utf-8",
               account=Account(lines=1520, read=1519, ignored={"header": 1})),
    )  # fmt: skip
    run = RunLog(meta=meta, readings=readings, events=_events(refs, hostile), problems=(),
                 sources=sources)  # fmt: skip
    detectors = (
        DetectorRun(detector="loss_spike", status="ran"),
        DetectorRun(detector="grad_explosion", status="ran"),
        DetectorRun(detector="loss_plateau", status="ran"),
        DetectorRun(detector="memory_leak", status="ran"),
        DetectorRun(detector="val_loss_rising", status="skipped", missing=("val_loss",)),
        DetectorRun(detector="gpu_overheat", status="skipped", missing=("gpu_temp_c",)),
        DetectorRun(detector="kl_blowup", status="off"),
    )
    return Diagnosis(
        run=run, findings=_findings(refs, HOSTILE if hostile else "note"),
        incidents=_incidents(refs), detectors=detectors,
        thresholds=(Z_LIMIT, SEED_RULE, replace(Z_LIMIT, name="gradient.spike_z")),
        verdict="critical",
    )  # fmt: skip


def clean_run() -> Diagnosis:
    """A short clean run with two metrics and no rank."""
    steps = np.arange(10, 1010, 10)
    n = len(steps)
    readings = pl.DataFrame({
        "step": steps, "segment": np.zeros(n, np.int32),
        "rank": pl.Series([None] * n, dtype=pl.Int32),
        "wall_s": pl.Series([None] * n, dtype=pl.Float64), "source": np.zeros(n, np.int32),
        "line": np.arange(1, n + 1), "offset": np.zeros(n, np.int64),
        "length": np.zeros(n, np.int64), "loss": curve(steps, 4), "lr": np.full(n, 1e-5),
    })  # fmt: skip
    segment = Segment(index=0, first=10, last=1000, count=n, relation="start")
    meta = RunMeta(id="sft-clean", framework="huggingface", segments=(segment,), config={},
                   log_interval=10)  # fmt: skip
    source = Source(path="out/trainer_state.json", sha256="ef" * 32, bytes=41_000,
                    parser="hf_trainer_state", encoding="utf-8",
                    account=Account(lines=n, read=n))  # fmt: skip
    events = _events({s: LineRef(source=0, line=1, offset=0, length=0) for s in STEPS_A.tolist()},
                     False).clear()  # fmt: skip
    run = RunLog(meta=meta, readings=readings, events=events, problems=(), sources=(source,))
    ran = tuple(
        DetectorRun(detector=name, status="ran") for name in ("loss_spike", "loss_nonfinite")
    )
    return Diagnosis(run=run, findings=(), incidents=(), detectors=ran, thresholds=(Z_LIMIT,),
                     verdict="clean")  # fmt: skip


def build(folder: Path | None = None, *, hostile: bool = False, ranks: int = 8) -> Report:
    """Both runs, and an input that nobody could read."""
    unread = Source(path="notes.bin", sha256="99" * 32, bytes=512, parser="", encoding="",
                    account=Account(lines=3, unknown=3))  # fmt: skip
    sick = sick_run(folder, hostile=hostile, ranks=ranks)
    return Report(version="0.0-test", diagnoses=(sick, clean_run()), unread=(unread,))
