"""Which step a console row belongs to, source by source; all samples are invented."""

from __future__ import annotations

from pathlib import Path

import pytest
from loganalyze_parsers.tqdm_bar import clock_seconds, find_bars
from textlogs import column, run_of


def row(loss: float, epoch: str, **more: object) -> str:
    """A row with a loss, an epoch as printed, and more."""
    extra = "".join(f"'{key}': {value!r}, " for key, value in more.items())
    return f"{{'loss': {loss}, 'grad_norm': {loss / 3!r}, {extra}'epoch': {epoch}}}\n"


def bar(done: int, total: int, elapsed: str = "01:00") -> str:
    """The Trainer's bar."""
    return f"{100 * done // total:3d}%|##   | {done}/{total} [{elapsed}<10:00,  1.95s/it]"


def test_own_step_wins(tmp_path: Path) -> None:
    """A step in the row itself is believed before any bar."""
    text = bar(77, 100) + row(1.5, "0.1", step=10) + bar(78, 100) + row(1.4, "0.2", step=20)
    assert column(run_of(text, tmp_path), "step") == [10, 20]


def test_jsonl_of_llama_factory_and_swift(tmp_path: Path) -> None:
    """current_steps and "10/438" are steps; a row of mere progress is none."""
    factory = '{"current_steps": 10, "total_steps": 90, "loss": 1.5, "lr": 1e-05, "epoch": 0.1}\n'
    rest = '{"current_steps": 90, "total_steps": 90, "epoch": 3.0, "percentage": 100.0}\n'
    run = run_of(factory + rest, tmp_path, "trainer_log.jsonl")
    assert column(run, "step") == [10]
    swift = '{"loss": 1.5, "grad_norm": 0.5, "epoch": 0.1, "global_step/max_steps": "20/438"}\n'
    assert column(run_of(swift, tmp_path, "logging.jsonl"), "step") == [20]


def test_bar_on_the_same_line_and_above(tmp_path: Path) -> None:
    """The bar's count is the step, whether glued to the row or drawn before it."""
    text = bar(9, 860) + row(1.5, "0.21") + bar(19, 860) + "\n\n" + row(1.25, "0.44")
    assert column(run_of(text, tmp_path), "step") == [9, 19]


def test_bars_of_other_things(tmp_path: Path) -> None:
    """Bars with a text, bars of an evaluation, and quick bars before training are not the step."""
    text = (
        "100%|#####| 7/7 [00:00<00:00, 1800.0it/s]\n"
        "Map: 100%|#####| 900/900 [00:09<00:00, 99.0it/s]\n"
        + bar(10, 860) + row(1.5, "0.1")
        + bar(3, 50) + "\n{'eval_loss': 1.5, 'epoch': 0.1}\n"
        + bar(20, 860) + row(1.25, "0.2")
    )  # fmt: skip
    run = run_of(text, tmp_path)
    assert column(run, "step") == [10, 10, 20]


def test_epoch_times_steps_per_epoch(tmp_path: Path) -> None:
    """Where a banner gives steps and epochs, and the epoch is precise enough, it is the step."""
    text = (
        "   \\\\   /|    Num examples = 295 | Num Epochs = 3 | Total steps = 111\n"
        + row(1.5, "'0.2703'") + row(1.25, "'0.5405'") + "{'eval_loss': '1.5', 'epoch': '1'}\n"
    )  # fmt: skip
    run = run_of(text, tmp_path)
    assert column(run, "step") == [10, 20, 37]


def test_epoch_corrects_a_bar_that_lags(tmp_path: Path) -> None:
    """A bar that was not redrawn is behind: an epoch that says so wins."""
    text = (
        "***** Running training *****\n  Num Epochs = 2\n  Total optimization steps = 100\n"
        + bar(3, 100) + row(1.5, "0.2")
        + bar(20, 100) + row(1.25, "0.4")
    )  # fmt: skip
    assert column(run_of(text, tmp_path), "step") == [10, 20]


def test_rows_count_where_nothing_else_tells(tmp_path: Path) -> None:
    """Without bar and header: the row's number times logging_steps, 1 if that is unknown."""
    rows = row(1.5, "0.0") + row(1.25, "0.0") + row(1.125, "0.01")
    assert column(run_of(rows, tmp_path), "step") == [1, 2, 3]
    assert column(run_of("logging_steps=25,\n" + rows, tmp_path), "step") == [25, 50, 75]


def test_coarse_epochs_bound_the_count(tmp_path: Path) -> None:
    """An epoch too coarse for a step still bounds what counting rows gives."""
    head = "***** Running training *****\n  Num Epochs = 1\n  Total optimization steps = 1000\n"
    run = run_of(head + row(1.5, "0.1") + row(1.25, "0.2"), tmp_path)
    steps = column(run, "step")
    assert steps[0] == pytest.approx(100, abs=5)
    assert steps[1] == pytest.approx(200, abs=5)


