"""DeepSpeed's engine, timers and loss scaler, wording by wording; all samples are invented."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from textlogs import column, run_of

from loganalyze.model import RunLog

STAMP = "[2031-04-02 10:11:12,345] [INFO] "
DIST = STAMP + "[logging.py:7:log_dist] [Rank 0] "
GIB = 1024.0**3


def progress(step: int, skipped: int = 0, lr: str = "1.5e-05, 1.5e-05") -> str:
    """A progress line of the engine."""
    return f"{DIST}step={step}, skipped={skipped}, lr=[{lr}], mom=[(0.9, 0.95), (0.9, 0.95)]\n"


def events(run: RunLog, kind: str) -> list[dict[str, object]]:
    """Events of a kind: step and detail together."""
    rows = run.events.filter(pl.col("kind") == kind).iter_rows(named=True)
    return [{"step": row["step"], **json.loads(row["detail"])} for row in rows]


def test_progress_line(tmp_path: Path) -> None:
    """step, the first group's lr, betas; the stamp is the wall time; rank 0 speaks for the job."""
    run = run_of(progress(40, 3), tmp_path)
    row = run.readings.row(0, named=True)
    assert (row["step"], row["lr"], row["rank"]) == (40, 1.5e-5, None)
    assert (row["raw/mom_beta1"], row["raw/mom_beta2"]) == (0.9, 0.95)
    assert row["wall_s"] == pytest.approx(1932891072.345)


def test_skipped_is_cumulative(tmp_path: Path) -> None:
    """engine.py counts skipped steps since the start: skipped_steps is the difference."""
    text = progress(10, 4) + progress(20, 4) + progress(30, 7)
    run = run_of(text, tmp_path)
    assert column(run, "skipped_steps") == [4.0, 0.0, 3.0]
    assert column(run, "raw/skipped") == [4.0, 4.0, 7.0]


def test_first_line_of_a_resumed_engine_skips_nothing(tmp_path: Path) -> None:
    """A resumed engine brings its count along: its first line says nothing of this interval."""
    run = run_of(progress(5000, 44) + progress(5010, 45), tmp_path)
    assert column(run, "skipped_steps") == [None, 1.0]


def test_groups_that_differ_are_kept(tmp_path: Path) -> None:
    """lr is that of the first group; other groups are kept where they differ."""
    run = run_of(progress(10, 0, "2e-05, 2e-05, 1e-06"), tmp_path)
    assert (column(run, "lr"), column(run, "raw/lr_group2")) == ([2e-5], [1e-6])


def test_two_engines_of_one_step(tmp_path: Path) -> None:
    """DeepSpeed-Chat prints actor and critic with the same step: lr is the actor's alone."""
    text = progress(10, 4, "5e-06") + progress(10, 3, "3e-06")
    text += progress(20, 4, "4e-06") + progress(20, 5, "2e-06")
    run = run_of(text, tmp_path)
    assert column(run, "lr") == [5e-6, None, 4e-6, None]
    assert column(run, "raw/lr_engine1") == [None, 3e-6, None, 2e-6]
    assert column(run, "skipped_steps") == [4.0, None, 0.0, None]
    assert column(run, "raw/skipped_steps_engine1") == [None, 3.0, None, 2.0]


def test_same_step_after_a_restart_is_the_same_engine(tmp_path: Path) -> None:
    """The same step an hour later is a resumed run, not a second engine."""
    later = progress(10, 0, "7e-06").replace("10:11:12", "11:30:00")
    run = run_of(progress(10, 0, "7e-06") + later, tmp_path)
    assert column(run, "lr") == [7e-6, 7e-6]


def test_glued_progress_lines(tmp_path: Path) -> None:
    """Two ranks' writes on one line are two rows."""
    text = progress(10).rstrip("\n") + progress(20)
    assert column(run_of(text, tmp_path), "step") == [10, 20]


@pytest.mark.parametrize("cut", [75, 95, 120])
def test_wrapped_progress_line(cut: int, tmp_path: Path) -> None:
    """A line wrapped by a terminal, at whatever column, is one row again."""
    line = progress(40, 3)
    run = run_of(line[:cut] + "\n" + line[cut:] + progress(50, 3), tmp_path)
    assert column(run, "lr") == [1.5e-5, 1.5e-5]
    assert run.sources[0].account.unknown == 0


