"""Console rows of the Trainer and its kin: values, units and meanings; all samples are invented."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import polars as pl
import pytest
from loganalyze_parsers.api import Line
from loganalyze_parsers.huggingface import HuggingFaceReader
from loganalyze_parsers.huggingface_keys import values_of
from textlogs import column, run_of

from loganalyze.model import LineRef, RunLog

ROW = "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 4.5e-05, 'epoch': 0.12}"


def first(text: str, folder: Path) -> dict[str, float]:
    """The first row that has a loss or another number."""
    return dict(run_of(text, folder).readings.row(0, named=True))


def details(run: RunLog, kind: str) -> list[dict[str, object]]:
    """Details of the events of a kind."""
    return [json.loads(d) for d in run.events.filter(pl.col("kind") == kind)["detail"]]


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        "{'loss': '1.25', 'grad_norm': '0.5', 'learning_rate': '4.5e-05', 'epoch': '0.12'}",
        "{'loss': 1.25, 'grad_norm': '0.5', 'learning_rate': '4.5e-05', 'epoch': 0.12}",
        '{"loss": 1.25, "grad_norm": 0.5, "learning_rate": 4.5e-05, "epoch": 0.12}',
        "{'loss': np.float64(1.25), 'grad_norm': 0.5, 'learning_rate': 4.5e-05, 'epoch': 0.12}",
        "{'train/loss': 1.25, 'train/grad_norm': 0.5, 'train/learning_rate': 4.5e-05, "
        "'train/epoch': 0.12}",
        ROW.replace("'loss':", "'loss':\ufe0f"),
        ROW + " " * 90,
        "\x1b[32m" + ROW + "\x1b[0m",
        "  1%|#    | 9/860 [00:43<1:05:18,  4.60s/it]" + ROW,
        "  1%|#    | 8/860 [00:40<1:05:18,  4.60s/it]\r" + " " * 60 + "\r" + ROW,
        "[2031-04-02 10:11:12,345] [INFO] [axolotl.train.train:9] [PID:77] [RANK:0] " + ROW,
        "04/02/2031 10:11:12 - INFO - __main__ - " + ROW,
        "(RayTrainWorker pid=4321) " + ROW,
        "[rank0]: " + ROW,
        "warning: tokenizer is slow" + ROW,
    ],
)
def test_every_look_of_a_row(row: str, tmp_path: Path) -> None:
    """Eras, quoting, colours, bars, prefixes and paste damage do not change the numbers."""
    got = first(row + "\n", tmp_path)
    expected = {"loss": 1.25, "grad_norm": 0.5, "lr": 4.5e-5, "epoch": 0.12}
    assert {name: got[name] for name in expected} == expected


def test_two_ranks_glued_on_one_line(tmp_path: Path) -> None:
    """Two dictionaries on one line are two rows; text in between does no harm."""
    other = ROW.replace("1.25", "1.5")
    run = run_of(f"{ROW}{other}\n", tmp_path)
    assert column(run, "loss") == [1.25, 1.5]


def test_nan_and_infinity(tmp_path: Path) -> None:
    """nan, inf and -inf are numbers; None is nothing."""
    text = "{'loss': nan, 'grad_norm': inf, 'learning_rate': None, 'kl': -inf, 'epoch': 0.1}\n"
    got = first(text, tmp_path)
    assert math.isnan(got["loss"])
    assert (got["grad_norm"], got["kl"]) == (math.inf, -math.inf)
    assert "lr" not in got


def test_torn_rows_keep_their_complete_numbers(tmp_path: Path) -> None:
    """Either end may be missing; a number that the end of the file cut is not believed."""
    text = ROW + "\n" + "{'loss': 0.75, 'grad_norm': 0.25, 'learning_rate': 1.9"
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [1.25, 0.75]
    assert column(run, "lr") == [4.5e-5, None]
    tail = run_of(ROW[1:] + "\n", tmp_path, "tail.log")
    assert column(tail, "loss") == [1.25]


@pytest.mark.parametrize("cut", [9, 20, 45, 60, 70])
def test_wrapped_row(cut: int, tmp_path: Path) -> None:
    """A row wrapped by a terminal is one row, at the place of both lines."""
    text = f"{ROW[:cut]}\n{ROW[cut:]}\n{ROW.replace('1.25', '1.125')}\n"
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [1.25, 1.125]
    assert column(run, "lr") == [4.5e-5, 4.5e-5]
    reading = run.readings.row(0, named=True)
    assert text[reading["offset"] : reading["offset"] + reading["length"]] == text[: len(ROW) + 1]


def test_pretty_printed_row(tmp_path: Path) -> None:
    """A dictionary printed over many lines, one pair a line, is one row."""
    text = ROW.replace(", ", ",\n ") + "\n" + ROW.replace("1.25", "1.125") + "\n"
    assert column(run_of(text, tmp_path), "loss") == [1.25, 1.125]


@pytest.mark.parametrize(
    "line",
    [
        "perf 4: {'loss': 1.0, 'epoch': 2, 'perf/rollout_time': 3.0}",
        "Global step 40: {'loss': 1.0, 'epoch': 2}",
        '{"epoch": 1, "update": 0.04, "loss": "3.9", "num_updates": "40", "lr": "0.0005"}',
        '{"mode": "train", "epoch": 1, "iter": 40, "lr": 0.1, "loss": 1.0}',
        '"metrics": {"loss": 1.0, "epoch": 2}',
        '{"log_history": [{"loss": 1.0, "epoch": 2, "step": 3}]}',
        "{'model': {'lr': 0.1}, 'epochs': 3}",
        "config = {'learning_rate': 0.1, 'epoch': 3}",
    ],
)
def test_dictionaries_of_other_makers(line: str) -> None:
    """Other trainers' and nested dictionaries are not the Trainer's rows."""
    reader = HuggingFaceReader()
    ref = LineRef(source=0, line=1, offset=0, length=len(line))
    taken = [reader.feed(Line(text=line, ref=ref)), reader.finish()]
    assert not [reading for one in taken if one for reading in one.readings]


def test_evaluation_rows_are_no_training_rows(tmp_path: Path) -> None:
    """eval_loss is val_loss at the step of the row before; other eval numbers are raw."""
    text = ROW + "\n{'eval_loss': '1.5', 'eval_runtime': '36.4', 'epoch': '0.12'}\n"
    run = run_of(text, tmp_path)
    assert column(run, "loss") == [1.25, None]
    assert column(run, "val_loss") == [None, 1.5]
    assert column(run, "step") == [1, 1]
    assert column(run, "raw/eval_runtime") == [None, 36.4]


def test_prediction_rows(tmp_path: Path) -> None:
    """Rows of a prediction have a prefix of their own: kept as raw at the last step."""
    text = ROW + "\n{'test_loss': 1.5, 'test_runtime': 9.5, 'test_steps_per_second': 3.25}\n"
    run = run_of(text, tmp_path)
    assert column(run, "raw/test_loss") == [None, 1.5]
    assert column(run, "step") == [1, 1]


def test_last_row_is_a_summary(tmp_path: Path) -> None:
    """trainer.py's last dictionary holds means over the whole run: a note, not a loss."""
    text = ROW + (
        "\n{'train_runtime': 282.25, 'train_samples_per_second': 177.5, "
        "'train_steps_per_second': 11.0, 'train_loss': 0.25, 'epoch': 2.0}\n"
    )
    run = run_of(text, tmp_path)
    assert run.readings.height == 1
    (note,) = details(run, "note")
    assert (note["train_loss"], note["train_runtime"]) == (0.25, 282.25)