def test_step_never_passes_the_total(tmp_path: Path) -> None:
    """The last window of a run may be short."""
    text = bar(460, 464) + row(1.5, "0.98") + bar(462, 464) + row(1.25, "0.99") + "\n"
    text += row(1.125, "1.0") + "\n" + row(1.0625, "1.0")
    steps = column(run_of(text, tmp_path), "step")
    assert steps[:3] == [460, 462, 464]


def test_resumed_run_counts_on(tmp_path: Path) -> None:
    """Rows after a resume count from the checkpoint's step."""
    text = "Continuing training from global step 500\nlogging_steps: 10\n" + row(1.5, "0.5")
    assert column(run_of(text, tmp_path), "step") == [510]


def test_second_run_in_one_file(tmp_path: Path) -> None:
    """The epoch going back is another run: its rows count from the start again."""
    text = row(1.5, "0.5") + row(1.25, "1.0") + row(1.75, "0.5") + row(1.125, "1.0")
    assert column(run_of(text, tmp_path), "step") == [1, 2, 1, 2]


def test_step_time_from_the_bar(tmp_path: Path) -> None:
    """Seconds per step are a difference of elapsed times over at least 30 s, never over an
    evaluation: the bar's own rate is smoothed and has one second's resolution."""
    text = (
        bar(10, 860, "01:40") + row(1.5, "0.1")
        + bar(20, 860, "03:20") + row(1.25, "0.2")
        + bar(21, 860, "03:30") + row(1.25, "0.21")
        + "{'eval_loss': 1.5, 'epoch': 0.21}\n"
        + bar(30, 860, "15:00") + row(1.125, "0.3")
        + bar(40, 860, "16:40") + row(1.0, "0.4")
    )  # fmt: skip
    run = run_of(text, tmp_path)
    times = [(step, value) for step, value in
             run.readings.select("step", "step_time_s").rows() if value is not None]  # fmt: skip
    assert times == [(20, 10.0), (40, 10.0)]


def test_step_time_from_the_row(tmp_path: Path) -> None:
    """LLaMA-Factory's elapsed_time is such a clock, too."""
    text = "".join(
        f'{{"current_steps": {step}, "total_steps": 90, "loss": 1.5, "lr": 1e-05, "epoch": 0.1, '
        f'"elapsed_time": "0:{step // 10:02d}:00"}}\n'
        for step in (10, 20, 30)
    )
    run = run_of(text, tmp_path, "trainer_log.jsonl")
    assert column(run, "step_time_s") == [None, 6.0, 6.0]


def test_loss_in_the_postfix(tmp_path: Path) -> None:
    """Accelerate scripts hang loss and lr onto the bar: one row a step, however often redrawn."""
    text = "\r".join(
        f"Steps:  1%|#  | {done}/1000 [00:{done:02d}<10:00, 1.1s/it, lr=1e-05, step_loss=0.{loss}]"
        for done, loss in ((1, 75), (1, 75), (2, 625), (3, 5))
    )
    run = run_of(text + "\n", tmp_path)
    assert column(run, "step") == [1, 2, 3]
    assert column(run, "loss") == [0.75, 0.625, 0.5]
    assert column(run, "lr") == [1e-5] * 3


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:02", 62.0), ("1:02:03", 3723.0), ("2 days, 3:04:05", 183845.0), ("?", None),
        ("0:15:19.02", 919.02), ("1m 29s", 89.0), ("2d 0h 18m", 173880.0), ("6s", 6.0),
        ("soon", None),
    ],
)  # fmt: skip
def test_clocks(text: str, seconds: float | None) -> None:
    """Every way in which bars and trainers write a span of time."""
    assert clock_seconds(text) == seconds


def test_slow_bars_and_unknown_rates() -> None:
    """`s/it`, `?it/s` and hours are read; text before and after is left alone."""
    (one,) = find_bars("  0%|     | 0/127 [00:00<?, ?it/s]/opt/x.py:1: UserWarning: hm")
    (two,) = find_bars(" 12%|#2   | 120/1000 [1:02:03<7:30:00, 30.1s/it]")
    assert (one.done, one.total, one.elapsed_s) == (0, 127, 0.0)
    assert (two.done, two.elapsed_s) == (120, 3723.0)


def test_run_limited_by_max_steps(tmp_path: Path) -> None:
    """Under max_steps the header rounds the epochs up: examples over batch size tell."""
    head = (
        "***** Running training *****\n  Num examples = 8,000\n  Num Epochs = 1\n"
        "  Total train batch size (w. parallel, distributed & accumulation) = 8\n"
        "  Total optimization steps = 60\n"
    )
    run = run_of(head + row(1.5, "'0.01'") + row(1.25, "'0.02'") + row(1.0, "'0.06'"), tmp_path)
    assert column(run, "step") == [10, 20, 60]
