"""Which step a console row of the Trainer belongs to: since v4 the row does not say.

In order of preference:
1. a step in the row itself (v3, LLaMA-Factory, ms-swift);
2. the training bar on the same line, or drawn since the row before (it may lag behind: if the
   epoch says so, the epoch wins);
3. epoch times steps per epoch, where the header or banner gives these and the printed epoch is
   precise enough to tell one step from the next;
4. the last row's step plus the distance between rows (logging_steps, or what the bar showed; 1
   if unknown), held inside what the epoch allows.

>>> clock = StepClock()
>>> clock.begin(total=111, per_epoch=37.0)
>>> clock.train_step({"epoch": "'0.2703'"}, None), clock.train_step({"epoch": "'0.5405'"}, None)
(10, 20)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct, field

from loganalyze_parsers.huggingface_keys import number_of, step_of
from loganalyze_parsers.tqdm_bar import Bar

#: The elapsed time of a bar has a resolution of one second: shorter spans are too coarse.
_MIN_SPAN_S = 30.0
#: A bar that is full after so short a time prepared data.
_NO_TRAINING_S = 5.0


class _Rows(Struct):
    """The rows of one rank so far."""

    last_step: int | None = None
    last_epoch: float = -math.inf
    gap: int | None = None


class PostfixClock(Struct):
    """Steps of bars with a loss hung onto them: the bar of a next epoch begins anew."""

    _base: int = 0
    _last: Bar | None = None

    def step(self, bar: Bar) -> int | None:
        """The step of a redraw, counted through the epochs; None where it was drawn before."""
        last, self._last = self._last, bar
        if last is not None and last.total == bar.total:
            again = (bar.elapsed_s or 0.0) < (last.elapsed_s or 0.0)
            if again and last.done == last.total:
                self._base += last.total
            elif bar.done == last.done:
                return None
        return self._base + bar.done


class StepClock(Struct):
    """Everything that tells the step, over one input."""

    total: int | None = None
    per_epoch: float | None = None  # steps per epoch
    logging_steps: int | None = None
    base: int = 0  # step of the checkpoint that the run resumed from
    bar: Bar | None = None
    _other: Bar | None = None
    _rows: dict[int | None, _Rows] = field(default_factory=dict)
    _anchor: tuple[int, float] | None = None

    def begin(self, total: int | None, per_epoch: float | None) -> None:
        """A header: another training run of `total` steps starts."""
        self.total, self.per_epoch = total, per_epoch
        self.bar = self._other = self._anchor = None
        if self._rows:
            self.base = 0
        self._rows.clear()

    def note_bar(self, bar: Bar) -> None:
        """A redraw; bars of evaluation or data preparation are told apart by their total."""
        quick = bar.done == bar.total and (bar.elapsed_s or 0.0) < _NO_TRAINING_S
        if bar.described or (quick and bar.total != self.total):
            return
        if self.total is None:
            self.total = bar.total
        if bar.total != self.total:
            self._other = bar
            return
        if self.bar is not None and bar.done < self.bar.done:
            self._rows.clear()
            self._anchor = None
        self.bar = bar

    def interrupt(self) -> None:
        """Something that is no training takes its time: a speed must not span it."""
        self._anchor = None

    @property
    def blind(self) -> bool:
        """Whether nothing told yet where the first row stands."""
        return not (self._rows or self.bar or self.per_epoch or self.base or self.logging_steps)

    @property
    def last_step(self) -> int | None:
        """The largest step of any rank's last row."""
        steps = [rows.last_step for rows in self._rows.values() if rows.last_step is not None]
        return max(steps, default=None)

    def passed(self, step: int) -> None:
        """A row of that step was read another way."""
        self._rows.setdefault(None, _Rows()).last_step = step

    def train_step(self, pairs: Mapping[str, object], rank: int | None) -> int:
        """Step of a training row; the clock moves on."""
        self._adopt_other()
        rows = self._rows.setdefault(rank, _Rows())
        epoch = number_of(pairs.get("epoch"))
        own = step_of(pairs)
        if epoch is not None and epoch < rows.last_epoch and own is None:
            rows.last_step = None  # another run in the same file
            self.base = 0
        step = own if own is not None else self._guess(pairs.get("epoch"), epoch, rows)
        if rows.last_step is not None and step > rows.last_step:
            rows.gap = step - rows.last_step
        rows.last_step = step
        rows.last_epoch = -math.inf if epoch is None else epoch
        return step

    def eval_step(self, pairs: Mapping[str, object]) -> int | None:
        """Step of an evaluation row: its own, by the epoch, else that of the row before."""
        own = step_of(pairs)
        if own is not None:
            return own
        low, high, best = self._epoch_range(pairs.get("epoch"))
        if best is not None and high - low <= 1.0:
            return round(best)
        if self.bar is not None and self.bar.done >= (self.last_step or 0):
            return self.bar.done
        return self.last_step

    def step_time(self, step: int, elapsed_s: float | None) -> float | None:
        """Mean seconds per step since the last call that gave one; None while the span is short.

        elapsed_s: the clock of the row, else that of the bar if it stands at this very step.
        """
        if elapsed_s is None and self.bar is not None and self.bar.done == step:
            elapsed_s = self.bar.elapsed_s
        if elapsed_s is None:
            return None
        anchor = self._anchor
        if anchor is None or step <= anchor[0] or elapsed_s < anchor[1]:
            self._anchor = (step, elapsed_s)
            return None
        if elapsed_s - anchor[1] < _MIN_SPAN_S:
            return None
        self._anchor = (step, elapsed_s)
        return (elapsed_s - anchor[1]) / (step - anchor[0])

    def _adopt_other(self) -> None:
        """The bar held for the training's was that of something before it, or has finished."""
        bar, other = self.bar, self._other
        if other is None or bar is None or bar.done < bar.total or other.done >= other.total:
            return
        self.total, self.bar, self._other = other.total, other, None
        self._rows.clear()
        self._anchor = None

    def _guess(self, printed: object, epoch: float | None, rows: _Rows) -> int:
        last = rows.last_step
        low, high, best = self._epoch_range(printed)
        bar = self.bar
        moved = bar is not None and bar.done > (self.base if last is None else last)
        if bar is not None and moved and (best is None or bar.done >= math.floor(low)):
            return bar.done
        if best is not None and high - low <= 1.0 and round(best) > (last or 0):
            return round(best)
        gap = self.logging_steps or rows.gap or 1
        step = (self.base if last is None else last) + gap
        if self.total is not None and (last or 0) < self.total:
            step = min(step, self.total)  # the last window of a run is often a short one
        if best is None:
            return step
        floor = (last or 0) + 1
        return max(floor, min(max(step, math.ceil(low)), max(math.floor(high), floor)))

    def _epoch_range(self, printed: object) -> tuple[float, float, float | None]:
        """Steps that round to the printed epoch: from, to, and the middle; None if unknown."""
        epoch = number_of(printed)
        per_epoch = self.per_epoch
        if epoch is None or not per_epoch:
            return -math.inf, math.inf, None
        half = _last_digit(str(printed)) / 2.0
        return (epoch - half) * per_epoch, (epoch + half) * per_epoch, epoch * per_epoch


def _last_digit(printed: str) -> float:
    """Distance of two neighbouring epochs as printed.

    v4 rounds to 2 places (later to more) and drops trailing zeros; v5 quotes 4 significant digits.

    >>> _last_digit("0.5"), _last_digit("0.2703"), _last_digit("'2'"), _last_digit("'0.2703'")
    (0.01, 0.0001, 0.001, 0.0001)
    """
    text = printed.strip("'\" ")
    if text != printed:
        value = abs(float(text))
        return 10.0 ** (math.floor(math.log10(value)) - 3) if value else 1e-4
    return 10.0 ** -max(len(text.partition(".")[2]), 2)
