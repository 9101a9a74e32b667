"""Lines learnt by asking the readers are read as the readers read them, one by one."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loganalyze_parsers import DIALECTS, learnt_bulk, text_log
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.blocks import read_blocks
from loganalyze_parsers.frames import Names
from loganalyze_parsers.generic_steps import EpochCount, Place
from loganalyze_parsers.pairs import PairFormat, pair_dialect
from loganalyze_parsers.textlog import TextLog
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.model import Reading

#: Loops as people write them; numbers: step, loss, rate, norm, seconds, tokens a second.
LOOPS = (
    "iter {0}: loss {1:.4f}, time {4:.2f}ms, mfu {3:.2f}%",
    "step {0:6d} | loss {1:.6f} | lr {2:.2e} | norm {3:.4f} | dt {4:.2f}ms | tok/s {5:.1f}",
    "2031-03-04 05:{6:02d}:07,{7:03d} INFO run.py:33 step {0} loss {1:.4f} lr {2!r} tok/s {5:.0f}",
    "[step {0}] loss={1:.3f} lr={2:g} grad_norm={3:.3f} tokens/s={5:.0f}",
    "[rank0]:[titan] 2031-03-04 05:06:{6:02d},{7:03d} - root - INFO - \x1b[31mstep: {0:2}  "
    "\x1b[32mloss: {1:7.4f}  \x1b[33mmemory: {3:5.2f}GiB(50.31%)  \x1b[34mtps: {8:,}\x1b[39m",
    "Step {0}/9000 - loss: {1:.4f} - grad_norm: {3:.3f} - mem: 40.{7}GB - {8:,} tok/s",
    "step={0} | reward={2:+.5f} | loss={1:.3e} | throughput={8} tok/s",
    "训练次数：{0}, Loss：{1:.3f}",
    "iter {0}: loss {1:.9f}, lr {9:.17e}, time {4:.12f}ms, mfu {3:.2f}%",
    "iter {0}: loss {1:.9f}, lr {9!r}, time {4!r}ms, mfu {3:.2f}%",
)


def line_of(made: random.Random, loop: str, step: int) -> str:
    """A line of a loop with numbers at random; one in fifty is odd."""
    loss = made.choice([2.5 + made.gauss(0, 0.1)] * 50 + [0.0, 1e-7, 12345.678, -0.5, float("nan")])
    text = loop.format(
        step, loss, made.choice([6e-4, 3.25e-05, 1e-4, 0.001]) * made.choice([1, 1, 1, -1]),
        abs(made.gauss(0.8, 0.2)), made.gauss(211, 9), made.gauss(12050, 100),
        made.randrange(60), made.randrange(1000), made.choice([7000, 999, 12500]),
        made.uniform(1e-5, 1e-3),
    )  # fmt: skip
    if made.random() < 0.02:
        text = text.replace(" ", made.choice(["  ", "\t", " x "]), 1)
    return text


def read(lines: list[str], size: int, dialects: tuple[Dialect, ...] = DIALECTS) -> list[object]:
    """Rows, events, problems and accounts of a text, its blocks of about `size` bytes."""
    data = "\n".join(lines).encode() + b"\n"
    log = text_log(0) if dialects is DIALECTS else TextLog(dialects, lambda line: None, 0)
    batches = list(log.batches(read_blocks(io.BytesIO(data), size)))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    frame = pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
    rows = frame.select(sorted(frame.columns)).rows()
    return [rows, *((b.events, b.problems, b.account) for b in batches)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each block gave by what was learnt."""
    counts: list[int] = []
    settle = learnt_bulk.LearntBulk.settle

    def counted(*arguments: object) -> Iterator[tuple[int, pl.DataFrame]]:
        for owner, frame in settle(*arguments):  # type: ignore[arg-type]
            counts.append(len(frame))
            yield owner, frame

    monkeypatch.setattr(learnt_bulk.LearntBulk, "settle", counted)
    return counts


