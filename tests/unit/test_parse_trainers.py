"""One invented line a trainer: step, values, units. The claims' sources stand in the modules."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from textlogs import run_of

GIB = 1024.0**3
LINES = [
    ("torchtitan",
     "[rank0]:[titan] 2031-04-02 10:11:12,345 - root - INFO - step: 40  loss:  7.50123  grad_norm:"
     "  1.2345  memory: 41.00GiB(50.00%)  tps: 6,543  tflops: 201.33  mfu: 20.36%",
     40, {"loss": 7.50123, "grad_norm": 1.2345, "mem_peak_reserved_bytes": 41 * GIB,
          "mem_total_bytes": 82 * GIB, "tokens_per_s_per_gpu": 6543, "mfu": 0.2036}),
    ("torchtitan",
     "[titan] 2031-04-02 10:11:12,345 - root - INFO - validate step: 40  loss:  7.41  tps: 6,000",
     40, {"val_loss": 7.41}),
    ("torchtitan",
     "[titan] 2031-04-02 10:11:12,345 - root - INFO - step: 40  loss:  7.5  lr: 3.0e-04  stall: 2",
     40, {"loss": 7.5, "lr": 3e-4, "raw/stall": 2}),
    ("nanogpt", "iter 40: loss 3.2101, time 211.43ms, mfu 31.20%",
     40, {"loss": 3.2101, "step_time_s": 0.21143, "mfu": 0.312}),
    ("nanogpt", "step 250: train loss 3.1002, val loss 3.2204",
     250, {"val_loss": 3.2204, "raw/train loss estimate": 3.1002}),
    ("nanogpt", "step    40 | loss: 5.123456 | lr 1.2e-04 | norm: 0.9123 | dt: 512.33ms | "
     "tok/sec: 1023456.78",
     40, {"loss": 5.123456, "lr": 1.2e-4, "grad_norm": 0.9123, "step_time_s": 0.51233,
          "tokens_per_s": 1023456.78}),
    ("nanogpt", "step   40/19560 | loss 5.120000 (+1.30z)| norm 0.9100 (-0.20z)| lr 1.20e-04 | "
     "512.30 ms | 61.2% bf16 MFU | 1023456 tok/s",
     40, {"loss": 5.12, "grad_norm": 0.91, "step_time_s": 0.5123, "mfu": 0.612,
          "tokens_per_s": 1023456}),
    ("nanogpt", "40 train 5.123456", 40, {"loss": 5.123456}),
    ("nanogpt", "s:40 trl:5.12 lr:0.000123 norm:0.91", 40,
     {"loss": 5.12, "lr": 0.000123, "grad_norm": 0.91}),
    ("modded_nanogpt", "step:1/1750 train_loss:6.1234 train_time:321ms step_avg:321.00ms", 1,
     {"loss": 6.1234, "step_time_s": 0.321, "raw/train_time_s": 0.321}),
    ("litgpt", "iter 40 step 10: loss 3.2101, iter time: 512.33ms (optimizer.step)", 40,
     {"loss": 3.2101, "step_time_s": 0.51233, "raw/optimizer step": 10}),
    ("nanotron", "04/02/2031 10:11:12 [INFO|DP=0|PP=0|TP=0]: iteration: 40 / 1000 | "
     "consumed_tokens: 634K | elapsed_time_per_iteration_ms: 1.2K | lm_loss: 10.6 | lr: 1e-05 | "
     "grad_norm: 0.515", 40,
     {"tokens_seen": 634e3, "step_time_s": 1.2, "loss": 10.6, "lr": 1e-5, "grad_norm": 0.515}),
    ("maxtext", "completed step: 40, seconds: 4.01, TFLOP/s/device: 201.3, Tokens/s/device: "
     "6543.2, total_weights: 1048576, loss: 7.123", 40,
     {"step_time_s": 4.01, "tflops_per_gpu": 201.3, "tokens_per_s_per_gpu": 6543.2,
      "loss": 7.123}),
    ("mlx", "Iter 40: Train loss 1.234, Learning Rate 1.000e-05, It/sec 0.500, Tokens/sec 387.7, "
     "Trained Tokens 9699, Peak mem 8.104 GB", 40,
     {"loss": 1.234, "lr": 1e-5, "step_time_s": 2.0, "tokens_per_s": 387.7, "tokens_seen": 9699,
      "mem_peak_allocated_bytes": 8.104e9}),
    ("tinygrad", "   40 4.32 s run, 11.8750 loss, 0.000000000001 LR, 14.5 GB used, 4014.4 GFLOPS",
     40, {"step_time_s": 4.32, "loss": 11.875, "lr": 1e-12, "mem_used_bytes": 14.5e9}),
    ("mmengine", "04/02 10:11:12 - mmengine - INFO - Epoch(train) [1][  40/735]  lr: 1.0e-05  "
     "eta: 0:20:00  time: 1.2  data_time: 0.01  memory: 34123  loss: 1.25  grad_norm: nan", 40,
     {"lr": 1e-5, "step_time_s": 1.2, "data_time_s": 0.01, "loss": 1.25, "grad_norm": math.nan,
      "mem_peak_allocated_bytes": 34123 * 1024.0**2}),
    ("mmengine", "[10:11:12.345678] Epoch: [1]  [ 30/100]  lr: 0.000030  closs: 1.25 (1.31)  "
     "grad_norm: 2.4 (3.0)  time: 4.5  data: 0.1  max mem: 100", 130,
     {"lr": 3e-5, "loss": 1.25, "grad_norm": 2.4, "step_time_s": 4.5, "data_time_s": 0.1}),
    ("nemo", "Training epoch 0, iteration 120/149 | lr: 1e-05 | global_batch_size: 128 | "
     "global_step: 120 | reduced_train_loss: 2.31 | train_step_timing in s: 4.01 | val_loss: 2.4",
     120, {"lr": 1e-5, "loss": 2.31, "step_time_s": 4.01, "val_loss": 2.4}),
    ("fairseq", "epoch 005:  40 / 1000 loss=3.0, ppl=8.0, wps=12345, num_updates=4040, lr=0.0005, "
     "gnorm=0.9, loss_scale=16", 4040,
     {"loss": 3 * math.log(2), "perplexity": 8, "grad_norm": 0.9, "loss_scale": 16}),
    ("fairseq", '2031-04-02 10:11:12 | INFO | train_inner | {"epoch": 1, "loss": "2", "ppl": "4", '
     '"num_updates": "40", "gnorm": "0.5"}', 40, {"loss": 2 * math.log(2), "grad_norm": 0.5}),
    ("rl_trainers", "(TaskRunner pid=12) step:40 - actor/kl_loss:0.001 - actor/entropy_loss:0.42 - "
     "actor/pg_loss:-0.25 - critic/score/mean:np.float64(0.31) - response_length/mean:512.3 - "
     "timing_s/step:61.2", 40,
     {"kl": 0.001, "entropy": 0.42, "loss": -0.25, "reward": 0.31, "response_length": 512.3,
      "step_time_s": 61.2}),
    ("home_made", "step=55   loss=13.00  gnorm=14.0", 55, {"loss": 13, "grad_norm": 14}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "step", "values"), LINES)
def test_line(name: str, text: str, step: int, values: dict[str, float], tmp_path: Path) -> None:
    """Each trainer's line is read by its own dialect, with the right step, values and units."""
    run = run_of(text + "\n", tmp_path)
    row = run.readings.row(0, named=True)
    assert (run.meta.framework, row["step"]) == (name, step)
    assert {key: row[key] for key in values} == pytest.approx(values, nan_ok=True)


