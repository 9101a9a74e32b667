"""The fast ways through Hugging Face and DeepSpeed logs give what the readers give."""

from __future__ import annotations

import io
import random

import polars as pl
import pytest
from loganalyze_parsers import ahead, deepspeed, huggingface
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.blocks import Block, read_blocks
from loganalyze_parsers.textlog import TextLog
from msgspec.structs import replace

WHOLE = 1 << 24


def frame_of(text: str, dialect: Dialect, size: int = WHOLE) -> pl.DataFrame:
    """All readings of a text read in blocks of about `size` bytes, columns in order of names."""
    log = TextLog((dialect,), lambda line: None, 0)
    batches = list(log.batches(read_blocks(io.BytesIO(text.encode()), size)))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    frame = pl.concat(frames, how="diagonal").sort("offset")
    return frame.select(sorted(frame.columns))


def both(text: str, dialect: Dialect, size: int = WHOLE) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The same text by the fast way and by the reader alone."""
    return frame_of(text, dialect, size), frame_of(text, replace(dialect, bulk=None), size)


def taken_in_bulk(text: str, dialect: Dialect) -> int:
    """Lines that the fast way takes of a text in one block."""
    assert dialect.bulk is not None
    bulk = dialect.bulk()
    look = bulk.look(Block(text.encode(), 0, 1), 0, 1)
    frame = None if look is None else bulk.settle(look)
    return 0 if frame is None else len(frame)


def rows(count: int, seed: int = 1, *, quoted: bool = False, more: bool = False) -> list[str]:
    """Plain training rows with growing epochs."""
    made = random.Random(seed)
    mark = "'" if quoted else ""
    lines = []
    for index in range(count):
        pairs = {
            "loss": f"{made.uniform(0, 9):.4f}", "grad_norm": repr(made.lognormvariate(0, 3)),
            "learning_rate": repr(made.random() * 1e-5), "epoch": f"{index / count:.2f}",
        }  # fmt: skip
        if more and index % 2:
            pairs["rewards/margins"] = repr(made.gauss(0, 9))
        lines.append("{" + ", ".join(f"'{k}': {mark}{v}{mark}" for k, v in pairs.items()) + "}")
    return lines


@pytest.mark.parametrize("size", [WHOLE, 900])
@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_plain_rows(size: int, quoted: bool, more: bool) -> None:
    """Rows of one or two sets of keys, in one block or many: all in bulk, the same numbers."""
    text = "\n".join(rows(60, quoted=quoted, more=more)) + "\n"
    fast, slow = both(text, huggingface.DIALECT, size)
    assert fast.equals(slow)
    assert fast["step"].to_list() == list(range(1, 61))
    assert taken_in_bulk(text, huggingface.DIALECT) == 60


@pytest.mark.parametrize("size", [WHOLE, 900])
def test_rows_among_other_lines(size: int) -> None:
    """Evaluations and noise go the slow way and stand at the right step."""
    lines = rows(40)
    lines.insert(20, "{'eval_loss': 1.5, 'eval_runtime': 9.5, 'epoch': 0.47}")
    lines.insert(7, "some warning without meaning")
    fast, slow = both("\n".join(lines), huggingface.DIALECT, size)
    assert fast.equals(slow)
    assert fast.filter(pl.col("val_loss").is_not_null())["step"].to_list() == [20]


NOT_PLAIN = [
    "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.5}",
    "{'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.01}",
    "  5%|#   | 55/99 [01:00<01:00, 1.1s/it]{'loss': 1.5, 'grad_norm': 0.5, 'epoch': 0.5}",
    "[rank1]: {'loss': 1.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.5}",
    "{'loss': 1.5, 'grad_norm': 0.5, 'learning",
    "{'loss': 1.5, 'grad_norm': 0.5, 'epoch': 0.5}{'loss': 1.25, 'epoch': 0.5}",
    "{'loss': 1.5, 'step': 77, 'grad_norm': 0.5, 'epoch': 0.5}",
    " 55%|#   | 55/99 [01:00<01:00, 1.1s/it]",
    "***** Running training *****",
    "logging_steps=10,",
]


@pytest.mark.parametrize("odd", NOT_PLAIN)
def test_gives_up_for_good(odd: str) -> None:
    """One odd line, and the whole block is the reader's: the numbers are its own."""
    text = "\n".join([*rows(20), odd, *rows(20, seed=2)])
    fast, slow = both(text, huggingface.DIALECT)
    assert fast.equals(slow)
    assert taken_in_bulk(text, huggingface.DIALECT) == 0


def test_steps_go_on_after_giving_up() -> None:
    """The reader counts on from where the fast way stopped."""
    lines = rows(60)
    lines[50] = lines[50].replace("'loss': ", "'loss':  ")
    fast, slow = both("\n".join(lines), huggingface.DIALECT, 900)
    assert fast.equals(slow)