def test_throughput_timer(tmp_path: Path) -> None:
    """timer.py: CurrSamplesPerSec is the job's rate over the last step; RunningAvg is a mean since
    step 3 and stays raw; GB is 1024^3 bytes of rank 0's device."""
    text = (
        STAMP + "[timer.py:7:stop] epoch=0/micro_step=160/global_step=40, "
        "RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=30.25, MemAllocated=1.5GB, "
        "MaxMemAllocated=7.25GB\n"
    )
    row = run_of(text, tmp_path).readings.row(0, named=True)
    expected = {
        "step": 40, "samples_per_s": 30.25, "raw/RunningAvgSamplesPerSec": 31.5,
        "raw/micro_step": 160.0, "mem_allocated_bytes": 1.5 * GIB,
        "mem_peak_allocated_bytes": 7.25 * GIB,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_older_throughput_timers(tmp_path: Path) -> None:
    """Before 0.8 the line has epoch/count; before 0.7 only a cumulative mean (raw)."""
    text = (
        "[INFO 2031-04-02 10:11:12] 0/40, SamplesPerSec=31.5\n"
        + STAMP + "[timer.py:7:stop] 0/50, RunningAvgSamplesPerSec=32.5, "
        "CurrSamplesPerSec=-inf, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
    )  # fmt: skip
    run = run_of(text, tmp_path)
    assert column(run, "step") == [40, 50]
    assert column(run, "raw/SamplesPerSec") == [31.5, None]
    assert column(run, "samples_per_s") == [None, float("-inf")]


def test_host_memory_of_the_timer(tmp_path: Path) -> None:
    """monitor_memory's line gives shares of the host, 0 to 1."""
    text = "epoch=0/micro_step=8/global_step=4, vm %: 41.0, swap %: 2.5\n"
    row = run_of(text, tmp_path).readings.row(0, named=True)
    assert (row["step"], row["host_mem_share"], row["raw/swap_share"]) == (4, 0.41, 0.025)


def test_pipeline_line(tmp_path: Path) -> None:
    """pipe/engine.py: mean loss over micro batches and ranks, seconds per step, job's rate."""
    text = "steps: 40 loss: 2.3456 mtp: 0.5 iter time (s): 1.250 samples/sec: 51.8\n"
    row = run_of(text, tmp_path).readings.row(0, named=True)
    assert (row["step"], row["loss"], row["step_time_s"]) == (40, 2.3456, 1.25)
    assert (row["samples_per_s"], row["aux_loss/mtp"]) == (51.8, 0.5)


def test_lines_beside_megatron_are_no_second_records(tmp_path: Path) -> None:
    """Where a Megatron trainer prints the step itself, DeepSpeed's lines are ignored by name."""
    text = (
        "/opt/Megatron-DeepSpeed/pretrain.py: start\n"
        "steps: 1 loss: 9.5000 iter time (s): 2.0 samples/sec: 4.0\n"
        + progress(1)
        + " iteration        1/      90 | lm loss: 9.500000E+00 | grad norm: 1.250 |\n"
    )
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [9.5]
    rules = run.sources[0].account.ignored
    assert rules["deepspeed progress beside Megatron's own line"] == 2


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("forward", "backward", "backward_allreduce", "step"), DIST + "rank=0 time (ms) | "),
        (("fwd", "bwd", "bwd_allreduce", "step"), DIST + "time (ms) | "),
        (("fwd", "bwd", "bwd_allreduce", "step"), "[Rank 0] time (ms) | "),
    ],
)
def test_timers_of_both_eras(names: tuple[str, ...], prefix: str, tmp_path: Path) -> None:
    """wall_clock_breakdown is milliseconds of one rank; it belongs to the step printed before."""
    cells = zip(names, (160.0, 350.0, 110.0, 12.5), strict=True)
    line = prefix + " | ".join(f"{name}: {value:.2f}" for name, value in cells) + "\n"
    run = run_of(progress(40) + line + line, tmp_path)
    rows = run.readings.filter(pl.col("forward_time_s").is_not_null())
    assert rows["step"].to_list() == [40, 41]
    row = rows.row(0, named=True)
    assert row["forward_time_s"] == pytest.approx(0.16)
    assert row["backward_time_s"] == pytest.approx(0.35)
    assert row["comm_time_s"] == pytest.approx(0.11)
    assert row["optimizer_time_s"] == pytest.approx(0.0125)
    assert row["step_time_s"] == pytest.approx(0.5225)


def test_micro_step_timers_are_raw(tmp_path: Path) -> None:
    """Timers of a micro step, and of MoE in brackets, are kept in seconds without a step."""
    text = "time (ms) | fwd_microstep: 40.0 (fwd_moe: 9.0, 1st_a2a: 2.0) | step_microstep: 0.5\n"
    row = run_of(text, tmp_path).readings.row(0, named=True)
    assert (row["step"], row["raw/fwd_microstep_s"]) == (None, 0.04)
    assert (row["raw/fwd_moe_s"], row["raw/1st_a2a_s"]) == (0.009, 0.002)


def test_timers_after_a_bar(tmp_path: Path) -> None:
    """Under the Trainer the bar tells the step: its timers are those of the step after."""
    text = " 5%|# | 50/1000 [01:00<19:00, 1.2s/it]" + DIST + "time (ms) | optimizer_step: 10.0\n"
    run = run_of(text + DIST + "time (ms) | fwd: 1.0 | bwd: 2.0 | step: 3.0\n", tmp_path)
    assert run.readings["step"].to_list() == [51, 51]


OVERFLOWS = [
    ("[deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512.0, reducing to 256.0",
     512.0, 256.0),
    ("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, reducing to 256",
     512.0, 256.0),
    ("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, but hysteresis is 2. "
     "Reducing hysteresis to 1", 512.0, 512.0),
    ("[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 512, "
     "reducing to 256.0", 512.0, 256.0),
    ("Overflow detected. Skipping step. Attempted loss scale: 512, reducing to 256.0",
     512.0, 256.0),
    ("[deepspeed] OVERFLOW! Rank 0 Skipping step.", None, None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "old", "new"), OVERFLOWS)
