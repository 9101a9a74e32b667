"""Shapes that the field prints: home-made loops, small trainers, RL consoles. All lines made up."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from loganalyze_parsers import generic_pairs
from loganalyze_parsers.samples import rows_of
from textlogs import run_of

from loganalyze.ingest import ingest

GIB = 1024.0**3
HOME_MADE = [
    ("Epoch: [3][ 120/500]\tTime  0.250 ( 0.260)\tData  0.010 ( 0.020)\tLoss 1.5e+00 (1.7e+00)",
     120, {"loss": 1.5, "step_time_s": 0.25, "data_time_s": 0.01}),
    ("Train - Epoch: [7/90][ 15/64]\tTime 1.5 (1.6)\tLoss nan (nan)", 15, {"loss": math.nan}),
    ("Train Epoch: 2 [1280/60000 (2%)]\tLoss: 0.734211", 1280, {"loss": 0.734211}),
    ("| epoch   4 |   600/ 2928 batches | lr 2.50 | ms/batch 31.25 | loss  4.75 | ppl   115.6",
     600, {"loss": 4.75, "lr": 2.5, "step_time_s": 0.03125, "perplexity": 115.6}),
    ("Epoch:[1/3](400/9000) loss:2.875 lr:0.000450 epoch_Time:12.0min:", 400,
     {"loss": 2.875, "lr": 0.00045}),
    ("[ 300/5000] loss=3.125 lr=2e-4 grad=0.75 dt=125ms tok/s=81.5K mfu=41.5%", 300,
     {"loss": 3.125, "lr": 2e-4, "grad_norm": 0.75, "step_time_s": 0.125, "tokens_per_s": 81500,
      "mfu": 0.415}),
    ("Epoch [2/9]; Iter [640/4096]; Loss 1.25; LR 3.5e-05; Iter time 0.5; Mem 9216.5MB", 640,
     {"loss": 1.25, "lr": 3.5e-5, "step_time_s": 0.5}),
    ("07/08/2031 09:10:11 - INFO - __main__ - Step 70 Train loss 9.5 ACC 0.25 on epoch=2", 70,
     {"loss": 9.5, "token_accuracy": 0.25}),
    ("2031-02-03 04:05:06 | INFO | step 00000012/00000400 | step-time 7.5 sec | "
     "cross-entropy-loss 2.5 | learning-rate 1.5e-06 | gradient-norm 3.25 | "
     "tokens-per-second 8,192 | peak-gpu-memory 40.5 GB", 12,
     {"loss": 2.5, "step_time_s": 7.5, "lr": 1.5e-6, "grad_norm": 3.25, "tokens_per_s": 8192,
      "mem_peak_allocated_bytes": 40.5e9}),
    ("iter_dt 81.25ms; iter 900: train loss 1.75", 900, {"loss": 1.75, "step_time_s": 0.08125}),
    ("训练次数：500, Loss：1.625", 500, {"loss": 1.625}),
    ("10:11:12 [INFO] [TRAIN] [Rank 0] step: 6, loss: 4.5, tokens_per_second: 70000.5, mfu: 38.5",
     6, {"loss": 4.5, "tokens_per_s": 70000.5, "mfu": 0.385}),
    ("step: 30   train loss: 3.5   test loss: 3.75   tokens/gpu/sec: 9250.5   MFU: 61.5%", 30,
     {"loss": 3.5, "val_loss": 3.75, "tokens_per_s_per_gpu": 9250.5, "mfu": 0.615}),
    ("Train Step 8/400 | Train Reward: 0.375", 8, {"reward": 0.375}),
    ("Step... (250 | Loss: 3.25, Learning Rate: 0.0004)", 250, {"loss": 3.25, "lr": 4e-4}),
    ("step 90, loss 2.25, lr 1.0e-04, 64.5k tok/s", 90,
     {"loss": 2.25, "lr": 1e-4, "tokens_per_s": 64500}),
    ("Ep 2 (Step 000030): Train loss 6.25, Val loss 6.5", 30, {"loss": 6.25, "val_loss": 6.5}),
]  # fmt: skip
CONSOLES = [
    ("nanochat", "step 00030/09000 (0.33%) | loss: 5.25 | lrm: 0.50 | dt: 250.00ms | "
     "tok/sec: 262,144 | bf16_mfu: 41.25 | epoch: 1 | total time: 1.25m | eta: 30.1m", 30,
     {"loss": 5.25, "step_time_s": 0.25, "tokens_per_s": 262144, "mfu": 0.4125}),
    ("nanochat", "Step 00500 | Validation bpb: 0.875", 500, {"raw/val_bpb": 0.875}),
    ("llama2c", "730 | loss 4.25 | lr 5.500000e-05 | 750.50ms | mfu 30.50%", 730,
     {"loss": 4.25, "lr": 5.5e-5, "step_time_s": 0.7505, "mfu": 0.305}),
    ("torchtune", "Step 9 | loss:1.375 lr:3e-05 tokens_per_second_per_gpu:250.5 "
     "peak_memory_active:20.5 peak_memory_alloc:18.5 peak_memory_reserved:24 grad_norm:2.25", 9,
     {"loss": 1.375, "lr": 3e-5, "tokens_per_s_per_gpu": 250.5, "grad_norm": 2.25,
      "mem_active_bytes": 20.5 * GIB, "mem_peak_allocated_bytes": 18.5 * GIB}),
    ("prime_rl", "09:08:07 SUCCESS Step 4 | Time: 6.25s | Loss: 0.5 | Entropy: 0.75 | Mismatch KL: "
     "0.001 | Grad. Norm: 1.75 | LR: 2.00e-06 | Throughput: 4096 tokens/s | MFU: 12.5% | "
     "Peak Mem.: 30.5/80.0 GiB (38.1%)", 4,
     {"loss": 0.5, "entropy": 0.75, "grad_norm": 1.75, "lr": 2e-6, "tokens_per_s": 4096,
      "mfu": 0.125, "step_time_s": 6.25, "mem_peak_reserved_bytes": 30.5 * GIB}),
    ("picotron", "[rank 0] Step: 12    | Loss: 9.5000 | Global batch size:  512.0K | Tokens/s:  "
     "250.5K | Tokens/s/GPU:  31.3K | Tokens:   6.3M/1.0B | MFU: 35.50% | Memory usage:  20.50GB",
     12, {"loss": 9.5, "tokens_per_s": 250500, "tokens_per_s_per_gpu": 31300, "tokens_seen": 6.3e6,
          "mfu": 0.355, "mem_reserved_bytes": 20.5e9}),
    ("lingua", "0: INFO    31-02-03 04:05:06.000123 - 0:00:52 - step: 70  acc: 1  loss:  6.25  "
     "grad: 2.50e+00  flops: 4.00e+14  wps: 5.50e+04  iter:  0.5  data: 0.002  lr: 1.50e-04  "
     "mem: 64%  pow: 500.5 W", 70,
     {"loss": 6.25, "grad_norm": 2.5, "tflops_per_gpu": 400, "tokens_per_s_per_gpu": 55000,
      "step_time_s": 0.5, "data_time_s": 0.002, "lr": 1.5e-4, "gpu_power_w": 500.5}),
    ("internevo", "2031-02-03 04:05:06,789 INFO record_metrics.py:30 in record -- tflops=150.5 "
     "step=20 loss=4.25 tgs (tokens/gpu/second)=3500.5 lr=0.0002 loss_scale=1024.0 "
     "grad_norm={'0_default': 1.75, '1_fp32': 0.5} num_consumed_tokens=4096 adam_beta2=0.95", 20,
     {"loss": 4.25, "tflops_per_gpu": 150.5, "tokens_per_s_per_gpu": 3500.5, "lr": 2e-4,
      "loss_scale": 1024, "grad_norm": 1.75, "tokens_seen": 4096}),
    ("nanogpt", "step 60 | loss 2.5 | step time 15.50ms", 60, {"loss": 2.5, "step_time_s": 0.0155}),
    ("levanter", "INFO :: Progress on:train 4.5kit/90kit rate:1.5it/s remaining:9:10:00 "
     "elapsed:50:00 postfix:loss=2.75", 4500, {"loss": 2.75}),
    ("mlx", "Iter 20: Train loss -0.125, Total rewards mean 0.625, Total rewards std 0.5, Grouped "
     "rewards mean 0.625, KL 0.015, Learning Rate 1.000e-05, It/sec 0.500", 20,
     {"loss": -0.125, "reward": 0.625, "reward_std": 0.5, "kl": 0.015, "step_time_s": 2.0}),
    ("mmengine", "2031-02-03 04:05:06,789 - mmdet - INFO - Iter [250/9000]\tlr: 2.5e-04, eta: "
     "1:02:03, time: 0.75, data_time: 0.05, memory: 2048, loss: 12.5, grad_norm: 30.5", 250,
     {"lr": 2.5e-4, "step_time_s": 0.75, "data_time_s": 0.05, "loss": 12.5, "grad_norm": 30.5,
      "mem_peak_allocated_bytes": 2048 * 1024.0**2}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "step", "values"), HOME_MADE)
def test_home_made_line_is_read(
    line: str, step: int, values: dict[str, float], tmp_path: Path
) -> None:
    """A loop's own line is read with its step, and its numbers in the metrics' units."""
    _reads(line, step, values, tmp_path)


@pytest.mark.parametrize(("name", "line", "step", "values"), CONSOLES)
def test_console_line_is_read(
    name: str, line: str, step: int, values: dict[str, float], tmp_path: Path
) -> None:
    """A known trainer's line is read by its own format, in the metrics' units."""
    assert _reads(line, step, values, tmp_path) == name


def _reads(line: str, step: int, values: dict[str, float], tmp_path: Path) -> str:
    run = run_of(f"{line}\n", tmp_path)
    (row,) = run.readings.iter_rows(named=True)
    assert row["step"] == step
    for metric, value in values.items():
        assert row[metric] == pytest.approx(value, nan_ok=True), metric
    return str(run.meta.framework)


def _steps(text: str, tmp_path: Path) -> list[int]:
    return list(run_of(text, tmp_path).readings["step"])


LOOPS = [
    ("Epoch [{epoch}/3], Step [{step}/200], Loss: 1.5", [100, 200, 300, 400, 500, 600]),
    ("Epoch: [{epoch}][{step}/200]\tLoss 1.5 (1.6)", [100, 200, 300, 400, 500, 600]),
    ("| epoch {epoch} | {step}/ 200 batches | loss 1.5 |", [100, 200, 300, 400, 500, 600]),
    ("epoch: {epoch}, batch: {step}, loss: 1.5", [100, 200, 300, 400, 500, 600]),
]


@pytest.mark.parametrize(("form", "steps"), LOOPS)
def test_batches_of_an_epoch_are_counted_on(form: str, steps: list[int], tmp_path: Path) -> None:
    """A count that begins anew in every epoch goes on from epoch to epoch: one run, no restart."""
    lines = [form.format(epoch=e, step=s) for e in (1, 2, 3) for s in (100, 200)]
    assert _steps("\n".join(lines), tmp_path) == steps


def test_step_that_runs_through_the_epochs_is_left_as_it_is(tmp_path: Path) -> None:
    """A step that does not fall with a new epoch is the run's own, whatever total is beside it."""
    lines = [f"Epoch {1 + s // 300}/4 | Step {s}/900 | Loss 1.5" for s in range(100, 900, 100)]
    assert _steps("\n".join(lines), tmp_path) == list(range(100, 900, 100))


