"""DeepSpeed's memory prints, chat example, reports, life and csv_monitor; samples invented."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from loganalyze_parsers import deepspeed_csv
from loganalyze_parsers.api import Head
from textlogs import column, run_of

STAMP = "[2031-04-02 10:11:12,345] [INFO] "
GIB = 1024.0**3
STEP = STAMP + "[logging.py:7:log_dist] [Rank 0] step={}, skipped=0, lr=[1e-05], mom=[[0.9, 0.9]]\n"


def memory(label: str, allocated: float) -> str:
    """The three lines of see_memory_usage."""
    where = STAMP + "[utils.py:7:see_memory_usage] "
    return (
        f"{where}{label}\n{where}MA {allocated} GB         Max_MA 5.5 GB         CA 7.25 GB"
        f"         Max_CA 8 GB \n{where}CPU Virtual Memory:  used = 61.5 GB, percent = 24.5%\n"
    )


def test_see_memory_usage(tmp_path: Path) -> None:
    """MA is allocated, CA reserved, both by rank 0 in GiB; the CPU line is the whole host."""
    run = run_of(memory("before forward", 3.0), tmp_path)
    row, host = run.readings.rows(named=True)
    assert row["step"] is None
    assert row["mem_allocated_bytes"] == 3.0 * GIB
    assert row["mem_peak_allocated_bytes"] == 5.5 * GIB
    assert row["mem_reserved_bytes"] == 7.25 * GIB
    assert row["mem_peak_reserved_bytes"] == 8.0 * GIB
    assert host["host_mem_used_bytes"] == 61.5 * GIB
    assert host["host_mem_share"] == pytest.approx(0.245)


def test_only_one_place_in_the_step_makes_a_curve(tmp_path: Path) -> None:
    """Prints at two places of a step would make a zigzag: the second place is raw."""
    text = "".join(
        STEP.format(step) + memory(f"before forward {step}", 3.0) + memory("after backward", 5.0)
        for step in (1, 2)
    )
    run = run_of(text, tmp_path)
    assert run.readings["mem_allocated_bytes"].drop_nulls().to_list() == [3.0 * GIB] * 2
    assert run.readings["raw/mem_allocated_bytes"].drop_nulls().to_list() == [5.0 * GIB] * 2


def test_memstats_variant(tmp_path: Path) -> None:
    """The debug variant gives the same metrics, with the rank."""
    text = (
        "RANK=3 MEMSTATS after step device=cuda:3 current alloc=3.0000GB (delta=0.5000GB "
        "max=5.5000GB) current cache=7.0000GB (delta=0.0000GB max=7.5000GB)\n"
    )
    row = run_of(text, tmp_path).readings.row(0, named=True)
    assert row["mem_allocated_bytes"] == 3.0 * GIB
    assert row["mem_peak_reserved_bytes"] == 7.5 * GIB


def test_allocator_flush_is_a_warning(tmp_path: Path) -> None:
    """ZeRO-3's flush warning is an event with the number of flushes."""
    text = STEP.format(5) + (
        "[2031-04-02 10:11:13,000] [WARNING] [stage3.py:7:step] 12 pytorch allocator cache flushes "
        "since last step. this happens when there is high memory pressure\n"
    )
    row = run_of(text, tmp_path).events.filter(pl.col("kind") == "warning").row(0, named=True)
    assert (row["step"], json.loads(row["detail"])["flushes"]) == (5, 12)


PPO = (
    "epoch: 0|step: {0}|ppo_ep: 1|act_loss: -0.25|cri_loss: 0.5|unsuper_loss: 0.0\n"
    "average reward score: {1}\n"
    "-------------------------------------------------------------------------------------\n"
    "|E2E latency=8.00s |Gather latency=0.50s (6.25%) |Generate time=5.00s (62.50%) |Training "
    "time=2.00s (25.00%) |Others=0.50 (6.25%)|CurSamplesPerSec=4.00 |AvgSamplesPerSec=3.50\n"
)


def test_chat_ppo_rows(tmp_path: Path) -> None:
    """Losses of actor and critic are auxiliary, the reward has the row's step, and the whole
    iteration is the step time; the engine's own rate covers training alone and stays raw."""
    engine = (
        "epoch=0/micro_step=2/global_step=2, RunningAvgSamplesPerSec=90.0, "
        "CurrSamplesPerSec=88.0, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
    )
    run = run_of(PPO.format(0, "-0.5") + engine + PPO.format(1, "0.75"), tmp_path)
    got = {
        name: run.readings[name].drop_nulls().to_list()
        for name in ("aux_loss/act_loss", "aux_loss/cri_loss", "reward", "step_time_s",
                     "samples_per_s", "raw/CurrSamplesPerSec", "raw/generate_time_share")
    }  # fmt: skip
    assert got == {
        "aux_loss/act_loss": [-0.25, -0.25], "aux_loss/cri_loss": [0.5, 0.5],
        "reward": [-0.5, 0.75], "step_time_s": [8.0, 8.0], "samples_per_s": [4.0, 4.0],
        "raw/CurrSamplesPerSec": [88.0], "raw/generate_time_share": [0.625, 0.625],
    }  # fmt: skip
    rewards = run.readings.filter(pl.col("reward").is_not_null())
    assert rewards["step"].to_list() == [0, 1]


