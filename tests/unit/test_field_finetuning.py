"""What fine-tuners' logs look like in the field: bars, copies, torn ends. All lines are made up."""

from __future__ import annotations

import json
import math
from pathlib import Path

from textlogs import column, run_of

from loganalyze.assemble import training_rows
from loganalyze.model import RunLog

GIB = 1024.0**3


def steps(run: RunLog) -> list[int]:
    """Steps of the training rows."""
    found: list[int] = training_rows(run.readings)["step"].to_list()
    return found


def unknown(run: RunLog) -> int:
    """Lines that nobody knew."""
    return sum(source.account.unknown for source in run.sources)


def test_rows_that_say_train_runtime_are_rows(tmp_path: Path) -> None:
    """A Trainer that counts tokens prints train_runtime in each row: they are no summaries."""
    rows = "".join(
        f"{{'loss': '{9 - i}.5', 'grad_norm': '1.25', 'learning_rate': '0.0001', 'epoch': '0.{i}', "
        f"'num_input_tokens_seen': {i}000, 'train_runtime': '{40 * i}.5', "
        "'train_tokens_per_second': '900'}\n"
        for i in (1, 2, 3)
    )
    end = "{'train_runtime': '160.5', 'train_samples_per_second': '2', 'train_loss': '7.5'}\n"
    run = run_of(rows + end, tmp_path)
    assert column(run, "loss") == [8.5, 7.5, 6.5]
    assert column(run, "tokens_seen") == [1000.0, 2000.0, 3000.0]
    assert column(run, "step_time_s") == [None, 40.0, 40.0]
    assert [event.get("kind") for event in run.events.to_dicts()] == ["note"]


def test_entries_of_a_state_with_train_runtime_are_rows(tmp_path: Path) -> None:
    """The same rows in trainer_state.json are rows; the last entry is still the summary."""
    history: list[dict[str, object]] = [
        {"loss": 3.5 - i, "epoch": i / 10, "step": i, "train_runtime": 9.5 * i} for i in (1, 2)
    ]
    history.append({"train_runtime": 20.0, "train_loss": 2.0, "epoch": 0.2, "step": 2})
    state = {"global_step": 2, "max_steps": 2, "log_history": history}
    run = run_of(json.dumps(state, indent=2), tmp_path, "trainer_state.json")
    assert column(run, "loss") == [2.5, 1.5]