def test_epochs_of_two_ranks_may_overlap(tmp_path: Path) -> None:
    """A slower rank's last lines of an epoch stand between the first ones of the next."""
    places = [(1, 190), (1, 200), (2, 10), (1, 200), (2, 10), (2, 20)]
    lines = [f"Epoch [{e}/3], Step [{s}/200], Loss: 1.5" for e, s in places]
    assert _steps("\n".join(lines), tmp_path) == [190, 200, 210, 200, 210, 220]


def test_line_without_a_step_belongs_to_the_last_one(tmp_path: Path) -> None:
    """An epoch's summary stands at the step that was read last, not at the epoch's number."""
    text = (
        "| epoch   1 |   200/  400 batches | loss  3.50 |\n"
        "| epoch   1 |   400/  400 batches | loss  3.25 |\n"
        "| end of epoch   1 | time: 12.5s | valid loss  3.00 | valid ppl 20.1\n"
    )
    assert _steps(text, tmp_path) == [200, 400, 400]


def test_epoch_on_a_line_of_its_own_counts_the_samples_below(tmp_path: Path) -> None:
    """`Epoch 2` alone is the epoch of the lines below that tell a place in it."""
    block = "loss: 2.25  [    0/ 6400]\nloss: 2.00  [ 3200/ 6400]\n"
    text = f"Epoch 1\n-----------\n{block}Epoch 2\n-----------\n{block}"
    assert _steps(text, tmp_path) == [0, 3200, 6400, 9600]