def both(
    lines: list[str], size: int, dialects: tuple[Dialect, ...] = DIALECTS
) -> tuple[list[object], list[object]]:
    """The same text with what can be learnt of it, and line by line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learnt_bulk, "LEAST_LINES", 20)
        fast = read(lines, size, dialects)
        patch.setattr(learnt_bulk, "LEAST_LINES", 10**9)
        return fast, read(lines, size, dialects)


@pytest.mark.parametrize("loop", LOOPS)
def test_loops_are_read_as_their_readers_read_them(loop: str, taken: list[int]) -> None:
    """Nearly all lines go by templates, whatever block they are in; the rows are the readers'."""
    made = random.Random(3)
    lines = [line_of(made, loop, step) for step in range(1, 400)]
    lines[50:50] = ["a line between", "saving checkpoint to out/ckpt_50.pt"]
    fast, slow = both(lines, 9000)
    assert repr(fast) == repr(slow)
    assert sum(taken) > 0.6 * len(lines)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(LOOPS), min_size=1, max_size=4), st.integers(0, 10**6))
def test_loops_beside_each_other(loops: list[str], seed: int) -> None:
    """Lines of several loops in any order, with epochs and failures told between them."""
    made = random.Random(seed)
    lines = [line_of(made, made.choice(loops), step) for step in range(1, 150)]
    others = ("Epoch: 2/30", "epoch 1 done", "Traceback (most recent call last):", "loss is nan")
    for _ in range(made.randrange(4)):
        lines.insert(made.randrange(len(lines)), made.choice(others))
    fast, slow = both(lines, made.choice([1500, 6000, 10**6]))
    assert repr(fast) == repr(slow)


#: The same with epochs; numbers: epoch, step of the epoch, steps of an epoch, loss.
EPOCHS = (
    "Epoch [{0}/9], Step [{1}/{2}], Loss: {3:.4f}",
    "epoch {0} step {1} loss {3:.4f} lr 0.0001",
    "Train Epoch: {0} [{1}/{2} (50%)]\tLoss: {3:.6f}",
    "| epoch {0:3d} | {1:5d}/{2:5d} batches | lr 5.00 | loss {3:5.2f} | ppl  3136.13",
    "Epoch: [{0}][{1}/{2}]\tTime 0.738 ( 0.741)\tLoss {3:.2e} (1.54e+00)",
    "[rank1]: step {1} loss {3:.3f} wps 1200",
)
BETWEEN = (
    "Epoch {0} done, val loss {3:.3f}", "Epoch: {0}/9", "epoch {0} step {1} val loss {3:.3f}",
    "saving model", "EPOCH [{0}/9] STEP [{1}/{2}] Loss: {3:.2f}", "step {1}: loss {3:.3f}",
    "EPoch {0} step {1} loss {3:.2f}",
    "Epoch [{0}/9], Step [{1}/{2}], Loss: nan", "Epoch {0} took 12.5 s", "iteration {1}/900",
)  # fmt: skip


@pytest.mark.parametrize("loop", EPOCHS)
def test_batches_are_counted_on_through_epochs(loop: str, taken: list[int]) -> None:
    """Lines of all epochs go by templates, with the steps that the reader gives them."""
    lines = [
        loop.format(epoch, step, 100, 2 + step / 700)
        for epoch in (1, 2, 4) for step in range(epoch == 4, 101)
    ]  # fmt: skip
    lines[150:150] = ["saving model", "Epoch 2 took 12.5 s, val loss 2.25"]
    fast, slow = both(lines, 3000)
    assert repr(fast) == repr(slow)
    assert sum(taken) > 0.9 * len(lines)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(EPOCHS), min_size=1, max_size=2), st.integers(0, 10**6))
def test_epochs_beside_other_lines(loops: list[str], seed: int) -> None:
    """Whatever else tells of epochs between the lines, and whichever epoch comes next."""
    made = random.Random(seed)
    total, first = made.choice([(20, 1), (40, 0), (7, 1)])
    lines: list[str] = []
    for epoch in [made.choice([k, k, k, k + 2, max(k - 1, 0)]) for k in range(12)]:
        loop = made.choice(loops)
        steps = range(first, total + 1, made.choice([1, 1, 3]))
        lines += [loop.format(epoch, step, total, made.uniform(1, 3)) for step in steps]
        if made.random() < 0.3:
            other = made.choice(BETWEEN)
            text = other.format(epoch, made.randrange(30), total, made.uniform(1, 3))
            lines.insert(made.randrange(len(lines) - 5, len(lines) + 1), text)
    fast, slow = both(lines, made.choice([900, 3000, 10**6]))
    assert repr(fast) == repr(slow)


