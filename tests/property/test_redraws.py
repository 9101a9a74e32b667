"""Laws of progress bars that are redrawn on one line: leaving redraws out must not show."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import DIALECTS, textlog
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.noise import ignore_rule
from loganalyze_parsers.textlog import TextLog
from loganalyze_parsers.tqdm_bar import redrawn

from loganalyze.model import Batch

_CUT = "[2031-04-02 10:11:12,345] [INFO] [logging.py:1:log_dist] [Rank 0] step=41, skipped=3,"
#: What stands between bars: rows, headers, other trainers' lines, such that go on, noise.
_OTHERS = (
    "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 4e-05, 'epoch': 0.5}",
    "{'loss': 1.0, 'learning_rate': 4e-05, 'epoch': 0.75, 'step': 40}",
    "{'loss': 1.25, 'grad_norm': 0.5, 'learning_",
    "rate': 4e-05, 'epoch': 0.12}",
    "{'eval_loss': 1.5, 'eval_runtime': 3.5, 'epoch': 0.5}",
    "{'train_runtime': 282.2, 'train_loss': 0.2, 'epoch': 2.0}",
    "***** Running training *****",
    "  Total optimization steps = 90",
    "***** Running Evaluation *****",
    "***** train metrics *****",
    "  train_runtime            = 0:15:19.02",
    "'logging_steps': 10",
    "[2031-04-02 10:11:12,345] [INFO] [logging.py:1:log_dist] [Rank 0] step=40, skipped=3, "
    "lr=[1.2e-05], mom=[(0.9, 0.95)]",
    _CUT,
    "lr=[1.2e-05], mom=[(0.9, 0.95)]",
    "rank=0 time (ms) | forward: 164.8 | backward: 352.1 | step: 12.3",
    "epoch=0/micro_step=160/global_step=40, RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=30.9",
    "comm op: all_reduce | time (ms): 12.0",
    "Traceback (most recent call last):",
    "RuntimeError: out of luck",
    "Epoch 0:  50%|#####     | 45/90 [00:45<00:45,  1.00it/s, loss=1.5]",
    " 50%|#####     | 45/90 [00:45<00:45,  1.00it/s, loss=1.25, lr=1e-5]",
    "step 12: loss 2.5, lr 0.001",
    "some words",
    " " * 40,
)  # fmt: skip


@st.composite
def _bars(draw: st.DrawFn) -> list[str]:
    """A bar redrawn some times: as a rule it moves on."""
    total = draw(st.sampled_from((10, 90, 1000)))
    at, drawn = draw(st.integers(0, total)), []
    for move in draw(st.lists(st.integers(-1, 7), max_size=9)):
        at = min(max(at + move, 0), total)
        clock = f"{at // 60:02d}:{at % 60:02d}"
        drawn.append(f"{100 * at // total:3d}%|## | {at}/{total} [{clock}<?,  1.00s/it]")
    return drawn


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    """Bars and other texts, most behind carriage returns."""
    some = st.one_of(_bars(), _bars(), st.lists(st.sampled_from(_OTHERS), max_size=3))
    parts = [part for group in draw(st.lists(some, min_size=2, max_size=24)) for part in group]
    ends = draw(st.lists(st.sampled_from("\r\r\r\n"), min_size=len(parts), max_size=len(parts)))
    return "".join(part + end for part, end in zip(parts, ends, strict=True)).encode() + b"\n"


@settings(max_examples=120, deadline=None, derandomize=True)
@given(data=_logs())
def test_bare_redraws_that_are_left_out_change_nothing(data: bytes) -> None:
    """Rows, events, problems and the account of every line are those of reading each redraw."""
    _check_alike(data)


@pytest.mark.parametrize("head", [b"Traceback (most recent call last):", _CUT.encode()])
def test_whoever_waits_sees_each_redraw(head: bytes) -> None:
    """A traceback or a line that was cut is given up after some lines, and redraws are such."""
    bars = [b"%3d%%|#| %d/90 [00:%02d<?, 1.0s/it]" % (n, n, n) for n in range(1, 60)]
    _check_alike(b"\r".join([head, *bars, b"RuntimeError: out of luck"]))


def _check_alike(data: bytes) -> None:
    """With and without the redraws that are left out."""
    quick = _read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textlog, "redrawn", lambda pieces: set[int]())
        slow = _read(data)
    for one, other in zip(quick, slow, strict=True):
        assert (one.events, one.problems) == (other.events, other.problems)
        assert (one.account, one.framework) == (other.account, other.framework)
        assert _rows(one).equals(_rows(other))


def _read(data: bytes) -> list[Batch]:
    log = TextLog(DIALECTS, ignore_rule, 0)
    return [log.feed(Block(data, 0, 1)), log.finish()]


def _rows(batch: Batch) -> pl.DataFrame:
    return pl.DataFrame() if batch.readings is None else batch.readings


def test_what_is_left_out() -> None:
    """Inside a bar that moves on all but its ends; nothing of one that says more, nor at 0 or
    the end."""
    bare = [b"%3d%%|#| %d/9 [00:%02d<?, 1.0s/it]" % (11 * n, n, n) for n in range(10)]
    told = [b"%3d%%|#| %d/9 [00:%02d<?, 1.0s/it, loss=1]" % (n, n, n) for n in range(10)]
    assert redrawn(zip(bare, range(10), strict=True)) == {2, 3, 4, 5, 6, 7}
    assert not redrawn(zip(told, range(10), strict=True))
    assert redrawn(zip(bare[1:5] + bare[2:5], range(7), strict=True)) == {1, 2, 5}
    between = [*bare[1:5], b"{'loss': 1.5}", *bare[5:8]]
    assert redrawn(zip(between, range(8), strict=True)) == {1, 2, 6}
