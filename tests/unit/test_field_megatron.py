"""What logs in the field look like: Megatron's forks, NeMo, DeepSpeed, and the failures beside."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from judged import only
from textlogs import column, megatron_line, run_of

GIB = 1024.0**3
BEHIND = {"loss_scale": "1.0", "grad_norm": "1.250", "number_of_skipped_iterations": "0"}


def events(text: str, folder: Path) -> list[tuple[str, int | None, int | None]]:
    """Kind, step and rank of every event of a text."""
    rows = run_of(text + "\n", folder).events
    return list(rows.select("kind", "step", "rank").iter_rows())


def test_swift_memory_and_rewards(tmp_path: Path) -> None:
    """ms-swift's Megatron line gives peak reserved memory, KL, reward and answers' length."""
    line = megatron_line(
        7, consumed_samples="56", **{"memory(GiB)": "80.5", "elapsed_time": "3m 8s"}, loss="0.25",
        kl="0.5", reward="0.75", answers="400.0", **BEHIND,
    ).replace("answers", "completions/mean_length")  # fmt: skip
    row = run_of(line + "\n", tmp_path).readings.row(0, named=True)
    assert row["mem_peak_reserved_bytes"] == 80.5 * GIB
    assert (row["kl"], row["reward"], row["response_length"]) == (0.5, 0.75, 400.0)
    assert "raw/elapsed time" not in row


def test_counts_in_short(tmp_path: Path) -> None:
    """Tokens printed as 1.25B are one and a quarter billion."""
    line = megatron_line(7, consumed_tokens="1.25B", lm_loss="2.5", **BEHIND)
    assert column(run_of(line + "\n", tmp_path), "tokens_seen") == [1.25e9]


def test_two_pairs_between_two_bars(tmp_path: Path) -> None:
    """A fork's `iteration time: 2.5 s samples/sec: 3.8` is two numbers, and no name of its own."""
    text = "".join(
        megatron_line(n, iteration_time=f"{n}.5 s samples/sec: 3.8", lm_loss="2.5", **BEHIND) + "\n"
        for n in (1, 2)
    )
    run = run_of(text, tmp_path)
    assert column(run, "samples_per_s") == [3.8, 3.8]
    assert column(run, "raw/iteration time") == [1.5, 2.5]
    assert not [name for name in run.readings.columns if "s samples" in name]


def test_a_loss_of_another_name_is_not_missing(tmp_path: Path) -> None:
    """A line that prints an actor's loss has a loss: the language model's is not NaN."""
    line = megatron_line(7, learning_rate="1e-5", own="0.125", **BEHIND)
    line = line.replace("/     900", "/infinity").replace("own", "ppo_actor_loss")
    run = run_of(line + "\n", tmp_path)
    assert "loss" not in run.readings.columns
    assert column(run, "aux_loss/ppo_actor_loss") == [0.125]


def test_a_cut_record_is_read_once(tmp_path: Path) -> None:
    """A record that the end of the file cuts gives one row, read by its own reader."""
    text = megatron_line(7, lm_loss="2.5", **BEHIND) + "\n" + megatron_line(8, lm_loss="2.25")
    run = run_of(text + " grad no", tmp_path)
    assert run.readings["step"].to_list() == [7, 8]
    assert column(run, "loss") == [2.5, 2.25]


@pytest.mark.parametrize(
    "bar",
    [
        "Epoch 0: :  40%|####      | 40/100 [06:19<07:13, ",
        "Epoch 0:  40%|####      | 40/100 [06:19<07:13, loss=9.5, v_num=, ",
        "Epoch 1: : 1it [00:04,  4.36s/it, v_num=ab1, ",
    ],
)
def test_nemo_bars(bar: str, tmp_path: Path) -> None:
    """Every NeMo bar gives step and loss; what another message says behind it is not the bar's."""
    text = (
        f"{bar}reduced_train_loss=2.5, global_step=4e+1, consumed_samples=1e+3, "
        "train_step_timing in s=3.25][NeMo I 2031-04-02 10:11:12 x:1] Removing checkpoint: "
        "/x/a--validation_loss=0.5-step=20-consumed_samples=5.0-last.ckpt\n"
    )
    run = run_of(text, tmp_path)
    assert run.meta.framework == "nemo"
    row = run.readings.row(0, named=True)
    assert (row["step"], row["loss"], row["samples_seen"]) == (40, 2.5, 1000.0)
    assert (row["step_time_s"], row.get("raw/validation_loss")) == (3.25, None)


