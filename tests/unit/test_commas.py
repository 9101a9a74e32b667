"""A comma within a number makes no other number of it: read right, or left out and told."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import DIALECTS, text_log
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.blocks import read_blocks
from loganalyze_parsers.commas import BLOT, plain
from loganalyze_parsers.noise import ignore_rule
from loganalyze_parsers.textlog import TextLog
from msgspec.structs import replace
from textlogs import column, megatron_line, run_of

from loganalyze.verify_numbers import holds

#: A line of each maker with a loss, `@` in its place.
LINES = {
    "megatron": megatron_line(7, learning_rate="3.0E-04", lm_loss="@", grad_norm="1.250"),
    "titan": "[rank0]:[titan] 2031-04-02 10:11:12,345 - root - INFO - step: 7  loss:  @  "
    "grad_norm:  1.2345  memory: 41.00GiB(50.00%)  tps: 6,543  mfu: 20.36%",
    "nanogpt": "iter 7: loss @, time 211.43ms, mfu 31.20%",
    "modded": "step:7/1750 train_loss:@ train_time:321ms step_avg:321.00ms",
    "deepspeed": "steps: 7 loss: @ iter time (s): 1.250 samples/sec: 51.8",
    "huggingface": "{'loss': @, 'grad_norm': 0.5, 'learning_rate': 4.5e-05, 'epoch': 0.1}",
    "quoted": "{'loss': '@', 'grad_norm': '0.5', 'learning_rate': '4.5e-05', 'epoch': '0.1'}",
    "nemo": "Training epoch 0, iteration 7/149 | lr: 1e-05 | global_batch_size: 128 | "
    "global_step: 7 | reduced_train_loss: @ | val_loss: 2.4",
    "fairseq": "epoch 005:  7 / 1000 loss=3.1, ppl=14.9, wps=123, num_updates=7, lr=5e-4, gnorm=@",
    "maxtext": "completed step: 7, seconds: 4.01, TFLOP/s/device: 201.3, Tokens/s/device: 6543.2, "
    "total_weights: 1048576, loss: @",
    "llmc": "step    7/19560 | loss @ (+1.30z)| norm 0.9100 (-0.20z)| lr 1.20e-04 | 512.30 ms | "
    "61.2% bf16 MFU | 1023456 tok/s",
    "home_made": "Epoch: 0, Batch: 7, Global Step: 7, Step Time: 1.6160, Loss: @",
}  # fmt: skip


@pytest.mark.parametrize("maker", LINES)
@pytest.mark.parametrize(
    ("said", "meant"),
    [("1,234.5", 1234.5), ("4,03", 4.03), ("3,0E-04", 3.0e-4), ("1.234,5", 1234.5),
     ("0,031", 0.031), ("4,5", None), ("4,3,2", None), ("0.9,0.95", None),
     ("1.2.3", None), ("8.1.2.31", None)],
)  # fmt: skip
def test_no_maker_cuts_a_number_at_its_comma(
    maker: str, said: str, meant: float | None, tmp_path: Path
) -> None:
    """The loss is the number meant, or none; among decimal points `4,5` may be two numbers."""
    run = run_of(LINES[maker].replace("@", said) + "\n", tmp_path)
    name = "grad_norm" if maker == "fairseq" else "loss"  # fairseq's loss is of base 2
    read = run.readings[name].to_list() if name in run.readings.columns else []
    assert [value for value in read if value is not None] in ([meant], [])
    if meant is not None and (maker, said) != ("modded", "3,0E-04"):  # it knows no exponents
        assert read == [meant]


def test_a_line_of_decimal_commas_is_read(tmp_path: Path) -> None:
    """Where one number shows that commas are decimal, those that could be either are too."""
    lines = [f"step: {n}, loss: 4,{n}31, lr: 3,0E-04, grad_norm: 1,250" for n in (1, 2)]
    run = run_of("\n".join(lines) + "\n", tmp_path)
    assert column(run, "loss") == [4.131, 4.231]
    assert column(run, "grad_norm") == [1.25, 1.25]
    assert column(run, "lr") == [3.0e-4, 3.0e-4]


def test_thousands_are_read_beside_decimal_points(tmp_path: Path) -> None:
    """Counts with thousands commas, in the step too."""
    run = run_of("iter 1,234: loss 3.5, time 1,234.5ms, mfu 31.20%\n", tmp_path)
    assert run.readings["step"].to_list() == [1234]
    assert run.readings["step_time_s"].to_list() == [1.2345]


def test_an_unclear_number_is_told(tmp_path: Path) -> None:
    """A row without it says so once; a line of nothing else is ignored by a rule of that name."""
    run = run_of("step: 1 loss: 4,031\nstep: 2 loss: 4.5 lr: 1,2,3\n", tmp_path)
    assert column(run, "loss") == [4.5]
    assert [problem.rule for problem in run.problems] == ["unclear_comma"]
    assert run.sources[0].account.ignored == {"number with an unclear comma": 1}


def test_a_maker_of_thousands_is_believed(tmp_path: Path) -> None:
    """OLMo prints a perplexity of 1236 as 1,236, one number a row."""
    rows = ["[step=40/739328]", "    train/CrossEntropyLoss=7.12", "    train/Perplexity=1,236"]
    run = run_of("\n".join(rows) + "\n", tmp_path)
    assert column(run, "perplexity") == [1236.0]
    assert not run.problems
    assert "number with an unclear comma" not in run.sources[0].account.ignored


@pytest.mark.parametrize(
    "text",
    [
        "[2031-04-02 10:11:12,345] step: 5 loss: 4.5", "lr=[1e-05,2e-05], mom=[(0.9,0.95)]",
        "CUDA_VISIBLE_DEVICES=0,1,2,3", "split='969,30,1', lr=0.1", "1,2.5,3", "version: 1.2.3",
        "Num examples = 1,234", "  5%|#  | 5/9 [00:43<1:05:18,4.60s/it]",
        "loss: 4, grad_norm: 3,step: 5",
    ],
)  # fmt: skip
def test_commas_between_things_stay(text: str) -> None:
    """Lists, clocks, settings and the ends of pairs are no numbers with commas."""
    assert plain(text) == (text, False)


def slow(text: str) -> pl.DataFrame | None:
    """What the readers alone make of a text."""
    return _frame(TextLog([_without_bulk(dialect) for dialect in DIALECTS], ignore_rule, 0), text)


def _without_bulk(dialect: Dialect) -> Dialect:
    return replace(dialect, bulk=None)


def _frame(log: TextLog, text: str) -> pl.DataFrame | None:
    batches = list(log.batches(read_blocks(io.BytesIO(text.encode()), 1 << 20)))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    if not frames:
        return None
    frame = pl.concat(frames, how="diagonal").sort("offset")
    return frame.select(sorted(frame.columns))


@pytest.mark.parametrize("maker", ["megatron", "huggingface", "deepspeed_engine"])
@pytest.mark.parametrize("every", [1, 7, 60])
@pytest.mark.parametrize("said", ["4,03", "1,234.5", "1,234", "0.9,0.95"])
def test_by_the_column_and_line_by_line_are_one(maker: str, every: int, said: str) -> None:
    """Bulk and reader give the same frames, also where some lines hold commas."""
    engine = (
        "[2031-04-02 10:11:%02d,345] [INFO] [logging.py:7:log_dist] [Rank 0] step=%d, skipped=0, "
        "lr=[@], mom=[(0.9, 0.95)]"
    )
    lines = []
    for n in range(1, 121):
        line = engine % (n % 60, n) if maker == "deepspeed_engine" else LINES[maker]
        line = line.replace("iteration        7", f"iteration {n:8d}")
        lines.append(line.replace("@", said if n % every == 0 else f"{2 + n / 64:.4f}"))
    text = "\n".join(lines) + "\n"
    fast, other = _frame(text_log(0), text), slow(text)
    assert (fast is None) == (other is None)
    assert fast is None or other is None or fast.equals(other)


@given(text=st.text(alphabet="0123456789,. =:|[]()'lossEe-+\t", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_digit_comes_or_goes(text: str) -> None:
    """Spelling changes commas and points only; a number that is blotted goes whole."""
    told, _ = plain(text)
    if BLOT not in told:
        assert [c for c in told if c not in ",."] == [c for c in text if c not in ",."]
    assert plain(told)[0].count(BLOT) >= told.count(BLOT)


def test_a_number_meant_is_found_again() -> None:
    """Verification reads commas as ingest does."""
    assert holds(b"step: 5 loss: 4,03", 4.03)
    assert holds(b"step: 5 loss: 1,234.5", 1234.5)
    assert not holds(b"step: 5 loss: 4,03", 4.05)
