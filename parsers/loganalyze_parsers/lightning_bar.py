"""Lightning's progress bars, of tqdm and of rich, and loops that draw one such bar an epoch.

    Epoch 1:  20%|##   | 100/500 [00:50<03:20,  2.00it/s, v_num=3, train_loss_step=2.310]
    Epoch 1/9 ━━━━━━━━ 100/500 0:00:50 • 0:03:20 2.00it/s v_num: 3.000 train_loss: 2.310

A bar begins anew with every epoch: a step is the epoch times the length of the bar, plus its count.
Lightning counts epochs from 0, which v_num (the run's version) gives away; other loops begin at the
first number that they print. `loss` is a running mean over 20 steps where a loss of the step itself
stands beside it. A validation loss is printed until the next validation: only a new one is kept.

>>> from loganalyze_parsers.samples import rows_of
>>> head = "Epoch 1:  20%|#   | 100/500 [00:50<03:20,  2.00it/s, "
>>> rows_of(DIALECT, head + "loss=2.5, v_num=3, train_loss_step=2.25]")
[(600, {'loss': 2.25, 'raw/loss': 2.5})]
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers import tqdm_bar
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.held_rows import HeldRows, Pace
from loganalyze_parsers.numbers import number
from loganalyze_parsers.tqdm_bar import clock_seconds

#: OpenRLHF's `Train step of epoch 0` is read beside the Trainer's.
_EPOCH = lazy.pattern(
    r"(?:^|(?<!of)[^\w])epoch:?\s{1,5}\[?(\d{1,6})(?:/\d{1,6})?\]?:?$", re.IGNORECASE
)
_RICH = lazy.pattern(
    r"\bEpoch (?P<epoch>\d{1,9})(?:/-?\d{1,9})?\s{1,20}[━╸╺─-]{1,300}[ ╸╺━]{1,300}"
    r"(?P<done>\d{1,9})/(?P<total>\d{1,9})\s{1,9}(?P<elapsed>\d{1,9}:\d\d:\d\d) • "
    r"[-\d:]{1,20}\s{1,9}[\d.]{1,20}it/s(?P<rest>.{0,2000})"
)
_RICH_PAIR = lazy.pattern(r"([A-Za-z][\w/.-]{0,120}): ([-+\w.]{1,40})")
#: Names of the step's own loss, the surest first; the last one is Lightning's running mean.
_LOSSES = ("train_loss", "train/loss", "training_loss", "total_loss", "train/total_loss", "loss")
_VALIDATION = ("val_loss", "val/loss", "valid_loss", "valid/loss", "validation_loss", "eval_loss")
_OTHERS = {
    "lr": ("lr", 1.0),
    "learning_rate": ("lr", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "global_step": ("raw/global_step", 1.0),
}


class _Drawn(Struct, frozen=True):
    """One drawing of either sort of bar."""

    epoch: int
    done: int
    total: int
    elapsed_s: float | None
    pairs: Mapping[str, float]


class LightningBarReader:
    """The rows held, and what the bars before said."""

    open = False

    def __init__(self) -> None:
        """No bar yet."""
        self._held = HeldRows()
        self._pace = Pace()
        self._first_epoch: int | None = None
        self._val_loss: float | None = None

    def feed(self, line: Line) -> Taken | None:
        """The rows that the bars of a line complete; None without a bar that has a loss."""
        drawn = [*_tqdm(line.text), *_rich(line.text)]
        if not drawn:
            return None
        taken = Taken(ignored="progress bar")
        for one in drawn:
            values = self._values(one.pairs)
            if values and one.done:
                step = self._step(one)
                seconds = self._pace.step_time(step, one.elapsed_s)
                if seconds is not None:
                    values["step_time_s"] = seconds
                taken.readings.extend(self._held.push(line, step, values))
                taken.held = True
        return taken

    def finish(self) -> Taken:
        """The last rows."""
        return Taken(readings=self._held.flush())

    def passed(self, step: int) -> None:
        """No bulk way."""

    def _step(self, drawn: _Drawn) -> int:
        if self._first_epoch is None:
            self._first_epoch = 0 if "v_num" in drawn.pairs else min(drawn.epoch, 1)
        return max(drawn.epoch - self._first_epoch, 0) * drawn.total + drawn.done

    def _values(self, pairs: Mapping[str, float]) -> dict[str, float]:
        values: dict[str, float] = {}
        loss = _own_loss(pairs)
        for name, value in pairs.items():
            if name == loss:
                values["loss"] = value
            elif name in _VALIDATION:
                if value != self._val_loss:
                    values["val_loss"] = value
                self._val_loss = value
            elif name != "v_num" and not name.endswith("_epoch"):
                metric, factor = _OTHERS.get(name.removesuffix("_step"), (f"raw/{name}", 1.0))
                values[metric] = value * factor
        return values


def _tqdm(text: str) -> list[_Drawn]:
    found = []
    for bar in tqdm_bar.find_bars(text):
        epoch = _EPOCH.search(bar.about)
        if epoch is not None and _says_loss(bar.postfix):
            found.append(_Drawn(int(epoch[1]), bar.done, bar.total, bar.elapsed_s, bar.postfix))
    return found


def _rich(text: str) -> list[_Drawn]:
    match = _RICH.search(text)
    if match is None:
        return []
    told = ((name, number(raw)) for name, raw in _RICH_PAIR.findall(match["rest"]))
    pairs = {name: value for name, value in told if value is not None}
    elapsed = clock_seconds(match["elapsed"])
    drawn = _Drawn(int(match["epoch"]), int(match["done"]), int(match["total"]), elapsed, pairs)
    return [drawn] if _says_loss(pairs) else []


def _own_loss(pairs: Mapping[str, float]) -> str | None:
    """Which of the names is the step's own loss: Lightning adds `_step` where it means it so."""
    steps = [f"{name}_step" for name in _LOSSES]
    return next((name for name in (*steps, *_LOSSES) if name in pairs), None)


def _says_loss(pairs: Mapping[str, float]) -> bool:
    """Whether a bar is a trainer's, and not NeMo's (which says its own step)."""
    return "reduced_train_loss" not in pairs and ("v_num" in pairs or "loss" in " ".join(pairs))


DIALECT = Dialect(
    name="lightning", markers=("Epoch ", "epoch "), reader=LightningBarReader
)