HIDDEN = [
    ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}", math.nan, 1.0),
    ("{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '1e-05', 'epoch': '0.1'}", math.nan, 1.0),
    ("{'loss': 1.25, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.13}", 1.25, 1.0),
    ("{'loss': 1.26, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.13}", 1.26, None),
    ("{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-05, 'epoch': 0.13}", 0.0, None),
    ("{'loss': 0.0, 'learning_rate': 1e-05, 'epoch': 0.13}", 0.0, None),
]


@pytest.mark.parametrize(("row", "loss", "flag"), HIDDEN)
def test_nan_filter_is_undone(row: str, loss: float, flag: float | None, tmp_path: Path) -> None:
    """logging_nan_inf_filter prints 0.0, or the row before again, for a NaN loss: grad_norm nan
    gives it away; a 0 that nothing contradicts (GRPO, a saturated DPO) stays 0."""
    run = run_of(f"{ROW}\n{row}\n", tmp_path)
    got = column(run, "loss")[1]
    assert got is not None
    assert got == loss or (math.isnan(got) and math.isnan(loss))
    flags = run.readings["raw/nan_hidden"][1] if "raw/nan_hidden" in run.readings.columns else None
    assert flags == flag
    told = [problem for problem in run.problems if problem.rule == "nan_hidden_by_trainer"]
    assert len(told) == (flag is not None)


