"""Progress bars with the loss in their description: torchtune, H2O LLM Studio, llama-recipes.

    1|54|Loss: 1.0960:  54%|#####4    | 55/101 [15:04<11:17, 14.73s/it]
    train loss: 1.34:   5%|5         | 51/1034 [01:00<19:20,  1.18s/it]
    Training Epoch: 2/3, step 9/79 completed (loss: 1.31):  13%|#3 | 10/79 [01:30<10:21, 9.00s/it]

torchtune says its step. Elsewhere a bar begins anew with every epoch: the steps of the bars that
were filled before are added, or those of the epochs that the description counts. What llama-recipes
says at the end of an epoch belongs to the last step: means over the epoch are no row of the curve.

>>> from loganalyze_parsers.samples import rows_of
>>> rows_of(DIALECT, "1|54|Loss: 1.25:  54%|#####4    | 55/101 [15:04<11:17, 14.73s/it]")
[(54, {'loss': 1.25})]
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers import tqdm_bar
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.held_rows import HeldRows, Pace
from loganalyze_parsers.numbers import number
from loganalyze_parsers.tqdm_bar import Bar

_N = r"[-+]?(?:nan|inf|\d{1,9}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?)"
_LOSS = lazy.pattern(
    rf"(?:\b([a-z]{{1,20}})[ _/])?loss\s{{0,3}}[:= ]\s{{0,3}}({_N})", re.IGNORECASE
)
_EPOCH = lazy.pattern(r"\bepoch\s{0,3}[:= ]?\s{0,3}\[?(\d{1,6})\b", re.IGNORECASE)
#: torchtune: the epoch from 1 and the step of the whole run.
_TORCHTUNE = lazy.pattern(r"(\d{1,6})\|(\d{1,12})\|Loss: ")
_NOT_TRAINING = frozenset({"val", "valid", "validation", "eval", "test", "dev"})
_PAIR = lazy.pattern(
    r"\b(eval_epoch_loss|eval_ppl|train_epoch_loss|train_perplexity|val_loss)"
    rf"(?:=|: )(?:tensor\()?({_N})"
)
_NAMES = {
    "eval_epoch_loss": "val_loss",
    "val_loss": "val_loss",
    "eval_ppl": "raw/eval_ppl",
    "train_epoch_loss": "raw/train_epoch_loss",
    "train_perplexity": "raw/train_perplexity",
}
_MEMORY = lazy.pattern(
    r"^(Max CUDA memory (?:allocated|reserved)|Peak active CUDA memory) was (\d{1,9}) GB"
)
_MEMORIES = {
    "Max CUDA memory allocated": "mem_peak_allocated_bytes",
    "Max CUDA memory reserved": "mem_peak_reserved_bytes",
    "Peak active CUDA memory": "mem_active_bytes",
}
_GIB = 1024.0**3
_BETWEEN = 80  # characters of a bar's line that may hold the numbers before its loss


class DescribedBarReader:
    """The rows held, and how many steps the bars before took."""

    open = False

    def __init__(self) -> None:
        """No bar yet."""
        self._held = HeldRows()
        self._pace = Pace()
        self._first_epoch: int | None = None
        self._base = 0
        self._last: Bar | None = None
        self._step: int | None = None

    def feed(self, line: Line) -> Taken | None:
        """The rows that the bars of a line complete; None without a bar that has a loss."""
        taken = Taken()
        for bar in tqdm_bar.find_bars(line.text):
            loss = _LOSS.search(bar.about)
            value = number(loss[2]) if loss else None
            if loss and value is not None and (loss[1] or "").lower() not in _NOT_TRAINING:
                self._drawn(line, bar, value, taken)
                taken.ignored = "progress bar"
        if taken.ignored:
            return taken
        return None if self._step is None else self._end_of_epoch(line)

    def finish(self) -> Taken:
        """The last rows."""
        return Taken(readings=self._held.flush())

    def passed(self, step: int) -> None:
        """No bulk way."""

    def _drawn(self, line: Line, bar: Bar, loss: float, taken: Taken) -> None:
        if not bar.done:
            return
        step = self._step = self._step_of(line.text, bar)
        values = {"loss": loss}
        seconds = self._pace.step_time(step, bar.elapsed_s)
        if seconds is not None:
            values["step_time_s"] = seconds
        taken.readings.extend(self._held.push(line, step, values))
        taken.held = True

    def _step_of(self, text: str, bar: Bar) -> int:
        last, self._last = self._last, bar
        own = _TORCHTUNE.search(text, max(bar.start - _BETWEEN, 0), bar.start)
        if own is not None:
            return int(own[2])
        epoch = _EPOCH.search(bar.about)
        if epoch is not None:
            if self._first_epoch is None:
                self._first_epoch = min(int(epoch[1]), 1)
            return max(int(epoch[1]) - self._first_epoch, 0) * bar.total + bar.done
        if last is not None and bar.done < last.done and last.done == last.total:
            self._base += last.total
        return self._base + bar.done

    def _end_of_epoch(self, line: Line) -> Taken | None:
        """What is said of the epoch that the last bar filled."""
        values = {}
        for name, raw in _PAIR.findall(line.text):
            value = number(raw)
            if value is not None:
                values[_NAMES[name]] = value
        memory = _MEMORY.match(line.text)
        if memory is not None:
            values[_MEMORIES[memory[1]]] = float(memory[2]) * _GIB
        if not values:
            return None
        row = Reading(
            step=self._step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[*self._held.flush(), row])


DIALECT = Dialect(
    name="described_bars",
    markers=("oss:", "oss=", "oss ", "CUDA memory"),
    reader=DescribedBarReader,
)
