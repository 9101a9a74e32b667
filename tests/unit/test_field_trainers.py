"""What logs in the field look like: MindFormers, InternLM, Paddle, Detectron2, mmengine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from textlogs import column, run_of

GIB = 1024.0**3
MIB = 1024.0**2
LINES = [
    ("mindformers", "Epoch:[  1/  5], step:[    4/   10], loss:[ 7.500/ 7.750], time:250.0 ms, "
     "lr:1e-05, overflow cond: False, loss_scale: 4096.0", 4,
     {"loss": 7.5, "step_time_s": 0.25, "lr": 1e-5, "loss_scale": 4096, "skipped_steps": 0}),
    ("mindformers", "{ Epoch:[  2/  5], step:[    4/   10], loss: 7.500, lm_loss: 7.250, aux_loss: "
     "0.125, mtp_loss: 0.125, per_step_time: 250ms, lr: 1e-05, overflow cond: True, loss_scale: "
     "1.0, global_norm: [inf], train_throughput_per_npu: 150.5T", 14,
     {"loss": 7.5, "aux_loss/lm": 7.25, "aux_loss/moe": 0.125, "grad_norm": math.inf,
      "skipped_steps": 1, "tflops_per_gpu": 150.5}),
    ("internlm", "2031-04-02 10:11:12,345\tINFO train.py:3 in record_current_batch_training_metrics"
     " -- tflops=180.5,step=0,loss=11.5,tgs (tokens/gpu/second)=4000.5,lr=4e-07,loss_scale=65536.0,"
     "grad_norm=63.5,num_consumed_tokens=131072,inf_nan_skip_batches=0,fwd_bwd_time=3.5", 0,
     {"loss": 11.5, "tflops_per_gpu": 180.5, "tokens_per_s_per_gpu": 4000.5, "grad_norm": 63.5}),
    ("internlm", "2031-04-02T10:11:12.345+08:00 INFO [t.py, line 4, in record_current_batch_trainin"
     "g_metrics] - pid=7 : tflops=80.5 step=3 loss=nan tgs (tokens/gpu/second)=800.5 lr=4e-07 "
     "grad_norm={'0_default': nan} loss/en=11.5 loss/cn=nan ", 3,
     {"loss": math.nan, "grad_norm": math.nan, "raw/loss/en": 11.5}),
    ("paddle", "[2031-04-02 10:11:12,345] [    INFO] - global step 40, loss: 7.5, lm_loss: 7.25, "
     "speed: 2.00 steps/s, ips: 64.00 seqs/s, learning rate: 5.0e-06, loss_scaling: 1024.00", 40,
     {"loss": 7.5, "step_time_s": 0.5, "samples_per_s": 64, "lr": 5e-6, "loss_scale": 1024}),
    ("paddle", "[2031-04-02 10:11:12,345] [    INFO] - valid step 40, batch: 10, loss: 7.25, ips: "
     "135 seqs/s", 40, {"val_loss": 7.25}),
    ("paddle", "[2031/04/02 10:11:12] root INFO: epoch: [1/2], global_step: 40, lr: 0.000005, loss:"
     " 9.5, avg_reader_cost: 0.01 s, avg_batch_cost: 0.25 s, avg_samples: 64, ips: 256.0 samples/s",
     40, {"loss": 9.5, "step_time_s": 0.25, "data_time_s": 0.01, "raw/ips (samples)": 256}),
    ("paddle", "2031-04-02 10:11:12 [INFO]\t[TRAIN] epoch: 1, iter: 40/500, loss: 2.5, lr: 0.01, "
     "batch_cost: 0.5, reader_cost: 0.125, ips: 3.5 samples/sec | ETA 00:04:16", 40,
     {"loss": 2.5, "lr": 0.01, "step_time_s": 0.5, "data_time_s": 0.125}),
    ("paddle", "[train] epoch: [0/1], batch: [40/500], loss: 9.5, avg_batch_cost: 0.5 sec, speed: "
     "2.0 step/s, ips_total: 16000 tokens/s, ips: 2000 tokens/s, learning rate: 2.5e-08", 40,
     {"loss": 9.5, "step_time_s": 0.5, "tokens_per_s": 16000, "tokens_per_s_per_gpu": 2000}),
    ("mmengine", "2031-04-02 10:11:12,345 - mmdet - INFO - Epoch [2][50/100]\tlr: 0.01, eta: 1 day,"
     " 4:33:09, time: 0.5, data_time: 0.25, memory: 100, loss_cls: 0.5, loss: 0.75", 150,
     {"lr": 0.01, "step_time_s": 0.5, "mem_peak_allocated_bytes": 100 * MIB, "loss": 0.75}),
    ("mmengine", "2031-04-02 10:11:12,345 - mmdet - INFO - Iter [150/900]\tlr: 0.01, eta: 4:33:09, "
     "time: 0.5, memory: 100, loss: 0.75, grad_norm: nan", 150,
     {"loss": 0.75, "grad_norm": math.nan}),
    ("mmengine", "04/02 10:11:12 - mmengine - INFO - Epoch(train)  [3][  5/10]  base_lr: 2.0e-03 "
     "lr: 5.0e-05  eta: 0:39:15  time: 0.5  memory: 100  loss: nan", 25,
     {"loss": math.nan, "lr": 5e-5}),
    ("mmengine", "[04/02 10:11:12] ppdet.engine.callbacks INFO: Epoch: [1] [ 5/10] learning_rate: "
     "0.5 loss: 4.5 eta: 67 days, 10:28:48 batch_cost: 0.5 data_cost: 0.25 ips: 96.5 images/s, "
     "max_mem_reserved: 200 MB, max_mem_allocated: 100 MB", 15,
     {"lr": 0.5, "step_time_s": 0.5, "data_time_s": 0.25, "mem_peak_reserved_bytes": 200 * MIB}),
    ("detectron2", "[04/02 10:11:12 d2.utils.events]:  eta: 2 days, 12:13:20  iter: 19  total_loss:"
     " 3.5  loss_cls: 1.5  time: 0.5  data_time: 0.25  lr: 0.005  max_mem: 4000M", 19,
     {"loss": 3.5, "lr": 0.005, "step_time_s": 0.5, "mem_peak_allocated_bytes": 4000 * MIB}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "step", "values"), LINES)
def test_line(name: str, text: str, step: int, values: dict[str, float], tmp_path: Path) -> None:
    """Each trainer's line is read by its own dialect, with the right step, values and units."""
    run = run_of(text + "\n", tmp_path)
    row = run.readings.row(0, named=True)
    assert (run.meta.framework, row["step"]) == (name, step)
    assert {key: row[key] for key in values} == pytest.approx(values, nan_ok=True)