CLAIMS = [
    # TRL SFT (trl/trainer/sft_trainer.py): share of right tokens, cumulative tokens
    ({"mean_token_accuracy": "0.75", "num_tokens": "4096.0"},
     {"token_accuracy": 0.75, "tokens_seen": 4096.0}),
    # TRL DPO: log-probabilities and implicit rewards have no canonical name
    ({"rewards/chosen": "-1.5", "rewards/accuracies": "0.625", "logps/chosen": "-336.5"},
     {"raw/rewards/chosen": -1.5, "raw/rewards/accuracies": 0.625, "raw/logps/chosen": -336.5}),
    # TRL GRPO, three generations of length and clipping
    ({"completion_length": "163.0", "clip_ratio": "0.25", "reward": "0.5", "reward_std": "0.125"},
     {"response_length": 163.0, "clip_fraction": 0.25, "reward": 0.5, "reward_std": 0.125}),
    ({"completions/mean_length": "396.5", "clip_ratio/region_mean": "0.125", "kl": "0.01"},
     {"response_length": 396.5, "clip_fraction": 0.125, "kl": 0.01}),
    ({"entropy": "0.375", "frac_reward_zero_std": "0.5", "rewards/fn/mean": "0.25"},
     {"entropy": 0.375, "raw/frac_reward_zero_std": 0.5, "raw/rewards/fn/mean": 0.25}),
    # TRL PPO (ppo_trainer.py): no loss; entropy of the policy is per token, objective/entropy a sum
    ({"objective/kl": "10.5", "objective/rlhf_reward": "1.25", "policy/entropy_avg": "0.75",
      "objective/entropy": "96.0", "policy/clipfrac_avg": "0.0625", "loss/policy_avg": "-0.5",
      "loss/value_avg": "0.25", "lr": "2e-06"},
     {"kl": 10.5, "reward": 1.25, "entropy": 0.75, "raw/objective/entropy": 96.0,
      "clip_fraction": 0.0625, "aux_loss/policy": -0.5, "aux_loss/value": 0.25, "lr": 2e-6}),
    # ms-swift: peak of the reserved memory in GiB, a cumulative speed, clocks as words
    ({"token_acc": "0.5", "memory(GiB)": "2.0", "train_speed(iter/s)": "0.25",
      "elapsed_time": "'1h 2m 3s'", "percentage": "'2.5%'"},
     {"token_accuracy": 0.5, "mem_peak_reserved_bytes": 2.0 * 1024**3,
      "raw/train_speed(iter/s)": 0.25, "raw/elapsed_s": 3723.0, "raw/percentage": 2.5}),
    # LLaMA-Factory: cumulative throughput; 0 where it does not count
    ({"throughput": "'0.00'", "total_tokens": "0", "vram_reserved": "1.5"},
     {"raw/throughput": 0.0, "raw/total_tokens": 0.0, "mem_peak_reserved_bytes": 1.5 * 1024**3}),
    # axolotl: keys with spaces
    ({"memory/max_active (GiB)": "'3.0'", "tokens/train_per_sec_per_gpu": "'512'", "ppl": "'4.5'"},
     {"mem_active_bytes": 3.0 * 1024**3, "tokens_per_s_per_gpu": 512.0, "perplexity": 4.5}),
]  # fmt: skip