def test_bars_without_a_drawing_tell_steps(tmp_path: Path) -> None:
    """A notebook's bar has no `|`: it tells the steps of the rows all the same."""
    log = (
        "  3% 30/900 [00:31<15:08,  1.04s/it]{'loss': 2.5, 'learning_rate': 4e-05, 'epoch': 0.1}\n"
        "  4% 40/900 [00:42<14:58,  1.04s/it]\n"
        "  7% 60/900 [01:03<14:40,  1.04s/it]{'loss': 2.0, 'learning_rate': 3e-05, 'epoch': 0.2}\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [30, 60]
    assert unknown(run) == 0


def test_bar_after_the_first_row_tells_its_step(tmp_path: Path) -> None:
    """An excerpt that begins with a row: the bar drawn again behind it says where it stands."""
    log = (
        "{'loss': 2.5, 'learning_rate': 4e-05, 'epoch': 0.41}\n\n"
        " 41%|####1     | 70/170 [1:10:00<1:40:00, 60.00s/it]\n"
        " 47%|####7     | 80/170 [1:20:00<1:30:00, 60.00s/it]\n"
        "{'loss': 2.25, 'learning_rate': 3e-05, 'epoch': 0.47}\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [70, 80]
    assert column(run, "loss") == [2.5, 2.25]


def test_bar_on_the_line_of_the_next_row_is_not_the_first_rows(tmp_path: Path) -> None:
    """A bar glued to a row belongs to that row, not to one on a line before."""
    log = (
        "{'loss': 2.5, 'learning_rate': 4e-05, 'epoch': 0.41}\n"
        " 47%|####7     | 80/170 [1:20:00<1:30:00, 60.00s/it]"
        "{'loss': 2.25, 'learning_rate': 3e-05, 'epoch': 0.47}\n"
    )
    assert steps(run_of(log, tmp_path)) == [1, 80]


def test_copies_without_gradient_norm(tmp_path: Path) -> None:
    """A row that several nodes print counts once, if the learning rate moves with each step."""
    rows = [
        f"{{'loss': {2.5 - i / 100}, 'learning_rate': {1.125e-05 - i * 1e-07}, "
        f"'epoch': 0.{i + 1}}}\n"
        for i in range(4)
    ]
    log = rows[0] + "".join(row * 4 for row in rows[1:])
    run = run_of(log, tmp_path)
    assert steps(run) == [1, 2, 3, 4]


def test_equal_rows_of_a_constant_rate_are_rows(tmp_path: Path) -> None:
    """A learning rate that stands still is no witness: equal rows may be of different steps."""
    row = "{'loss': 2.5, 'learning_rate': 1.125e-05, 'epoch': 0.5}\n"
    other = "{'loss': 2.25, 'learning_rate': 1.125e-05, 'epoch': 0.5}\n"
    assert len(steps(run_of(other + row * 3, tmp_path))) == 4


def test_zero_losses_are_no_copies(tmp_path: Path) -> None:
    """A loss of 0 says the same at every step."""
    warm = "{'loss': 1.5, 'learning_rate': 1.5e-05, 'epoch': 0.5}\n"
    row = "{'loss': 0.0, 'learning_rate': 1.125e-05, 'epoch': 0.5}\n"
    assert len(steps(run_of(warm + row * 3, tmp_path))) == 4


def test_lightning_counts_through_the_epochs(tmp_path: Path) -> None:
    """A step is the epoch times the bar's length plus its count; its own loss is the loss."""
    head = "|###    | "
    log = (
        f"Epoch 0:  50%{head}50/100 [00:50<00:50,  1.00it/s, v_num=7, train_loss_step=3.5]\n"
        f"Validation DataLoader 0:  50%{head}5/10 [00:02<00:02, 2.50it/s]\n"
        f"Epoch 0: 100%{head}100/100 [01:40<00:00,  1.00it/s, v_num=7, train_loss_step=3.0, "
        "val_loss=3.25, train_loss_epoch=3.3]\n"
        f"Epoch 1:  50%{head}50/100 [00:50<00:50,  1.00it/s, v_num=7, train_loss_step=2.5, "
        "val_loss=3.25, train_loss_epoch=3.3]\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [50, 100, 150]
    assert column(run, "loss") == [3.5, 3.0, 2.5]
    assert column(run, "val_loss") == [None, 3.25, None]
    assert column(run, "step_time_s") == [None, 1.0, None]


def test_last_drawing_of_a_step_counts(tmp_path: Path) -> None:
    """Lightning moves the bar before it renews the numbers: the first drawing shows old ones."""
    log = "".join(
        f"Epoch 0:  1%|# | {done}/90 [00:0{done}<01:00, 1.00it/s, loss={loss}, v_num=7]\n"
        for done, loss in ((1, 4.5), (2, 4.5), (2, 4.25), (3, 4.25), (3, 4.0))
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [1, 2, 3]
    assert column(run, "loss") == [4.5, 4.25, 4.0]


def test_loops_that_count_epochs_from_one(tmp_path: Path) -> None:
    """A loop of one's own begins at its first epoch, whatever it calls that."""
    log = "".join(
        f"Epoch {epoch}/3:  10%|# | {done}/20 [00:02<00:20, 1.00s/it, loss={loss}]\n"
        for epoch, done, loss in ((1, 10, 4.5), (1, 20, 4.0), (2, 10, 3.5))
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [10, 20, 30]


def test_torn_bar_is_read(tmp_path: Path) -> None:
    """A bar cut by the width of a terminal is read but for the number that may be cut."""
    log = (
        "Epoch 0:  95%|#### | 700/736 [7:49:12<22:00,  2.55it/s, loss=nan, v_num=ab12, lr=0.00\n"
        "1]   Traceback (most recent call last):\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [700]
    assert math.isnan(column(run, "loss")[0] or 0.0)
    assert "lr" not in run.readings.columns


def test_rich_bars_of_lightning(tmp_path: Path) -> None:
    """The bar that rich draws says the same as that of tqdm."""
    log = "".join(
        f"Epoch {epoch}/4  ━━━━━━╸━━━━ {done}/50 0:00:{done} • 0:01:00 1.00it/s v_num: 2.000 "
        f"train_loss: {loss}\n"
        for epoch, done, loss in ((0, 25, 2.5), (0, 50, 2.25), (1, 25, 2.0))
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [25, 50, 75]
    assert column(run, "loss") == [2.5, 2.25, 2.0]


def test_torchtune_bar_says_its_step(tmp_path: Path) -> None:
    """torchtune's description has the step of the whole run, and launchers may stand before it."""
    log = (
        "[trainer0|0]:1|54|Loss: 1.5:  54%|#####4    | 54/100 [15:00<11:17, 14.73s/it]\n"
        "[trainer0|0]:1|54|Loss: 1.5:  55%|#####5    | 55/100 [15:15<11:17, 14.73s/it]"
        "[trainer0|0]:\n"
        "[trainer0|0]:2|101|Loss: 1.25:   1%|1         | 1/100 [00:15<24:17, 14.73s/it]\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [54, 101]
    assert column(run, "loss") == [1.5, 1.25]
    assert unknown(run) == 0


def test_torchtune_file_has_units(tmp_path: Path) -> None:
    """In torchtune's file the memory is in GiB, and in bytes where it was printed so."""
    log = (
        "Step 1 | loss:2.5 lr:2e-05 tokens_per_second_per_gpu:650.5 peak_memory_reserved:16.5\n"
        "Step 2 | loss:2.25 lr:2e-05 peak_memory_reserved:17179869184 grad_norm:1.5\n"
    )
    run = run_of(log, tmp_path)
    assert column(run, "mem_peak_reserved_bytes") == [16.5 * GIB, 16.0 * GIB]
    assert column(run, "tokens_per_s_per_gpu") == [650.5, None]
    assert column(run, "grad_norm") == [None, 1.5]


def test_loss_in_the_description_of_a_bar(tmp_path: Path) -> None:
    """A loss before the percentage is that of the step; a validation's bar is none of training."""
    log = (
        "2031-04-02 10:11:12,345 - train loss:   0%|  | 0/200 [00:00<?, ?it/s]\n"
        "2031-04-02 10:12:12,345 - train loss: 1.50:  50%|#  | 100/200 [01:00<01:00, 1.6it/s]\n"
        "2031-04-02 10:13:12,345 - train loss: 1.25: 100%|## | 200/200 [02:00<00:00, 1.6it/s]\n"
        "2031-04-02 10:13:20,345 - val loss: 1.75:  50%|#  | 5/10 [00:05<00:05, 1.0it/s]\n"
        "2031-04-02 10:13:30,345 - Mean val_loss: 1.625, mean val_perplexity: 5.1\n"
        "2031-04-02 10:14:12,345 - train loss: 1.00:  50%|#  | 100/200 [01:00<01:00, 1.6it/s]\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [100, 200, 300]
    assert column(run, "val_loss") == [None, None, 1.625, None]


def test_llama_recipes_epochs(tmp_path: Path) -> None:
    """Epochs of llama-recipes follow each other; their end belongs to the last step."""
    log = (
        "Training Epoch: 1/2, step 39/40 completed (loss: 1.5): 99%|#| 40/40 [05:00<00:00, 7s/it]\n"
        "Max CUDA memory allocated was 18 GB\n"
        " eval_ppl=tensor(4.5, device='cuda:0') eval_epoch_loss=tensor(1.5, device='cuda:0')\n"
        "Epoch 1: train_perplexity=5.5, train_epoch_loss=1.75, epoch time 305.5s\n"
        "Training Epoch: 2/2, step 0/40 completed (loss: 1.25):  2%|  | 1/40 [00:07<04:50, 7s/it]\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [40, 41]
    assert column(run, "mem_peak_allocated_bytes") == [None, 18 * GIB, None, None, None]
    assert column(run, "val_loss") == [None, None, 1.5, None, None]
    assert column(run, "raw/train_epoch_loss") == [None, None, None, 1.75, None]


def test_tensors_of_pefts_examples(tmp_path: Path) -> None:
    """One line an epoch with tensors printed as they are."""
    log = "".join(
        f"epoch={i}: train_ppl=tensor({9 - i}.5, device='cuda:0') "
        f"train_epoch_loss=tensor({3 - i}.25, device='cuda:0') "
        f"eval_ppl=tensor(7.5, device='cuda:0') eval_epoch_loss=tensor(2.0)\n"
        for i in (0, 1)
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [0, 1]
    assert column(run, "loss") == [3.25, 2.25]
    assert column(run, "val_loss") == [2.0, 2.0]
    assert column(run, "perplexity") == [9.5, 8.5]


def test_epochs_of_a_loop_that_prints_steps(tmp_path: Path) -> None:
    """Means over an epoch stand at the last step: they are no restart, and no row of the curve."""
    log = (
        "Step: 20, Loss: 3.5, Tokens/s: 900.5\n"
        "Step: 40, Loss: 3.25, Tokens/s: 900.5\n"
        "Epoch 1 | Train Loss: 3.75 | Val Loss: 3.5 | Time: 12.5s\n"
        "Step: 60, Loss: 3.0, Tokens/s: 900.5\n"
        "Epoch 2 | Train Loss: 3.25 | Val Loss: 3.0 | Time: 12.5s\n"
    )
    run = run_of(log, tmp_path)
    assert column(run, "loss") == [3.5, 3.25, None, 3.0, None]
    assert column(run, "val_loss") == [None, None, 3.5, None, 3.0]
    assert run.readings["step"].to_list() == [20, 40, 40, 60, 60]
    assert run.readings["segment"].unique().to_list() == [0]


def test_litgpts_releases(tmp_path: Path) -> None:
    """Every spelling of an iteration is read, a validation once, forks' seconds as seconds."""
    log = (
        "Ep 1 | iter 1 | stEp 1: loss train (curr): 2.5, val (prev val iter): None | iter time: "
        "250.00 ms\n"
        "iter 20 | step 5: loss 2.25, iter time: 125.00 ms (optimizer.step)\n"
        "iter 24: val loss 2.125, val time: 3778.02 ms\n"
        "Epoch 1 | iter  28 step  7 | loss train: 2.0, val_loss valid: 2.125 | iter time: 35.5 s\n"
        "Memory used: 14.50 GB\n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [1, 20, 28]
    assert column(run, "val_loss") == [None, None, 2.125, None, None]
    assert column(run, "step_time_s") == [0.25, 0.125, None, 35.5, None]
    assert run.readings["mem_peak_allocated_bytes"].drop_nulls().to_list() == [14.5e9]


def test_fairseq_of_2018(tmp_path: Path) -> None:
    """Without num_updates the step is counted through the epochs; means stay beside the curve."""
    log = (
        "| epoch 002  500 / 1000 loss=4.00 (4.50), wps=950, bsz=32, lr=0.001, gnorm=2.5\n"
        "| epoch 002 | train loss 4.50 | train ppl 22.63 | words/s 950 | lr 0.001000 | gnorm 2.25\n"
        "| epoch 002 | valid on 'valid' subset  10 / 20 loss=5.00\n"
        "| epoch 002 | valid on 'valid' subset | valid loss 5.00 | valid ppl 32.00\n"
        "| epoch 003  500 / 1000 loss=3.00 (3.50), wps=950, bsz=32, lr=0.001, gnorm=2.5\n"
    )
    run = run_of(log, tmp_path)
    bits = math.log(2.0)
    assert steps(run) == [1500, 2500]
    assert [v for v in column(run, "loss") if v is not None] == [4 * bits, 3 * bits]
    assert [v for v in column(run, "val_loss") if v is not None] == [5 * bits]
    assert [v for v in column(run, "raw/epoch loss") if v is not None] == [4.5 * bits]
    assert unknown(run) == 0


def test_fairseq_validation_with_its_prefix(tmp_path: Path) -> None:
    """`valid_loss` of a pipe and `train_loss` of an epoch's JSON are read."""
    log = (
        "| epoch 007 | valid on 'valid' subset | valid_loss 4.0 | valid_ppl 16 | num_updates 700\n"
        '2031-04-02 10:11:12 | INFO | train | {"epoch": 8, "train_loss": "3.0", "train_ppl": "8", '
        '"train_num_updates": "800", "train_gnorm": "1.5", "train_wall": "900"}\n'
    )
    run = run_of(log, tmp_path)
    assert column(run, "val_loss") == [4 * math.log(2.0), None]
    assert column(run, "loss") == [None, 3 * math.log(2.0)]
    assert run.readings["step"].to_list() == [700, 800]


def test_log_with_commas_in_its_times_is_no_chart(tmp_path: Path) -> None:
    """Lines of `time,ms - INFO - text` are a log, not the CSV of a chart."""
    log = "".join(
        f"0 | 2031-04-02 10:1{i}:12,345 - INFO - my.trainer : [Iter {i}00 / 900] loss: {5 - i}.5\n"
        for i in (1, 2, 3)
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [100, 200, 300]
    assert run.sources[0].parser == "text"


def test_prefix_and_escapes_of_mpirun(tmp_path: Path) -> None:
    """What mpirun's tags and a system logger's escapes stand before or in is read."""
    log = (
        "[1,mpirank:0,algo-1]<stdout>:#015Epoch 0:  50% 50/100 [00:50<00:50, 1.0it/s, loss=2.5, "
        "v_num=0]\n"
        "[1,mpirank:0,algo-1]<stdout>:#015Validation: 0it [00:00, ?it/s]#033[A\n"
        "[1,3]<stderr>:{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    )
    run = run_of(log, tmp_path)
    assert sorted(v for v in column(run, "loss") if v is not None) == [1.5, 2.5]
    assert sorted(run.readings["rank"].to_list()) == [0, 3]


def test_axolotls_tokens_per_second(tmp_path: Path) -> None:
    """axolotl's newer name is a rate of one GPU; a 0 is none."""
    log = "".join(
        f"{{'loss': {2.5 - i}, 'grad_norm': 1.5, 'learning_rate': 1e-05, "
        f"'tokens_per_second_per_gpu': {i}50.5, 'epoch': 0.{i}}}\n"
        for i in (1, 2)
    )
    assert column(run_of(log, tmp_path), "tokens_per_s_per_gpu") == [150.5, 250.5]


def test_dllogger_behind_a_bar(tmp_path: Path) -> None:
    """NVIDIA's DLLogger prints behind a bar that it did not draw."""
    log = (
        "Iteration:  23%|##3  | 650/2771 [01:23<04:25,  7.98it/s]DLL 2031-04-05 05:10:36.324733 - "
        "Training Epoch: 0 Training Iteration: 651  step_loss : 2.5  learning_rate : 3e-05 \n"
    )
    run = run_of(log, tmp_path)
    assert steps(run) == [651]
    assert (column(run, "loss"), column(run, "lr")) == ([2.5], [3e-05])


def test_average_loss_on_a_bar(tmp_path: Path) -> None:
    """Trainers of adapters for images hang a mean loss onto their bar, NaN included."""
    log = "steps:  20%|##  | 660/3300 [32:17<2:09:08,  2.94s/it, avr_loss=nan]\n"
    run = run_of(log, tmp_path)
    assert steps(run) == [660]
    assert math.isnan(column(run, "loss")[0] or 0.0)


def test_progress_bar_of_a_notebook(tmp_path: Path) -> None:
    """What the Trainer draws in a notebook carries no number of training: the table below does."""
    log = "[ 22/290 02:50 < 38:04, 0.12 it/s, Epoch 0.36/5]\nStep\tTraining Loss\n10\t1.812300\n"
    run = run_of(log, tmp_path)
    assert column(run, "loss") == [1.8123]
    assert run.sources[0].account.ignored["progress bar of a notebook"] == 1