PROSE = (
    "Saving the best model (loss improved from 2.5 to 2.25)",
    "the loss at step 100 should be lower than 3",
    "loss = criterion(output, target)  # step 3",
    "Resuming from step 400 of the run before with its optimizer and loss scaler",
    "reward model loaded in 12.5 s",
)


@pytest.mark.parametrize("line", PROSE)
def test_prose_with_a_loss_is_no_record(line: str, tmp_path: Path) -> None:
    """A sentence that speaks of a loss gives no numbers."""
    run = run_of(f"{line}\n", tmp_path)
    assert "loss" not in run.readings.columns
    assert "reward" not in run.readings.columns


def test_own_name_of_the_loss_counts_before_a_mean(tmp_path: Path) -> None:
    """Beside a loss an average is another number; alone it stands for the loss."""
    run = run_of("step 1 | avg_loss: 3.5 | loss: 2.5\nstep 2 | avg_loss: 3.25\n", tmp_path)
    assert run.readings["loss"].to_list() == [2.5, 3.25]


def test_nemo_rl_step_is_read_from_its_list(tmp_path: Path) -> None:
    """The bullets under a step's heading are that step's; those of a validation stay raw."""
    text = (
        "========================= Step 7/40 =========================\n"
        "▶ Preparing batch...\n"
        "📊 Training Results:\n"
        "  • Loss: 0.125\n"
        "  • Avg Reward: 0.375\n"
        "  • Mean Generation Length: 512.5000\n"
        "⏱️  Timing:\n"
        "  • Total step time: 30.50s\n"
        "  • generation: 12.25s (40.2%)\n"
        "  • Training FLOPS: 120.50 TFLOPS (15.25 TFLOPS per rank)\n"
        "  • Training Model Floating Point Utilization: 12.50%\n"
        "📊 Validation Results:\n"
        "    • Avg Reward: 0.9\n"
    )
    rows = run_of(text, tmp_path).readings
    assert set(rows["step"].to_list()) == {7}
    found = {c: rows[c].drop_nulls().to_list() for c in rows.columns}
    assert found["loss"] == [0.125]
    assert found["reward"] == [0.375]
    assert found["response_length"] == [512.5]
    assert found["step_time_s"] == [30.5]
    assert found["tflops_per_gpu"] == [15.25]
    assert found["mfu"] == [0.125]
    assert found["raw/Avg Reward"] == [0.9]