def test_bridge_step_time_of_the_first_version(tmp_path: Path) -> None:
    """Bridge's step time is read with and without MODEL_ in its unit."""
    run = run_of("Step Time : 2.5s GPU utilization: 400.5 TFLOP/s/GPU\n", tmp_path)
    assert run.readings["raw/step time (rank 0)"].to_list() == [2.5]


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("AssertionError: Rank 14: found NaN in local forward loss calculation. Device: 2, node: a",
         ("exception", None, 14)),
        ("AssertionError: Rank 3: found NaN in local grad norm in backward pass before "
         "data-parallel communication collective. Device: 3", ("exception", None, 3)),
        ("FloatingPointError: Loss became infinite or NaN at iteration=77!",
         ("exception", 77, None)),
        ("ValueError: Loss contains inf or nan values, its value is nan",
         ("exception", None, None)),
        ("INFO: Found overflow. Skip step", ("overflow", None, None)),
        ("2031-04-02 10:11:12,345 WARNING optim.py:7 in step -- Overflow occurs, please check it.",
         ("overflow", None, None)),
        ("- INFO - Current global norm [44.5] of step 9 has been 2 consecutive times greater than "
         "threshold: 3.0", ("warning", 9, None)),
        ("ERROR:megatron.core.rerun_state_machine:Rank 3, node n7, device 3, iteration #9: First "
         "rerun: unexpected result is not reproducible within the tolerance", ("note", 9, 3)),
        ("[ERROR] 2031-04-02-10:11:12 (PID:7, Device:0, RankID:8) ERR00100 PTA call acl api failed",
         ("exception", None, 8)),
        ("W NPUStream.cpp:409] Warning: NPU warning, error code is 507046[Error]: ",
         ("comm_timeout", None, None)),
        ("RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64",
         ("comm_error", None, None)),
        ("terminate called after throwing an instance of 'c10::DistBackendError'",
         ("comm_error", None, None)),
        ("terminate called without an active exception", ("exception", None, None)),
        ("ERROR 2031-04-02 10:11:12,345 launch_utils.py:5] ABORT!!! Out of all 4 trainers, the "
         "trainer process with rank=[2] was aborted. Please check its log.",
         ("exception", None, 2)),
        ("RuntimeError: /x/gemm/cublaslt_gemm.cu:7 in function cublas_gemm: cuBLAS Error: the "
         "function failed to launch on the GPU", ("exception", None, None)),
    ],
)  # fmt: skip
def test_failure_texts(
    text: str, event: tuple[str, int | None, int | None], tmp_path: Path
) -> None:
    """Each text of a failure is an event of its kind, at the step and rank that it names."""
    assert event in events(text, tmp_path)


def test_overflows_without_a_rank_and_with_a_colon(tmp_path: Path) -> None:
    """The engine's older words of an overflow give its step and scales too."""
    text = (
        "[2031-04-02 10:11:12,345] [INFO] [x.py:1:_update_scale] Grad overflow on iteration: 75\n"
        "[deepspeed] OVERFLOW! Skipping step. Attempted loss scale: 4096.0, reducing to 2048.0\n"
    )
    assert events(text, tmp_path) == [("overflow", 75, None)]


def test_optimizer_timers_of_fp16(tmp_path: Path) -> None:
    """The fused optimizer's timers are read, in seconds."""
    text = "[INFO] [x.py:1:log_dist] [Rank 0] rank=0 time (ms) | compute_norm: 2.5 | basic_step: 20"
    row = run_of(text + "\n", tmp_path).readings.row(0, named=True)
    assert (row["raw/compute_norm_s"], row["raw/basic_step_s"]) == (0.0025, 0.02)


