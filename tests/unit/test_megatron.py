"""Megatron-family lines, trap by trap; all samples are invented."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from textlogs import column, megatron_line, run_of

FULL = (
    " [2031-01-02 03:04:05] iteration        7/      90 | consumed samples:           56 | "
    "elapsed time per iteration (ms): 2000.5 | throughput per GPU (TFLOP/s/GPU): 101.5 | "
    "learning rate: 2.500000E-04 | global batch size:     8 | lm loss: 4.500000E+00 | "
    "load_balancing_loss: 1.010000E+00 | loss scale: 1.0 | grad norm: 1.250 | num zeros: 3 | "
    "params norm: 88.500 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def test_every_field_in_si_units(tmp_path: Path) -> None:
    """Every field of the line becomes a canonical metric in SI units."""
    run = run_of(FULL, tmp_path)
    row = run.readings.row(0, named=True)
    expected = {
        "step": 7, "samples_seen": 56, "step_time_s": 2.0005, "tflops_per_gpu": 101.5, "lr": 2.5e-4,
        "global_batch_size": 8, "loss": 4.5, "aux_loss/load_balancing_loss": 1.01, "loss_scale": 1,
        "grad_norm": 1.25, "num_zeros": 3, "params_norm": 88.5, "skipped_steps": 0, "nan_steps": 0,
        "wall_s": 1925089445.0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_reference_points_at_the_bytes(tmp_path: Path) -> None:
    """Source, line, offset and length of a reading lead back to the very line."""
    text = "noise\n" + FULL
    run = run_of(text, tmp_path)
    row = run.readings.row(0, named=True)
    cited = text.encode()[row["offset"] : row["offset"] + row["length"]].decode()
    assert row["line"] == 2
    assert cited == FULL.rstrip("\n")


@pytest.mark.parametrize(
    "prefix", ["[default7]:", "7: ", " 7: ", "[rank7]: ", "0: [default7]:", "\x1b[32m7: \x1b[0m"]
)
def test_launcher_prefixes(prefix: str, tmp_path: Path) -> None:
    """Launcher prefixes, stacked or coloured, come off and give the rank."""
    run = run_of(prefix + FULL, tmp_path)
    assert run.readings.select("step", "rank").row(0) == (7, 7)


def test_node_and_local_rank_make_one_rank(tmp_path: Path) -> None:
    """srun's node and torchrun's local rank are joined to one number of the whole job."""
    text = f"0: [default3]: hello\n2: [default1]: {FULL}"
    assert run_of(text, tmp_path).readings["rank"][0] == 2 * 4 + 1


def test_glued_lines_are_both_read(tmp_path: Path) -> None:
    """Two records glued onto one line are two rows with the same line number."""
    text = megatron_line(1, lm_loss="4.0") + megatron_line(2, lm_loss="3.5")
    run = run_of(text + "\n", tmp_path)
    assert run.readings["step"].to_list() == [1, 2]
    assert run.readings["line"].to_list() == [1, 1]


def test_wrapped_record_is_joined(tmp_path: Path) -> None:
    """A record wrapped over several rows, even inside a number, is one reading."""
    whole = megatron_line(3, lm_loss="2.125000E+00", grad_norm="0.500", loss_scale="1.0")
    rows = "\n".join(whole[i : i + 37] for i in range(0, len(whole), 37))
    run = run_of(rows + "\n" + megatron_line(4, lm_loss="2.0") + "\n", tmp_path)
    assert column(run, "loss") == [2.125, 2.0]
    assert column(run, "grad_norm")[0] == 0.5


def test_truncated_tail_drops_only_the_cut_number(tmp_path: Path) -> None:
    """A line cut inside a number keeps the whole numbers before it and not the cut one."""
    run = run_of(FULL + megatron_line(8, lm_loss="4.25") + " grad norm: 1.", tmp_path)
    assert column(run, "loss") == [4.5, 4.25]
    assert column(run, "grad_norm") == [1.25, None]


def test_nan_gradient_alone_tells_a_nan_loss(tmp_path: Path) -> None:
    """A line of nothing but `grad norm: nan` has a NaN loss, unless all its steps were skipped."""
    skipped = " grad norm: nan | number of skipped iterations: 1 |"
    text = (
        megatron_line(5, lm_loss="4.5", grad_norm="1.2") + "\n"
        + megatron_line(6, grad_norm="nan") + "\n"
        + megatron_line(7).rstrip() + skipped + "\n"
    )  # fmt: skip
    first, second, third = column(run_of(text, tmp_path), "loss")
    assert first == 4.5
    assert second is not None
    assert math.isnan(second)
    assert third is None


def test_vanished_loss_is_nan(tmp_path: Path) -> None:
    """A loss that vanishes from a line that was not skipped is read as NaN."""
    fields = {"learning_rate": "1.0E-4", "loss_scale": "1.0", "grad_norm": "nan"}
    skipped = {"number_of_skipped_iterations": "0"}
    text = "\n".join(
        [
            megatron_line(1, learning_rate="1.0E-4", lm_loss="4.0", **skipped),
            megatron_line(2, **fields, **skipped),
        ]
    )
    losses = column(run_of(text, tmp_path), "loss")
    assert losses[0] == 4.0
    assert losses[1] is not None
    assert math.isnan(losses[1])


@pytest.mark.parametrize(
    "name", ["lmXloss", "l- loss", "lm los", 'lm los"s', "lmm loss", "l{{{{"]
)
def test_loss_of_a_damaged_name_is_absent(name: str, tmp_path: Path) -> None:
    """Where damage hit the name of the loss, the loss is absent, not NaN: it was printed."""
    whole = megatron_line(1, learning_rate="1.0E-4", lm_loss="4.0", loss_scale="1.0")
    damaged = megatron_line(2, learning_rate="1.0E-4", lm_loss="3.9", loss_scale="1.0")
    text = f"{whole}\n{damaged.replace('lm loss', name)}\n"
    assert column(run_of(text, tmp_path), "loss") == [4.0, None]


@pytest.mark.parametrize("border", ["| lm loss", " | loss scale"])
def test_loss_beside_a_damaged_border_is_absent(border: str, tmp_path: Path) -> None:
    """Where a `|` beside the loss was hit, the loss was printed all the same."""
    fields = {"learning_rate": "1.0E-4", "lm_loss": "3.9", "loss_scale": "1.0", "grad_norm": "1.0"}
    line = megatron_line(2, **fields)
    assert border in line
    whole = megatron_line(1, lm_loss="4.0", loss_scale="1.0")
    text = f"{whole}\n{line.replace(border, border.replace('|', 't'))}\n"
    assert column(run_of(text, tmp_path), "loss") == [4.0, None]


def test_other_losses_do_not_hide_a_nan(tmp_path: Path) -> None:
    """Losses of other names stay beside a loss that Megatron left out, which is NaN."""
    whole = megatron_line(1, learning_rate="1.0E-4", lm_loss="4.0", loss_scale="1.0")
    others = {"z_loss": "0.1", "load_balancing_loss": "1.1", "mtp_1_loss": "5.0"}
    text = f"{whole}\n{megatron_line(2, learning_rate='1.0E-4', **others, loss_scale='1.0')}\n"
    losses = column(run_of(text, tmp_path), "loss")
    assert losses[1] is not None
    assert math.isnan(losses[1])


def test_loss_of_skipped_interval_is_absent(tmp_path: Path) -> None:
    """A loss that is absent because every step of the interval was skipped is no NaN."""
    text = "\n".join(
        [
            megatron_line(10, learning_rate="0.0", loss_scale="65536.0",
                          number_of_skipped_iterations="10"),
            megatron_line(20, learning_rate="1.0E-5", loss_scale="32768.0",
                          number_of_skipped_iterations="10"),
            megatron_line(30, learning_rate="2.0E-5", lm_loss="9.0", loss_scale="32768.0",
                          number_of_skipped_iterations="1"),
        ]
    )  # fmt: skip
    assert column(run_of(text, tmp_path), "loss") == [None, None, 9.0]


def test_placeholders_are_not_data(tmp_path: Path) -> None:
    """A gradient norm of 0.000 on every line and a loss scale of -1.0 are dropped, and said."""
    text = "\n".join(
        megatron_line(n, lm_loss=f"{5 - n / 10}", loss_scale="-1.0", grad_norm="0.000")
        for n in range(1, 6)
    )
    run = run_of(text, tmp_path)
    assert not {"grad_norm", "loss_scale"} & set(run.readings.columns)
    assert [problem.rule for problem in run.problems] == ["placeholder_metric"]


def test_old_layouts(tmp_path: Path) -> None:
    """Fields without a colon (before v1), lm-loss, lm_loss and seconds are understood."""
    text = (
        " iteration      100/  9000 | elapsed time per iteration (ms): 512.0 | learning rate "
        "1.500E-04 | lm loss 6.250E+00 | loss scale 8.0 |\n"
        "samples/sec: 2.500 | iteration      200/  9000 | elapsed time per iteration (ms): 400.0 "
        "| approx flops per GPU: 9.5TFLOPS | lm_loss: 5.500000E+00 | loss scale: 4.0 |\n"
        "[default3]: iteration      300/  9000 | elapsed time per iteration (s): 2.50 | "
        "lm-loss: 5.000000E+00 | samples per second: 9.5 | TFLOPs: 40.25 |\n"
    )
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [6.25, 5.5, 5.0]
    assert column(run, "step_time_s") == pytest.approx([0.512, 0.4, 2.5])
    assert column(run, "tflops_per_gpu") == [None, 9.5, 40.25]
    assert column(run, "samples_per_s") == [None, 2.5, 9.5]


def test_pairs_of_now_and_average(tmp_path: Path) -> None:
    """Values printed as now/average keep the present one, and the average beside it."""
    text = (
        "[20310102 03:04:05][rank-7/8][INFO ] [-----trainer.py:99] : iteration 12/ 50 | elapsed "
        "time per iteration (ms): 1500.0/1600.0 | hip mem usage/free/total/usage_ratio: "
        "100.00GB/28.00GB/128.00GB/78.13% | lm loss: 2.5E+00 |\n"
    )
    run = run_of(text, tmp_path)
    row = run.readings.row(0, named=True)
    assert (row["rank"], row["step_time_s"]) == (7, 1.5)
    assert row["raw/elapsed time per iteration (ms)/avg"] == 1600.0
    assert row["mem_used_bytes"] == 100 * 1024**3
    assert row["mem_total_bytes"] == 128 * 1024**3


def test_other_lines(tmp_path: Path) -> None:
    """Validation, memory, timers, checkpoints and the argument dump are read."""
    text = (
        "------------------------ arguments ------------------------\n"
        "  clip_grad ....................................... 1.0\n"
        "  lr .............................................. 0.00025\n"
        "-------------------- end of arguments ---------------------\n"
        + FULL
        + "[Rank 3] (after 7 iterations) memory (MB) | allocated: 10.0 | max allocated: 20.5 | "
        "reserved: 30.0 | max reserved: 30.0\n"
        "(min, max) time across ranks (ms):\n"
        "    forward-compute ................................: (100.50, 200.50)\n"
        " validation loss at iteration 7 on 160-sample draw from validation set | "
        "lm loss value: 4.750000E+00 | lm loss PPL: 1.156000E+02 |\n"
        "saving checkpoint at iteration       7 to /ckpt in torch_dist format\n"
        "  successfully saved checkpoint from iteration       7 to /ckpt\n"
    )
    run = run_of(text, tmp_path)
    assert run.meta.config == {"clip_grad": "1.0", "lr": "0.00025"}
    assert run.readings["mem_peak_allocated_bytes"].drop_nulls().to_list() == [20.5 * 1024**2]
    assert run.readings["forward_time_s"].drop_nulls().to_list() == pytest.approx([0.2005])
    assert run.readings["val_loss"].drop_nulls().to_list() == [4.75]
    kinds = run.events["kind"].to_list()
    assert kinds == ["config", "checkpoint_save_begin", "checkpoint_save_end"]
    assert run.events.filter(pl.col("kind") != "config")["step"].to_list() == [7, 7]


def test_account_adds_up(tmp_path: Path) -> None:
    """Read, ignored by a named rule and unknown lines are all the lines there are."""
    run = run_of(FULL + "\nsomething 12 odd = 3\n" + FULL.replace("7/", "8/"), tmp_path)
    account = run.sources[0].account
    assert account.lines == 4
    assert account.lines == account.read + account.ignored_total + account.unknown
    assert account.unknown_samples == ("something 12 odd = 3",)