#: Lines of trainers that have a bulk way of their own, beside which people print theirs; {0}: step.
TRAINERS = {
    "megatron": (
        " iteration {0:8d}/ 9000 | consumed samples: {0} | elapsed time per iteration (ms): 1350.9"
        " | learning rate: 2.9E-04 | lm loss: 2.{0:04d}E+00 | grad norm: 0.4 |",
    ),
    "deepspeed": (
        "[2031-01-01 01:01:07,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}, skipped=0, "
        "lr=[0.0001], mom=[(0.9, 0.95)]",
        "[2031-01-01 01:01:07,124] [INFO] [timer.py:260:stop] epoch=0/micro_step={0}/"
        "global_step={0}, RunningAvgSamplesPerSec=12.3456, CurrSamplesPerSec=12.5, "
        "MemAllocated=10.5GB, MaxMemAllocated=20.1GB",
    ),
    "huggingface": (
        "{{'loss': 2.{0:04d}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {1}}}",
    ),
}


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("loop", [EPOCHS[1], "step {1} | loss {3:.4f} | time 0.512s"])
def test_lines_beside_those_of_a_trainer(trainer: str, loop: str, taken: list[int]) -> None:
    """Of a log that a trainer's own bulk way reads, the other lines are learnt all the same."""
    lines: list[str] = []
    for step in range(1, 400):
        lines.append(loop.format(1 + step // 150, step % 150 + 1, 150, 2 + step / 700))
        if step % 5 == 0:
            lines += [text.format(step, step / 100) for text in TRAINERS[trainer]]
    fast, slow = both(lines, 9000)
    assert repr(fast) == repr(slow)
    assert sum(taken) > 300


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*TRAINERS]), st.lists(st.sampled_from(EPOCHS + LOOPS)), st.integers(0, 99))
def test_loops_beside_trainers(trainer: str, loops: list[str], seed: int) -> None:
    """In any order, with failures, evaluations and bars between them."""
    made = random.Random(seed)
    others = (
        "Traceback (most recent call last):", "RuntimeError: CUDA out of memory.", "loss is nan",
        "{'eval_loss': 2.5, 'eval_runtime': 3.5, 'epoch': 0.5}", "Epoch 2 took 12.5 s",
        "  5%|5         | 50/1000 [00:10<03:10,  5.00it/s]", "saving model",
    )  # fmt: skip
    lines: list[str] = []
    for step in range(1, 250):
        loop = made.choice([EPOCHS[0], *loops])
        place = (1 + step // 90, step % 90 + 1, 90, made.uniform(1, 3))
        lines.append(loop.format(*place) if loop in EPOCHS else line_of(made, loop, step))
        if made.random() < 0.2:
            lines += [text.format(step, step / 100) for text in TRAINERS[trainer]]
        if made.random() < 0.01:
            lines.append(made.choice(others))
    fast, slow = both(lines, made.choice([1500, 6000, 10**6]))
    assert repr(fast) == repr(slow)


def test_epochs_that_a_line_above_tells() -> None:
    """Counter lines decide what the steps below are: these are read one by one."""
    told = [f"Step {step}/100, loss: {2 + step / 700:.4f}" for step in range(1, 90)]
    fast, slow = both(["Epoch: 1/9", *told, "Epoch: 2/9", *told], 1200)
    assert fast == slow


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 3), st.sampled_from([-1, 9, 12]))))
def test_many_places_are_counted_as_one_by_one(places: list[tuple[int, int, int]]) -> None:
    """Steps, epochs and totals in any order, -1 for none; the count goes on from where it stood."""
    fast, slow = EpochCount(), EpochCount()
    for part in (places[: len(places) // 2], places[len(places) // 2 :]):
        columns = np.array(part, dtype=np.int64).reshape(-1, 3).T
        told = [
            slow.step(Place(step, total if total >= 0 else None, epoch if epoch >= 0 else None))
            for step, epoch, total in part
        ]
        assert fast.steps(*columns).tolist() == told
        assert vars(fast) == vars(slow)


def test_absurd_epochs_stay_numbers() -> None:
    """What epochs of a hundred million million steps add up to is no step, and no error."""
    epochs, far = np.array([1, 10**14, 10**14]), np.full(3, 10**14)
    made = EpochCount().steps(np.array([5, 5, 6]), epochs, far)
    assert made[0] == 5
    assert (made[1:] > 2**53).all()


def odd_dialect(mend: Callable[[dict[str, float]], dict[str, float] | None]) -> Dialect:
    """Of `at 7: loss=2.5 norm=0.5`, with a rule of its own."""
    form = PairFormat(
        start=lazy.pattern(r"\bat (?P<step>\d+):"),
        pair=lazy.pattern(r"(loss|norm)=(-?[\d.]+)"),
        names={"loss": ("loss", 1.0), "norm": ("grad_norm", 1.0)},
        mend=mend,
    )
    return pair_dialect("odd", ("loss=",), form)


def capped(values: dict[str, float]) -> dict[str, float]:
    """No norm is larger than one."""
    return {**values, "grad_norm": min(values["grad_norm"], 1.0)}


def without_zero(values: dict[str, float]) -> dict[str, float]:
    """A norm of nothing is none."""
    return {name: value for name, value in values.items() if name == "loss" or value}


def test_a_rule_that_no_template_knows_is_noticed(taken: list[int]) -> None:
    """A reader that makes something else of large numbers: no line is learnt, or none is kept."""
    lines = [f"at {k}: loss=2.{k % 10}7 norm=0.{k % 9}5" for k in range(200)]
    lines[150] = "at 150: loss=2.07 norm=1.25"
    fast, slow = both(lines, 10**6, (odd_dialect(capped),))
    assert fast == slow
    assert not taken


class Claiming:
    """Reads the lines of the loop as its own, once it was told to begin."""

    open = False

    def feed(self, line: Line) -> Taken | None:
        """All lines after `begin`."""
        if line.text == "begin":
            self.open = True
            return Taken(ignored="begin")
        step = int(line.text.split(":")[0].removeprefix("at "))
        return Taken(readings=[Reading(step=step, ref=line.ref, values={"val_loss": 1.0})])

    def finish(self) -> Taken:
        """Nothing is left."""
        return Taken()

    def passed(self, step: int) -> None:
        """No matter."""


def test_lines_that_mean_something_else_in_their_context(taken: list[int]) -> None:
    """What a line says by itself is not believed where the lines before make it another's."""
    lines = ["begin", *(f"at {k}: loss=2.{k % 10}7 norm=0.{k % 9}5" for k in range(1, 200))]
    claiming = Dialect(name="claiming", markers=("begin",), reader=Claiming)
    fast, slow = both(lines, 10**6, (claiming, odd_dialect(lambda values: values)))
    assert fast == slow
    assert not taken
    assert both(lines[1:], 10**6, (claiming, odd_dialect(lambda values: values)))
    assert sum(taken) == len(lines) - 1


def test_zeros_that_mean_something_else_are_left_to_the_reader(taken: list[int]) -> None:
    """Only the lines that have one; all others go by the template."""
    lines = [f"at {k}: loss=2.{k % 10}7 norm=0.{k % 9}0" for k in range(1, 300)]
    fast, slow = both(lines, 10**6, (odd_dialect(without_zero),))
    assert fast == slow
    assert sum(taken) == sum(not line.endswith("0.00") for line in lines)


def test_who_waits_for_more_sees_what_went_by() -> None:
    """A traceback that breaks off ends at the next line, also where that is read by the column."""
    line = " iteration {}/ 900 | consumed samples: {} | lm loss: 2.{}E+00 | grad norm: 0.5 |"
    lines = [line.format(k, k * 8, 100000 + k) for k in range(1, 120)]
    lines[60:60] = ["Traceback (most recent call last):"]
    lines[-1:] = ["loss is nan"]
    slow = tuple(replace(dialect, bulk=None) for dialect in DIALECTS)
    by_column = read(lines, 3000)
    one_by_one = read(lines, 3000, slow)
    events = [[event.text for event in batch[0]] for batch in by_column[1:]]  # type: ignore[index]
    assert events == [[e.text for e in batch[0]] for batch in one_by_one[1:]]  # type: ignore[index]


def test_names_stay_bounded() -> None:
    """Of a frame no more columns are taken than of rows one by one; what is left out is told."""
    names = Names(cells=100, least=3)
    frame = pl.DataFrame({"loss": [1.0], **{f"raw/{k}": [1.0] for k in range(200)}})
    kept = names.kept(pl.concat([frame] * 2))
    assert len(kept.columns) == 1 + 50
    assert len(names.kept(pl.concat([frame] * 100)).columns) == 1 + 50
    assert names.problems("here")[0].rule == "limit_reached"