def test_communication_summary_from_its_first_row(tmp_path: Path) -> None:
    """A row of no bytes (`0B`) does not end the table of operations."""
    text = (
        "Comm. Op            Message Size        Count               Total Latency(ms)   Avg\n"
        "broadcast\n"
        "                    0B                  1        0.5        0.5        0.0        0.0\n"
        "                    2.0 MB              3        1.5        0.5        60.0       60.0\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["raw/comm/broadcast/2.0MB/count"].drop_nulls().to_list() == [3.0]
    assert sum(source.account.unknown for source in run.sources) == 0


def test_flops_profile_past_its_explanations(tmp_path: Path) -> None:
    """The profiler's explained terms and its tree of modules do not end the report."""
    text = (
        "-------------------------- DeepSpeed Flops Profiler --------------------------\n"
        "Profile Summary at step 9:\nNotations:\n"
        "fwd latency (forward propagation latency), bwd latency (backward propagation latency),\n"
        "step (weights update latency), iter latency (sum of fwd, bwd and step latency)\n\n"
        "fwd latency:                                                  1.5 s\n"
        "GPT(\n  12.5 M, 100.00% Params, 7.5 GMACs, 100.00% MACs, 4.5 ms, 100.00% latency,\n"
        "samples/second:                                               48.5\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["raw/profiler/samples_second"].drop_nulls().to_list() == [48.5]
    assert sum(source.account.unknown for source in run.sources) == 0


def test_a_log_line_with_a_decimal_comma_is_no_table(tmp_path: Path) -> None:
    """A log whose first line has `,519 - root - INFO` is read as a log, not as a chart's CSV."""
    text = (
        "2031-04-02 10:11:12,519 - root - INFO - Starting training!\n"
        "2031-04-02 10:11:14,982 - root - INFO - Step: 7 | Loss: 2.5 | MFU (%): 15.03\n"
    )
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [2.5]


def test_a_tab_behind_the_time_of_a_logger(tmp_path: Path) -> None:
    """A timestamp followed by a tab is taken off whole, with all of its digits."""
    run = run_of("2031-04-02 10:11:12,826\tstep: 7, loss: 2.5\n", tmp_path)
    assert run.readings["wall_s"].to_list() == [pytest.approx(1932891072.826)]


def test_a_source_line_number_is_no_metric(tmp_path: Path) -> None:
    """`train.py:323` before a loss is where it was logged, not a number of the run."""
    run = run_of("[INFO train.py:323] step: 7, pid: 12, loss: 2.5\n", tmp_path)
    assert not [name for name in run.readings.columns if ".py" in name or name == "raw/pid"]


def test_the_scale_at_its_floor_ends_the_run(tmp_path: Path) -> None:
    """A trainer that exits at the least loss scale gives a critical finding, not a note."""
    text = (
        "[INFO] [loss_scaler.py:1:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
        "Attempted loss scale: 4, reducing to 2\n"
        "{'loss': 1.75, 'learning_rate': 1e-05, 'epoch': 0.25}\n"
        'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\n    main()\n'
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore.\n"
    )
    assert only(run_of(text, tmp_path), "skipped_steps").severity == "critical"


def test_nan_norm_beside_a_missing_loss(tmp_path: Path) -> None:
    """Where the loss left the line and the norm is NaN, the loss was NaN."""
    line = megatron_line(7, learning_rate="1e-5", loss_scale="1.0", grad_norm="nan")
    (loss,) = column(run_of(line + "\n", tmp_path), "loss")
    assert loss is not None
    assert math.isnan(loss)


def test_forks_that_leave_the_last_bar_out(tmp_path: Path) -> None:
    """ModelLink's and SwissArmyTransformer's lines end with no bar and are whole all the same."""
    text = (
        " iteration 7/ 90 | lm loss: 2.5 | TFLOPs: 140 | tgs (tokens/gpu/second): 350.5 time (ms)\n"
        "[2031-04-02 10:11:12,345] [INFO] [RANK 0]  iteration       8/      90 | elapsed time per "
        "iteration (ms): 1000.5 | learning rate 5.000E-06 | total loss 2.5E+00 | loss 2.25E+00 | "
        "loss scale 1024.0 |speed 222.03 samples/(min*GPU)\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [7, 8]
    assert column(run, "loss") == [2.5, 2.25]
    assert column(run, "tokens_per_s_per_gpu") == [350.5, None]
    assert column(run, "loss_scale") == [None, 1024.0]


def test_pipeline_lines_with_several_losses(tmp_path: Path) -> None:
    """The pipeline engine's further losses keep their own names, and a total is no part of it."""
    text = (
        "steps: 200 loss: 5.5 lm loss: 5.25 moe loss: 0.25 iter time (s): 0.5 samples/sec: 136.5\n"
        "step:   210 / 2000 loss: 5.0 iter time (s): 0.5 samples/sec: 136.5 eta: 2h3m\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [200, 210]
    assert (column(run, "aux_loss/lm"), column(run, "aux_loss/moe")) == ([5.25, None], [0.25, None])
    assert column(run, "step_time_s") == [0.5, 0.5]


def test_an_actor_s_loss_may_break_too(tmp_path: Path) -> None:
    """A run that prints no `loss` but an actor's and a critic's is broken where these are."""
    text = "".join(
        f"epoch: 0|step: {step}|ppo_ep: 1|act_loss: {loss}|cri_loss: 0.5|unsuper_loss: 0.0\n"
        "average reward score: 0.5\n"
        for step, loss in enumerate(("0.25", "0.5", "inf", "inf", "inf"))
    )
    item = only(run_of(text, tmp_path), "loss_nonfinite", "rl")
    assert (item.metric, item.step_first, item.severity) == ("aux_loss/act_loss", 2, "critical")


def test_out_of_memory_of_paddle_and_mindspore(tmp_path: Path) -> None:
    """Other frameworks' words for a full device are the same finding."""
    lines = (
        "Out of memory error on GPU 3. Cannot allocate 1.250000GB memory on GPU 3, 39.4GB memory",
        "OSError: (External) CUDA error(2), out of memory. ",
        "RuntimeError: Memory not enough: Device(id:3) memory isn't enough and alloc failed, "
        "kernel name: graph_1, alloc size: 1024B.",
        "2031-04-02-10:11:12.345 Memory_Allocation_Failure(EL0004): Failed to allocate memory",
    )
    for line in lines:
        assert [kind for kind, _, _ in events(line, tmp_path)] == ["oom"]


def test_paddle_s_launcher_tells_the_signal(tmp_path: Path) -> None:
    """A trainer that Paddle's launcher saw end with code -9 was killed."""
    text = "Container rank 2 status failed cmd ['/x/python', '-u', 't.py'] code -9 log ./w.2"
    assert events(text, tmp_path) == [("killed", None, 2)]