def engine(count: int, seed: int = 1, groups: int = 1) -> list[str]:
    """Progress and throughput lines of one engine."""
    made = random.Random(seed)
    skipped = 0
    lines = []
    for index in range(1, count + 1):
        skipped += made.random() < 0.2
        stamp = f"[2031-04-02 10:{index // 60:02d}:{index % 60:02d},{made.randrange(1000):03d}]"
        rate = made.random() * 1e-4
        rates = ", ".join([repr(rate)] + [repr(rate * (index % 3))] * (groups - 1))
        lines.append(
            f"{stamp} [INFO] [logging.py:96:log_dist] [Rank 0] step={index * 10}, "
            f"skipped={skipped}, lr=[{rates}], mom=[{', '.join(['(0.9, 0.95)'] * groups)}]"
        )
        lines.append(
            f"{stamp} [INFO] [timer.py:7:stop] epoch=0/micro_step={index * 20}/global_step="
            f"{index * 10}, RunningAvgSamplesPerSec={made.random() * 99!r}, CurrSamplesPerSec="
            f"{made.random() * 99!r}, MemAllocated={made.uniform(1, 9):.2f}GB, MaxMemAllocated="
            f"{made.uniform(9, 20):.1f}GB"
        )
    return lines


@pytest.mark.parametrize("size", [WHOLE, 2500])
@pytest.mark.parametrize("groups", [1, 2])
def test_engine_lines(size: int, groups: int) -> None:
    """Steps, differences of the skipped count, rates, memory and times are the reader's."""
    text = "\n".join(engine(50, groups=groups)) + "\n"
    fast, slow = both(text, deepspeed.DIALECT, size)
    assert fast.equals(slow)
    assert taken_in_bulk(text, deepspeed.DIALECT) == 100


def test_overflows_between_engine_lines() -> None:
    """What the reader takes between the lines stands at the step of the line before."""
    lines = engine(20)
    lines.insert(20, "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, "
                     "reducing to 4")  # fmt: skip
    log = TextLog((deepspeed.DIALECT,), lambda line: None, 0)
    (event,) = [
        event
        for batch in log.batches(read_blocks(io.BytesIO("\n".join(lines).encode())))
        for event in batch.events
    ]
    assert (event.kind, event.step) == ("overflow", 100)


ENGINE = engine(1)[0]
ODD_ENGINE = [
    ENGINE.replace("step=10,", "step=200,"),
    ENGINE.replace("step=10,", "step=205,").replace("lr=[", "lr=[1.0, 2.0, "),
    ENGINE.replace("step=10,", "step=205,").replace("Rank 0", "Rank 3"),
    ENGINE.replace("step=10,", "step=205,") + ENGINE.replace("step=10,", "step=206,"),
    "epoch: 0|step: 4|ppo_ep: 1|act_loss: 0.5|cri_loss: 0.25|unsuper_loss: 0.0",
    "/opt/Megatron-DeepSpeed/pretrain.py",
]


@pytest.mark.parametrize("odd", ODD_ENGINE)
def test_odd_engine_lines_are_the_readers(odd: str) -> None:
    """A second engine, another rank, glued lines, chat and Megatron turn the fast way off."""
    text = "\n".join([*engine(20), odd, *(line for line in engine(40) if "step=2" not in line)])
    fast, slow = both(text, deepspeed.DIALECT)
    assert fast.equals(slow)
    assert taken_in_bulk(text, deepspeed.DIALECT) == 0


def test_odd_throughput_line_costs_itself_alone() -> None:
    """A throughput line of another layout is left to the reader, the others are not."""
    lines = engine(10)
    lines[5] = lines[5].replace(", MemAllocated", ", vm %: 1, MemAllocated")
    fast, slow = both("\n".join(lines), deepspeed.DIALECT)
    assert fast.equals(slow)
    assert taken_in_bulk("\n".join(lines), deepspeed.DIALECT) == 19


@pytest.mark.parametrize("lines", [rows(300), engine(150)], ids=["rows", "engine"])
def test_threads_change_nothing(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks looked at one by one or many at a time: the same batches, one after the other."""
    lines[100:100] = ["some words", "some words", "another line 12"]
    data = ("\n".join(lines) + "\n").encode()
    made = []
    for held in (1, 4):
        monkeypatch.setattr(ahead, "AHEAD", held)
        log = TextLog((huggingface.DIALECT, deepspeed.DIALECT), lambda line: None, 0)
        made.append(list(log.batches(read_blocks(io.BytesIO(data), 1500))))
    one, many = made
    assert [batch.account for batch in one] == [batch.account for batch in many]
    assert sum(batch.account.lines for batch in one) == len(lines)
    for first, second in zip(one, many, strict=True):
        assert (first.readings is None) == (second.readings is None)
        if first.readings is not None and second.readings is not None:
            assert first.readings.equals(second.readings)