@pytest.mark.parametrize(("pairs", "expected"), CLAIMS)
def test_names_and_units(pairs: dict[str, str], expected: dict[str, float]) -> None:
    """Each trainer's fields become canonical names in SI units, or raw ones; none is dropped."""
    assert values_of(pairs) == pytest.approx(expected)


def test_numbers_equal_a_slow_second_reader(tmp_path: Path) -> None:
    """ast.literal_eval, the obvious way, reads the same numbers from the same rows."""
    rows = [
        f"{{'loss': {1.0 / k!r}, 'grad_norm': {k * 1.0e-7!r}, 'learning_rate': {3e-5 / k!r}, "
        f"'rewards/margins': {-k / 7!r}, 'epoch': {k / 16!r}}}"
        for k in range(1, 40)
    ]
    run = run_of("\n".join(rows), tmp_path)
    slow = [ast.literal_eval(row) for row in rows]
    metrics = {"learning_rate": "lr", "rewards/margins": "raw/rewards/margins"}
    for key in slow[0]:
        metric = metrics.get(key, key)
        assert column(run, metric) == [row[key] for row in slow]


def test_copies_by_unnamed_ranks(tmp_path: Path) -> None:
    """Rows that every rank prints word for word count once; rows that may repeat honestly don't."""
    row = ROW.replace("0.5,", "0.51234567890123,")
    assert run_of(f"{row}\n{row}\n", tmp_path).readings.height == 1
    zero = "{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    assert run_of(zero * 3, tmp_path).readings.height == 3


def test_named_ranks_keep_their_rows(tmp_path: Path) -> None:
    """Rows of ranks that say who they are stay apart, each with its own count of steps."""
    run = run_of(f"[rank0]: {ROW}\n[rank1]: {ROW}\n[rank0]: {ROW}\n[rank1]: {ROW}\n", tmp_path)
    assert run.readings.select("rank", "step").rows() == [(0, 1), (1, 1), (0, 2), (1, 2)]


TABLE = """Step | Training Loss | Validation Loss | reward | rewards / format
-- | -- | -- | -- | --
10 | 1.250000 | No Log | 0.500000 | 1.5
20 | 1.125000 | 1.375000 | nan | -1.5
"""


@pytest.mark.parametrize("edge", ["", "| "])
def test_notebook_table(edge: str, tmp_path: Path) -> None:
    """Markdown tables of notebooks: `No Log` is nothing, names with spaces are joined."""
    text = "\n".join(edge + line for line in TABLE.splitlines())
    run = run_of(f"notes\n\n{text}\n\nend of table\n", tmp_path)
    assert column(run, "step") == [10, 20]
    assert column(run, "loss") == [1.25, 1.125]
    assert column(run, "val_loss") == [None, 1.375]
    assert column(run, "raw/rewards/format") == [1.5, -1.5]


def test_html_table(tmp_path: Path) -> None:
    """The HTML that the notebook callback writes, one cell a line, is the same table."""
    cells = "".join(f"      <th>{name}</th>\n" for name in ("Step", "Training Loss"))
    rows = "".join(
        f"    <tr>\n      <td>{step}</td>\n      <td>{loss}</td>\n    </tr>\n"
        for step, loss in ((10, "1.250000"), (20, "nan"))
    )
    text = f"<table>\n  <thead>\n{cells}  </thead>\n  <tbody>\n{rows}  </tbody>\n</table><p>\n"
    run = run_of(text, tmp_path)
    assert column(run, "step") == [10, 20]
    losses = column(run, "loss")
    assert losses[0] == 1.25
    assert losses[1] is not None
    assert math.isnan(losses[1])