def test_steps_go_on_through_the_epochs(tmp_path: Path) -> None:
    """mmengine counts from one in every epoch: the steps of a run rise, and it began once."""
    text = "".join(
        f"04/02 10:11:12 - mmengine - INFO - Epoch(train) [{epoch}][{step}/20]  loss: 2.5\n"
        for epoch in (1, 2, 3)
        for step in (10, 20)
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [10, 20, 30, 40, 50, 60]
    assert len(run.meta.segments or ()) == 1


def test_mindspore_epochs_are_as_long_as_the_last(tmp_path: Path) -> None:
    """MindSpore's monitor prints no length of an epoch; its last step is the length."""
    text = (
        "epoch: 1 step: 19, loss is 2.75\nepoch: 1 step: 20, loss is 2.5\n"
        "Train epoch time: 5000.0 ms, per step time: 250.0 ms\nepoch: 2 step: 1, loss is 2.25\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [19, 20, 20, 21]
    assert column(run, "step_time_s")[2] == 0.25


def test_speed_below_a_record_belongs_to_it(tmp_path: Path) -> None:
    """MindFormers' line with the bar gives one device's speed at the step above it."""
    text = (
        "{ Epoch:[  1/  2], step:[    4/   10], loss: 7.5, per_step_time: 250ms, lr: 1e-05\n"
        "- INFO -   20.0% |##########                 | 4.50000 samples/s/p  0:01:03 }\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [4, 4]
    assert column(run, "raw/samples/s/p") == [None, 4.5]


def test_skipped_batches_are_a_difference(tmp_path: Path) -> None:
    """InternLM counts skipped batches since the start: a line's own are those since the last."""
    text = "".join(
        f"in record_current_batch_training_metrics -- step={step} loss=2.5 "
        f"inf_nan_skip_batches={count} \n"
        for step, count in ((5, 3), (6, 3), (9, 5))
    )
    assert column(run_of(text, tmp_path), "skipped_steps") == [None, 0.0, 2.0]


def test_paddle_trainer(tmp_path: Path) -> None:
    """PaddleNLP's Trainer: the step's time, memory in bytes, and the evaluation at its step."""
    text = (
        "[    INFO] - loss: 7.5, learning_rate: 2e-06, global_step: 10, max_memory_allocated: 2.5, "
        "interval_runtime: 5.0, interval_samples_per_second: 16.0, interval_steps_per_second: 2.0, "
        "epoch: 0.25\n"
        "[    INFO] - eval_loss: 7.25, eval_ppl: 9.5, eval_runtime: 3.0, epoch: 0.25\n"
        "[    INFO] - train_runtime: 12.5, train_loss: 7.5, epoch: 0.25\n"
    )
    run = run_of(text, tmp_path)
    first, second = run.readings.rows(named=True)
    assert (first["step_time_s"], first["mem_peak_allocated_bytes"]) == (0.5, 2.5 * GIB)
    assert (second["step"], second["val_loss"]) == (10, 7.25)
    assert sum(source.account.unknown for source in run.sources) == 0


def test_what_mmengine_says_at_the_start_is_known(tmp_path: Path) -> None:
    """The logger's other lines are ignored by name, also where they speak of a failure to come."""
    text = (
        '04/02 10:11:12 - mmengine - WARNING - Failed to search registry with scope "mmengine" in '
        'the "builder" registry tree. This may cause unexpected failure.\n'
        "2031/04/02 10:11:12 - mmengine - INFO - Checkpoints will be saved to /x/7b_e3.\n"
        "[04/02 10:11:12 d2.engine.train_loop]: Starting training from iteration 0\n"
        "04/02 10:11:12 - mmengine - INFO - Iter(train) [10/20]  lr: 1.0e-05  loss: 0.5\n"
    )
    run = run_of(text, tmp_path)
    assert sum(source.account.unknown for source in run.sources) == 0
    assert run.events.is_empty()