def test_negative_mfu_is_a_placeholder(tmp_path: Path) -> None:
    """nanoGPT's mfu of -100 % in the first iterations is not data."""
    run = run_of("iter 0: loss 4.2, time 900.0ms, mfu -100.00%\n", tmp_path)
    assert "mfu" not in run.readings.columns


def test_step_time_is_the_difference_of_running_times(tmp_path: Path) -> None:
    """modded-nanogpt's running training time becomes each step's own time."""
    text = "".join(
        f"step:{n}/90 train_loss:{5 - n / 50} train_time:{1000 * n + 500}ms step_avg:1.0ms\n"
        for n in range(1, 5)
    )
    times = run_of(text, tmp_path).readings["step_time_s"].to_list()
    assert times == pytest.approx([1.5, 1.0, 1.0, 1.0])


def test_rows_under_a_heading_are_one_record(tmp_path: Path) -> None:
    """OLMo's and Composer's rows belong to the step of the heading above them."""
    text = (
        "2031-04-02 10:11:12.345 node01:0  olmo.train:908  INFO    [step=7/900,epoch=0]\n"
        "    optim/total_grad_norm=0.75\n    train/CrossEntropyLoss=4.5\n"
        "    throughput/total_tokens=1,048,576\nsomething else\n"
        "[epoch=1][batch=40/4800]:\n\t Train loss/train/total: 7.1234\n"
        "\t Train memory/allocated_mem: 2.5\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [7, 40]
    assert run.readings["loss"].to_list() == [4.5, 7.1234]
    assert run.readings["tokens_seen"].to_list() == [1048576.0, None]
    assert run.readings["mem_allocated_bytes"].to_list() == [None, 2.5e9]


def test_validation_loss_that_is_only_repeated_is_kept_once(tmp_path: Path) -> None:
    """NeMo 2 repeats the last validation loss; only its changes are measurements."""
    line = (
        "Training epoch 0, iteration {n}/99 | global_step: {n} | reduced_train_loss: 2.5 | "
        "val_loss: {v}\n"
    )
    text = "".join(line.format(n=n, v=v) for n, v in ((1, 3.0), (2, 3.0), (3, 2.9)))
    assert run_of(text, tmp_path).readings["val_loss"].to_list() == [3.0, None, 2.9]


def test_source_code_in_the_log_is_no_record(tmp_path: Path) -> None:
    """Lines of a program that talk of loss and step are not taken for numbers."""
    text = (
        "for step in range(args.num_iterations + 1):\n    loss = model(x, y, return_logits=False)\n"
        '    print(f"step:{step}/{n} train_loss:{loss.item():.4f}")\n'
        "    train_loss = loss.detach() # step 5 of the plan\n"
    )
    assert not len(run_of(text, tmp_path).readings)


def test_golden_values_count_every_line_with_a_number(tmp_path: Path) -> None:
    """All metrics' lines are read; a step is cited at its first number, padding is none."""
    text = (
        '{"lm loss": {"start_step": 1, "values": {\n"1": 10.25,\n"5": "nan"\n}},\n'
        '"iteration-time": {"start_step": 1, "values": {\n"1": 12.5,\n"5": 0.5\n}}}\n'
    )
    run = run_of(text, tmp_path, "golden_values_dev.json")
    assert run.readings.select("step", "line", "loss", "step_time_s").rows() == [
        (1, 2, 10.25, 12.5), (5, 7, None, 0.5),
    ]  # fmt: skip
    account = run.sources[0].account
    assert (account.lines, account.read, account.ignored_total, account.unknown) == (8, 3, 5, 0)