def test_overflow_wordings(
    words: str, old: float | None, new: float | None, tmp_path: Path
) -> None:
    """Every wording since v0.2 is one overflow event with old and new scale, at the last step."""
    run = run_of(progress(30) + STAMP + "[x.py:7:update_scale] " + words + "\n", tmp_path)
    (event,) = events(run, "overflow")
    assert (event["step"], event.get("old_scale"), event.get("new_scale")) == (30, old, new)


def test_overflow_takes_the_step_of_the_bar(tmp_path: Path) -> None:
    """An overflow glued to the Trainer's bar stands at the bar's step."""
    words = "[deepscale] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1"
    text = "".join(
        f"  0%|      | {done}/2400 [00:40<2:40:10,  2.50it/s]{STAMP}[z.py:7:step] {words}\n"
        for done in (98, 99, 100)
    )
    assert [e["step"] for e in events(run_of(text, tmp_path), "overflow")] == [98, 99, 100]


def test_every_rank_tells_the_same_overflow(tmp_path: Path) -> None:
    """The fused optimizer prints on every rank, with the iteration a line before: one event."""
    rank = STAMP + "[fused_optimizer.py:7:_update_scale]\nGrad overflow on iteration 12\n"
    rank += (
        STAMP
        + "[fused_optimizer.py:8:_update_scale] Reducing dynamic loss scale from 512 to 256.0\n"
    )
    dist = DIST + "Overflow detected. Skipping step. Attempted loss scale: 512, reducing to 256.0\n"
    again = (rank + dist + rank).replace("iteration 12", "iteration 13")
    found = events(run_of(rank + dist + rank * 6 + again, tmp_path), "overflow")
    assert [event["step"] for event in found] == [12, 13]


def test_other_ranks_overflows_are_copies(tmp_path: Path) -> None:
    """Old versions print with the number of the rank: only the first rank's are events."""
    words = "[deepscale] OVERFLOW! Rank {} Skipping step. Attempted loss scale: 64.0, reducing to 32.0\n"  # noqa: E501
    run = run_of("".join(words.format(rank) for rank in (1, 0, 2)), tmp_path)
    assert len(events(run, "overflow")) == 1
    assert run.sources[0].account.ignored_total == 2


def test_scale_growth_is_a_note(tmp_path: Path) -> None:
    """Growth of the scale is noted once, though every rank says it."""
    text = "Increasing dynamic loss scale from 256.0 to 512.0\n" * 4
    (note,) = events(run_of(text, tmp_path), "note")
    assert (note["old_scale"], note["new_scale"]) == (256.0, 512.0)


def test_two_engines_scalers_are_told_apart(tmp_path: Path) -> None:
    """DeepSpeed-Chat's actor and critic overflow each on its own: two scales, not one zigzag."""
    words = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
    ppo = "epoch: 0|step: {}|ppo_ep: 1|act_loss: 0.5|cri_loss: 0.25|unsuper_loss: 0.0\n"
    told = [((64, 32), (64, 32)), ((32, 16),), ((32, 16),), ((16, 8),), ((32, 16),)]
    text = "Beginning of Epoch 1/1, Total Generation Batches 9\n"
    for step, pairs in enumerate(told):
        text += "".join(words.format(*pair) for pair in pairs) + ppo.format(step)
    found = events(run_of(text, tmp_path), "overflow")
    assert [e["step"] for e in found] == [0, 0, 1, 2, 3, 4]
    assert [e.get("new_scale") for e in found] == [32, None, 16, None, 8, None]
    assert [e.get("new_scale_engine1") for e in found] == [None, 32, None, 16, None, 16]


@pytest.mark.parametrize("word", ["RunningAvg", "Curr", "MaxMem"])
def test_wrapped_throughput_line(word: str, tmp_path: Path) -> None:
    """A throughput line wrapped between two fields is one row again."""
    text = (
        STAMP + "[timer.py:7:stop] epoch=0/micro_step=160/global_step=40, "
        "RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=30.25, MemAllocated=1.5GB, "
        "MaxMemAllocated=7.25GB\n"
    ).replace(" " + word, "\n" + word)
    row = run_of(text + progress(50), tmp_path).readings.row(0, named=True)
    assert (row["step"], row["samples_per_s"]) == (40, 30.25)
    assert row["mem_peak_allocated_bytes"] == 7.25 * GIB


def test_wrapped_timer_line(tmp_path: Path) -> None:
    """A timer line wrapped behind a bar or a colon is one row again."""
    for place in (" | bwd:", " | step:"):
        text = DIST + "time (ms) | fwd: 160.0 | bwd: 350.0 | step: 12.5\n"
        at = text.index(place) + len(place)
        for cut in (at, at - len(place) + 2):
            wrapped = progress(40) + text[:cut] + "\n" + text[cut:].lstrip()
            run = run_of(wrapped, tmp_path)
            assert run.readings["optimizer_time_s"].drop_nulls().to_list() == [0.0125]