def test_areal_step_is_read_from_its_table(tmp_path: Path) -> None:
    """The cells of the table under `Train step n/m done` are that step's."""
    text = (
        "20310203-04:05:06.789 StatsLogger INFO: Epoch 1/3 Step 5/50 Train step 5/150 done.\n"
        "│ ppo_actor/task_reward/avg │ 3.7500e-01 │ ppo_actor/update/grad_norm │ 1.2500e-01 │\n"
        "│ ppo_actor/update/actor_loss/avg │ nan │\n"
    )
    rows = run_of(text, tmp_path).readings
    assert rows["step"].to_list() == [5, 5]
    assert rows["reward"].to_list()[0] == 0.375
    assert rows["grad_norm"].to_list()[0] == 0.125
    assert math.isnan(rows["loss"].to_list()[1])


def test_torchforge_block_is_one_record(tmp_path: Path) -> None:
    """The rows under METRICS STEP are one record of that step."""
    text = (
        "=== [global_reduce] - METRICS STEP 6 ===\n"
        "  episode/avg_response_tokens: 640.5\n"
        "  grpo_loss/kl_divergence_mean: 0.25\n"
        "  grpo_loss/total_loss: 0.0625\n"
    )
    (row,) = run_of(text, tmp_path).readings.iter_rows(named=True)
    assert (row["step"], row["loss"], row["kl"]) == (6, 0.0625, 0.25)
    assert row["response_length"] == 640.5


def test_verl_memory_and_value_loss_are_metrics(tmp_path: Path) -> None:
    """verl's GB are 1024^3 bytes, numpy's wrappers are taken off, the critic's loss is told."""
    line = (
        "(main_task pid=77) step:9 - critic/vf_loss:nan - actor/pg_loss:np.float32(0.5) - "
        "val-aux/turns/max:np.int64(3) - perf/max_memory_reserved_gb:2.000 - "
        "perf/cpu_memory_used_gb:3.000\n"
    )
    (row,) = run_of(line, tmp_path).readings.iter_rows(named=True)
    assert row["step"] == 9
    assert (row["loss"], row["raw/val-aux/turns/max"]) == (0.5, 3)
    assert math.isnan(row["aux_loss/value"])
    assert (row["mem_peak_reserved_bytes"], row["host_mem_used_bytes"]) == (2 * GIB, 3 * GIB)


def test_verl_sft_line_prints_thousandths(tmp_path: Path) -> None:
    """`train/lr(1e-3)` is a thousand times the learning rate."""
    line = "step:4 - train/loss:1.25 - train/lr(1e-3):0.02 - train/time(s):2.5\n"
    (row,) = run_of(line, tmp_path).readings.iter_rows(named=True)
    assert row["lr"] == pytest.approx(2e-5)
    assert (row["loss"], row["step_time_s"]) == (1.25, 2.5)


