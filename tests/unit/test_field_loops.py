"""Loops of one's own, as people print them: counters, epochs, bars. All lines are made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from textlogs import column, run_of

from loganalyze.assemble import training_rows
from loganalyze.model import RunLog


def steps(run: RunLog) -> list[int]:
    """Steps of the training rows."""
    found: list[int] = training_rows(run.readings)["step"].to_list()
    return found


def told(values: list[float | None]) -> list[float]:
    """Without the lines that said nothing."""
    return [value for value in values if value is not None]


COUNTERS = [
    "Epoch:[{epoch}/9]({count}/200) loss:{loss} lr:0.0005 epoch_Time:12.0min:",
    "Epoch [{epoch}/9], Step [{count}/200], Loss: {loss}, Disc Loss: 3.5",
    "epoch {epoch} - iter {count}/200 - loss {loss} - samples/sec: 86.35 - lr: 0.0005",
    "[2031-04-02 10:11:12] epoch: {epoch}, file: 1/3, batch: {count}/200, loss: {loss}",
    "Epoch   {epoch} Batch  {count}/200 - Loss: {loss} - perplexity: 25.5",
    "| epoch   {epoch} |   {count}/  200 batches | lr 2.0 | ms/batch 12.5 | loss  {loss} | ppl 9.5",
    "Epoch: {epoch}/9, Iteration: {count}/200, Training Loss: {loss}",
]


@pytest.mark.parametrize("line", COUNTERS)
def test_counters_of_an_epoch_are_counted_through(line: str, tmp_path: Path) -> None:
    """A counter that begins anew with every epoch is no restart: its steps go on."""
    places = [(1, 100, 4.5), (1, 200, 4.25), (2, 100, 4.0), (3, 100, 3.75)]
    text = "".join(line.format(epoch=e, count=c, loss=v) + "\n" for e, c, v in places)
    run = run_of(text, tmp_path)
    assert steps(run) == [100, 200, 300, 500]
    assert column(run, "loss") == [4.5, 4.25, 4.0, 3.75]


def test_counter_of_the_whole_run_stays(tmp_path: Path) -> None:
    """A step that goes on where the epoch moves is the step of the run."""
    text = "".join(
        f"Epoch {e}/3, Step {c}/900, Loss: {v}\n" for e, c, v in ((1, 290, 4.5), (2, 310, 4.0))
    )
    assert steps(run_of(text, tmp_path)) == [290, 310]


def test_steps_without_length_go_on(tmp_path: Path) -> None:
    """Where no line says how long an epoch is, its last step is its length."""
    text = "".join(
        f"Epoch: {e}, Step: {c}, Loss: {v}\n"
        for e, c, v in ((0, 100, 4.5), (0, 300, 4.25), (1, 100, 4.0))
    )
    assert steps(run_of(text, tmp_path)) == [100, 300, 400]


def test_run_begun_anew_in_the_same_file(tmp_path: Path) -> None:
    """An epoch that comes again has the steps it had: that is a restart."""
    text = "".join(
        f"Epoch [{e}/3], Step [{c}/200], Loss: {v}\n"
        for e, c, v in ((1, 100, 4.5), (2, 100, 4.25), (1, 100, 4.5))
    )
    run = run_of(text, tmp_path)
    assert run.readings["step"].to_list() == [100, 300, 100]
    assert run.readings["segment"].n_unique() == 2


def test_epochs_beside_bars(tmp_path: Path) -> None:
    """What is said of an epoch whose steps a bar showed belongs to the bar's last step."""
    text = (
        "100%|####| 190/190 [03:08<00:00,  1.01it/s, train_loss=2.5]\n"
        "my.logger - epoch: 1, lr: 5e-04 - train loss: 2.75 - valid loss: 2.5\n"
        "100%|####| 190/190 [03:02<00:00,  1.04it/s, train_loss=2.0]\n"
        "my.logger - epoch: 2, lr: 5e-04 - train loss: 2.25 - valid loss: 2.25\n"
    )
    run = run_of(text, tmp_path)
    assert steps(run) == [190, 380]
    assert told(column(run, "loss")) == [2.5, 2.0]
    assert told(column(run, "val_loss")) == [2.5, 2.25]
    assert told(column(run, "raw/epoch loss")) == [2.75, 2.25]
    assert run.readings["segment"].n_unique() == 1