def test_header_and_end_blocks(tmp_path: Path) -> None:
    """The header is configuration, an evaluation's sizes are not; end metrics are notes."""
    text = (
        "[INFO|trainer.py:9] 2031-04-02 10:11:12,345 >> ***** Running training *****\n"
        "[INFO|trainer.py:9] 2031-04-02 10:11:12,345 >>   Num examples = 1,234\n"
        "  Num Epochs = 3\n"
        "  Total train batch size (w. parallel, distributed & accumulation) = 64\n"
        "  Total optimization steps = 57\n"
        f"{ROW}\n"
        "***** Running Evaluation *****\n  Num examples = 99\n"
        "Saving model checkpoint to out/checkpoint-50\n"
        "tokenizer config file saved in out/checkpoint-50/tokenizer_config.json\n"
        "***** train metrics *****\n"
        "  train_loss               =     1.5\n"
        "  train_runtime            = 0:15:19.50\n"
    )
    run = run_of(text, tmp_path)
    config = run.meta.config
    assert (config["num_examples"], config["global_batch_size"]) == ("1234", "64")
    assert (config["max_steps"], config["num_train_epochs"]) == ("57", "3")
    notes = {key: value for note in details(run, "note") for key, value in note.items()}
    assert (notes["train_loss"], notes["train_runtime"]) == (1.5, 919.5)
    saves = run.events.filter(pl.col("kind").str.starts_with("checkpoint"))
    assert saves.select("kind", "step").rows() == [
        ("checkpoint_save_begin", 50), ("checkpoint_save_end", 50),
    ]  # fmt: skip
    assert run.sources[0].account.unknown == 0


def test_rows_that_logger_and_console_print(tmp_path: Path) -> None:
    """LLaMA-Factory prints each row twice: one record, with what only one of them says."""
    logger = "[INFO|2031-04-02 10:11:12] llamafactory.train.callbacks:9 >> "
    twin = "{{'loss': {}, 'learning_rate': 4.5000e-05, 'epoch': 0.12, 'throughput': 99.5}}\n"
    alone = logger + twin.format(1.75)
    before = run_of(logger + twin.format(1.25) + ROW + "\n" + alone, tmp_path)
    assert column(before, "loss") == [1.25, 1.75]
    assert column(before, "grad_norm") == [0.5, None]
    assert column(before, "raw/throughput") == [99.5, 99.5]
    after = run_of(ROW + "\n" + logger + twin.format(1.25) + alone, tmp_path, "after.log")
    assert column(after, "loss") == [1.25, None, 1.75]
    assert column(after, "step") == [1, 1, 2]


@pytest.mark.parametrize(
    "torn",
    [
        "{'loss': 1.2\r345, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}",
        "{'loss': '1.2\r345', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '0.1'}",
        "[rank0]: {'loss': 1.2\r345, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}",
        "{'loss': 1.2\r 1%|# | 1/90 [00:05<01:40,  1.0it/s]345, 'grad_norm': 0.5, "
        "'learning_rate': 1e-05, 'epoch': 0.1}",
        "{'loss': 1.2345, 'grad_norm': 0.5, 'learning_rate': 1e-0\r 1%|# | 1/90 [00:05<01:40, "
        " 1.0it/s]\r 1%|# | 1/90 [00:05<01:40,  1.0it/s]5, 'epoch': 0.1}",
    ],
)
def test_row_torn_by_a_carriage_return(torn: str, tmp_path: Path) -> None:
    """A redraw inside a number (bars drawn between its halves too) changes no digit of the row."""
    (row,) = run_of(torn + "\n", tmp_path).readings.iter_rows(named=True)
    wanted = {"step": 1, "loss": 1.2345, "grad_norm": 0.5, "lr": 1e-5, "epoch": 0.1}
    assert {name: row[name] for name in wanted} == wanted