NOISE = (
    "(main_task pid=82) wandb:                       _timestamp 54.5",
    "wandb:        _runtime 288",
    "        actor_id: 0123456789abcdef",
    "        ip: 10.0.0.7",
    "I0203 04:05:06.789012       7 some_profiler.cc:121] Profiler session initializing.",
)


@pytest.mark.parametrize("line", NOISE)
def test_line_that_tells_nothing_new_is_ignored_by_a_rule(line: str, tmp_path: Path) -> None:
    """A tracker's summary, an actor's particulars, a runtime's notes: known, and not read."""
    (source,) = run_of(f"{line}\n", tmp_path).sources
    assert (source.account.ignored_total, source.account.unknown) == (1, 0)


EVALUATIONS = (
    "eval metrics after step: 40, loss=2.5, total_weights=4096.0",
    "Eval step 40 | loss: 2.5",
    "Validation: step 40, loss 2.5",
)


@pytest.mark.parametrize("line", EVALUATIONS)
def test_loss_of_an_evaluation_is_no_training_loss(line: str, tmp_path: Path) -> None:
    """A line that begins as an evaluation gives a validation loss."""
    (row,) = run_of(f"{line}\n", tmp_path).readings.iter_rows(named=True)
    assert (row["step"], row["val_loss"]) == (40, 2.5)
    assert "loss" not in row


def test_evaluation_batches_stand_at_the_last_step(tmp_path: Path) -> None:
    """Batches of a test set are no steps of the training."""
    text = (
        "Epoch: [0][ 90/100]\tTime 0.1 (0.1)\tLoss 2.5e+00 (2.6e+00)\n"
        "Test: [ 5/10]\tTime 0.1 (0.1)\tLoss 2.75e+00 (2.8e+00)\n"
        "Epoch: [1][  0/100]\tTime 0.1 (0.1)\tLoss 2.25e+00 (2.25e+00)\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [90, 90, 100]
    assert run.readings["loss"].to_list() == [2.5, None, 2.25]
    assert run.readings["val_loss"].to_list() == [None, 2.75, None]


def test_trlx_hangs_its_losses_before_the_bar(tmp_path: Path) -> None:
    """The step of the losses in a bar's description is the bar's."""
    line = (
        "[losses/total_loss: 0.50 | losses/policy_loss: -0.25 | losses/value_loss: 0.75]:   2%|2"
        "   | 20/1000 [00:50<41:10,  2.5s/it]\n"
    )
    (row,) = run_of(line, tmp_path).readings.iter_rows(named=True)
    assert (row["step"], row["loss"]) == (20, 0.5)
    assert (row["aux_loss/policy"], row["aux_loss/value"]) == (-0.25, 0.75)


def test_megatron_line_that_another_rank_tore_is_left_alone() -> None:
    """What the format that owns a line does not take is no home-made loop's line either."""
    line = (
        "iteration 30/ 90 | consumed samples: 240 | elapsed time per iteration (ms): 75.5 | "
        "global batch size: 1 iteration 0 | loss: 4.5E+00 | loss scale: 1.0"
    )
    assert rows_of(generic_pairs.DIALECT, line) == []
    assert rows_of(generic_pairs.DIALECT, "iteration 30/ 90 | loss: 4.5E+00") == [
        (30, {"loss": 4.5})
    ]


TABLES = [
    ("epochs.csv", "Epoch,Train Loss,Val Loss\n1,3.5,3.75\n2,3.25,3.5\n"),
    ("log.txt", '{"train_loss": 3.5, "test_loss": 3.75, "epoch": 1}\n'
                '{"train_loss": 3.25, "test_loss": 3.5, "epoch": 2}\n'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), TABLES)
def test_table_of_epochs_is_a_history(name: str, text: str, tmp_path: Path) -> None:
    """Where a table has a loss and an epoch but no step, a row is an epoch."""
    rows = run_of(text, tmp_path, name).readings
    assert rows["step"].to_list() == [1, 2]
    assert rows["loss"].to_list() == [3.5, 3.25]
    assert rows["val_loss"].to_list() == [3.75, 3.5]


@pytest.mark.parametrize("loss", ["1.5steps", "2.6None", "1.50e-3x"])
def test_a_number_that_runs_into_a_word_is_not_cut(loss: str, tmp_path: Path) -> None:
    """Two lines glued together: such a number is left out, never told as a shorter one."""
    log = tmp_path / "loop.log"
    log.write_text(f"step: 1 - loss: 2.5\nstep: 2 - lr: 0.5 loss: {loss}\nstep: 3 - loss: 2.25\n")
    (run,) = ingest([str(log)]).runs
    assert run.readings["loss"].drop_nulls().to_list() == [2.5, 2.25]