def test_counter_lines_that_look_like_another_makers(tmp_path: Path) -> None:
    """A line that another reader only holds, to see how it goes on, is still the loop's counter."""
    text = "".join(
        f"2031-02-03 08:03:2{i},062 INFO     iteration {i}/10000\n"
        f"2031-02-03 08:03:2{i},499 INFO     steps_per_s=443.5, loss=0.{i}5, entropy=7.5\n"
        for i in (4, 5)
    )
    assert steps(run_of(text, tmp_path)) == [4, 5]


def test_steps_behind_the_epoch_in_brackets(tmp_path: Path) -> None:
    """`[   1/   3][ 100/ 1000]` is the step of the run; batches of the epoch stand behind it."""
    text = "".join(
        f"| [   {e}/   3][  {s}/ 1000] | {b}/1932 batches | ms/batch 4.5 | train_loss {v}e-01 | "
        "lr 5.0e-05\n"
        for e, s, b, v in ((1, 400, 1599, 2.5), (2, 500, 67, 2.25))
    )
    run = run_of(text, tmp_path)
    assert steps(run) == [400, 500]
    assert column(run, "lr") == [5e-5, 5e-5]


def test_total_loss_of_updates(tmp_path: Path) -> None:
    """`num_updates` is a step, and a total loss the loss."""
    text = "".join(
        f"progress: {u}/22000, train/total_loss: 0.{u}, max mem: 4378.0, epoch: 2, "
        f"num_updates: {u}, iterations: {u}, lr: 0.00001, ups: 0.72\n"
        for u in (2100, 2200)
    )
    run = run_of(text, tmp_path)
    assert steps(run) == [2100, 2200]
    assert column(run, "loss") == [0.21, 0.22]


def test_numbered_lines(tmp_path: Path) -> None:
    """A bare number before the first bar is the step."""
    text = "40 | loss 5.5 | lr 3.0e-04 | 13673.21ms\n50 | loss 5.25 | lr 3.0e-04 | 13679.11ms\n"
    run = run_of(text, tmp_path)
    assert steps(run) == [40, 50]
    assert column(run, "lr") == [3e-4, 3e-4]


def test_steps_of_speechbrain(tmp_path: Path) -> None:
    """`steps: 1797` is the step although the epoch stands before it."""
    text = "".join(
        f"epoch: {i}, lr: 1e-05, steps: {i}797, optimizer: Adam - train loss: {9 - i}.5e+00 - "
        f"valid loss: 9.5, valid ACC: 1.5e-01\n"
        for i in (1, 2)
    )
    run = run_of(text, tmp_path)
    assert steps(run) == [1797, 2797]
    assert column(run, "val_loss") == [9.5, 9.5]


def test_bars_of_preferences_go_on(tmp_path: Path) -> None:
    """A bar without an epoch's number that begins anew after it was full goes on counting."""
    text = "".join(
        f"Train step of epoch {e}: {c}%|# | {c}/100 [00:{c // 2}<00:10, 2.0it/s, loss={v}]\n"
        for e, c, v in ((0, 50, 0.5), (0, 100, 0.25), (1, 50, 0.125))
    )
    assert steps(run_of(text, tmp_path)) == [50, 100, 150]


def test_means_of_an_epoch_beside_counter_lines(tmp_path: Path) -> None:
    """`Epoch: 2/9` above a line without a counter is the step only where no step was printed."""
    head = "Epoch: 2/9\nTrain Loss: 4.5\nEpoch: 3/9\nTrain Loss: 4.25\n"
    assert steps(run_of(head, tmp_path)) == [2, 3]
    bars = "100%|####| 190/190 [03:08<00:00,  1.01it/s, train_loss=2.5]\n"
    assert steps(run_of(bars + head, tmp_path, "bars.log")) == [190]


def test_a_planned_number_of_steps_is_no_step(tmp_path: Path) -> None:
    """`Total Steps: 900` and `iterations: 900` beside a step say how long the run will be."""
    for more in ("Total Steps: 900", "iterations: 900", "max_steps: 900"):
        text = "".join(f"Epoch: 1, Step: {n}, {more}, Loss: {4 - n / 9}\n" for n in (1, 2))
        assert steps(run_of(text, tmp_path)) == [1, 2]