def test_chat_evaluations(tmp_path: Path) -> None:
    """Perplexity and mean loss stand at the last step printed, before the first at none."""
    text = (
        "***** Evaluating perplexity, Epoch 0/2 *****\nppl: 4096.5\n"
        "Beginning of Epoch 1/2, Total Micro Batches 160\n" + STEP.format(40)
        + "***** Evaluating perplexity, Epoch 1/2 *****\nppl: 4.25, loss: 1.4469\n"
        "chosen_last_scores (higher is better) : 3.5, acc (higher is better) : 0.625\n"
        "Epoch 1/2 with loss 0.6875\n"
    )  # fmt: skip
    run = run_of(text, tmp_path)
    rows = run.readings.filter(pl.col("perplexity").is_not_null())
    assert rows.select("step", "perplexity", "val_loss").rows() == [
        (None, 4096.5, None), (40, 4.25, 1.4469),
    ]  # fmt: skip
    assert run.readings["raw/accuracy"].drop_nulls().to_list() == [0.625]
    assert run.readings["raw/epoch_loss"].drop_nulls().to_list() == [0.6875]
    assert (run.events["kind"] == "evaluation").sum() == 2
    assert run.meta.config["micro_batches"] == "160"


def test_chat_micro_step_lines(tmp_path: Path) -> None:
    """Throughput lines of micro steps have no step: kept as raw."""
    text = (
        "Model Parameters: 0.331 B, Latency: 0.50s, TFLOPs: 2.50, Samples/sec: 4.00, Time/seq "
        "0.25s, Batch Size: 2, Sequence Length: 512\n"
    )
    row = run_of(text, tmp_path).readings.row(0, named=True)
    assert (row["step"], row["raw/micro_latency_s"], row["raw/micro_seq_len"]) == (None, 0.5, 512.0)


def test_communication_logger(tmp_path: Path) -> None:
    """Verbose lines and the summary table are raw/comm/<operation>/..., bytes in 1024s."""
    text = (
        "comm op: all_reduce | time (ms): 1.50 | msg size: 64.0 MB | algbw (Gbps): 400.0 | "
        "busbw (Gbps): 700.0\n"
        "Comm. Op            Message Size        Count     Total Latency(ms)   Avg Lat...\n"
        "broadcast\n"
        "                    2.0 KB              12        15.0         1.25      0.5   0.25\n"
        "done\n"
    )
    run = run_of(text, tmp_path)
    verbose, table = run.readings.rows(named=True)
    assert verbose["raw/comm/all_reduce/time_s"] == pytest.approx(0.0015)
    assert verbose["raw/comm/all_reduce/bytes"] == 64.0 * 1024**2
    assert table["raw/comm/broadcast/2.0KB/count"] == 12.0
    assert table["raw/comm/broadcast/2.0KB/avg_latency_ms"] == 1.25


def test_flops_profiler(tmp_path: Path) -> None:
    """The profile's numbers are raw and in SI units, at the profiled step."""
    text = (
        "-------------------------- DeepSpeed Flops Profiler --------------------------\n"
        "Profile Summary at step 10:\n"
        "Notations:\n"
        "params per gpu:                                         336.23 M\n"
        "fwd latency:                                            70.5 ms\n"
        "samples/second:                                         8.75\n"
    )
    run = run_of(text, tmp_path)
    rows = run.readings
    assert rows["step"].to_list() == [10, 10, 10]
    assert rows["raw/profiler/params_per_gpu"].drop_nulls().to_list() == [336.23e6]
    assert rows["raw/profiler/fwd_latency_s"].drop_nulls().to_list() == [pytest.approx(0.0705)]
    assert rows["raw/profiler/samples_second"].drop_nulls().to_list() == [8.75]


def test_configuration_and_checkpoints(tmp_path: Path) -> None:
    """The printed configuration reaches the run; a checkpoint of many shards is told once."""
    where = STAMP + "[config.py:7:print]   "
    shard = STAMP + "[engine.py:7:save] [Torch] "
    text = (
        STAMP + "[logging.py:7:log_dist] [Rank 0] DeepSpeed info: version=0.14.2, git-hash=x\n"
        + where + "gradient_clipping ............ 1.0\n"
        + where + "fp16_enabled ................. True\n"
        + STEP.format(500)
        + shard + "Checkpoint global_step500 is about to be saved!\n"
        + (shard + "Saving /ckpt/global_step500/mp_rank_00.pt...\n") * 3
        + (shard + "Checkpoint global_step500 is ready now!\n") * 3
    )  # fmt: skip
    run = run_of(text, tmp_path)
    assert run.meta.config["gradient_clipping"] == "1.0"
    assert run.meta.config["deepspeed_version"] == "0.14.2"
    saves = run.events.filter(pl.col("kind").str.starts_with("checkpoint"))
    assert saves.select("kind", "step").rows() == [
        ("checkpoint_save_begin", 500), ("checkpoint_save_end", 500),
    ]  # fmt: skip


CSV = "step,train_loss\n512,2.875\n1024,nan\nstep,train_loss\n1024,2.5\nnot a row\n"


def test_csv_monitor(tmp_path: Path) -> None:
    """One file per metric; the step column counts samples, which is said; headers may recur."""
    run = run_of(CSV, tmp_path, "Train_Samples_train_loss.csv")
    assert column(run, "step") == [512, 1024, 1024]
    assert column(run, "loss")[::2] == [2.875, 2.5]
    assert any(problem.rule == "steps_are_samples" for problem in run.problems)
    account = run.sources[0].account
    assert (account.lines, account.read, account.unknown) == (6, 3, 1)
    assert dict(account.ignored) == {"header": 2}


def test_csv_monitor_is_known_by_name_and_header() -> None:
    """Another two-column CSV is not taken for the monitor's."""
    mine = Head(path=Path("Train_Samples_lr.csv"), data=b"step,lr\n1,2\n", size=12)
    other = Head(path=Path("losses.csv"), data=b"step,lr\n1,2\n", size=12)
    assert deepspeed_csv.sniff(mine) > 0.5
    assert deepspeed_csv.sniff(other) == 0.0
