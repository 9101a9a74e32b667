"""The Hugging Face Trainer's console and its kin: TRL, LLaMA-Factory, ms-swift, axolotl, Unsloth.

    {'loss': 1.2345, 'grad_norm': 0.81, 'learning_rate': 4.5e-05, 'epoch': 0.12}
    {'eval_loss': '1.31', 'eval_runtime': '36.4', 'epoch': '1'}
    {'train_runtime': 282.2, 'train_samples_per_second': 177.2, 'train_loss': 0.2, 'epoch': 2.0}
    {"current_steps": 10, "total_steps": 870, "loss": 1.2, "lr": 4e-05, "elapsed_time": "0:01:02"}

The last row of a run holds means over the whole run: it becomes a `note` event, not a row of a
curve. How a row without a step gets one is told in huggingface_steps.py.

>>> from loganalyze.model import LineRef
>>> reader = HuggingFaceReader()
>>> text = "  1%|#  | 9/860 [00:43<1:05:18,  4.60s/it]{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.2}"
>>> line = Line(text=text, ref=LineRef(source=0, line=1, offset=0, length=len(text)))
>>> row = reader.feed(line).readings[0]
>>> row.step, row.values["loss"], row.values["raw/nan_hidden"]
(9, nan, 1.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from loganalyze.model import Event, Problem, Reading
from loganalyze_parsers import tqdm_bar
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.huggingface_bulk import HuggingFaceBulk
from loganalyze_parsers.huggingface_dicts import (
    Found,
    Repeats,
    find_dicts,
    is_open_dict,
    is_twin,
    same_row,
)
from loganalyze_parsers.huggingface_keys import (
    Kind,
    kind_of,
    reveal_hidden_nan,
    step_of,
    values_of,
)
from loganalyze_parsers.huggingface_life import LIFE_MARKERS, Life
from loganalyze_parsers.huggingface_steps import PostfixClock, StepClock
from loganalyze_parsers.markers import holds
from loganalyze_parsers.openrlhf_bars import STEP_MARK, Updates
from loganalyze_parsers.wrapped import Wrapped, merged

_DICT_MARKERS = (
    "'loss'", '"loss"', "'epoch'", '"epoch"', "'learning_rate'", '"current_steps"',
    "'eval_loss'", '"eval_loss"', "'train_runtime'", "/loss'", "'objective/kl'", "_runtime'",
    '"last_model_checkpoint"', '"train_runtime"', "{'accuracy'", "{'dataset_", "{'gradient_norm'",
)  # fmt: skip
_TWICE = "first of two prints of a row"
#: Postfixes of other makers' bars.
_FOREIGN_POSTFIX = ("v_num", "reduced_train_loss", "global_step")
#: OpenRLHF's names are the first and the last three.
_POSTFIX_LOSS = (
    "gpt_loss", "loss", "train_loss", "step_loss", "train/loss", "avr_loss", "act_loss",
    "policy_loss", "pg",
)  # fmt: skip
#: What OpenRLHF shortens where the policy's loss is `pg`.
_SHORT = {"rm": "reward", "ret": "return", "cri": "critic_loss", "vals": "values"}


class HuggingFaceReader:
    """One input's state: the clock, and what the rows before said."""

    def __init__(self) -> None:
        """Nothing seen."""
        self._clock = StepClock()
        self._life = Life(self._clock)
        self._last_loss: dict[int | None, float | None] = {}
        self._last_pairs: Mapping[str, str] = {}
        self._told_hidden = False
        self._postfix = PostfixClock()
        self._updates = Updates()
        self._wrapped = Wrapped(is_open_dict, _continues, most=40)
        self._twin: tuple[Line, Found] | None = None
        self._first: tuple[Line, Found] | None = None
        self._repeats = Repeats()

    @property
    def open(self) -> bool:
        """Whether a block is open whose rows have no mark of their own, or a row goes on."""
        return self._life.open or self._wrapped.open

    def feed(self, line: Line) -> Taken | None:
        """Readings, events, or None for a line of another make."""
        if self._wrapped.open and tqdm_bar.may_hold_bar(line.text):
            line = self._between(line)
            if not line.text:
                return Taken(ignored="progress bar")
        lines = self._wrapped.push(line)
        if not lines:
            return Taken(ignored="row of a wrapped record")
        taken = [found for one in lines if (found := self._whole(one)) is not None]
        return merged(taken) if taken else None

    def _between(self, line: Line) -> Line:
        """The line without the bars that were drawn into the middle of an open row."""
        bars = tqdm_bar.find_bars(line.text)
        text = line.text
        for bar in reversed(bars):
            self._clock.note_bar(bar)
            text = text[: bar.start] + text[bar.end :]
        return replace(line, text=text.strip())

    def _whole(self, line: Line) -> Taken | None:
        text = line.text
        if STEP_MARK in text:
            self._updates.steps_are_told()
        bars = tqdm_bar.find_bars(text)
        row = holds(text, _DICT_MARKERS)
        before = self._settle_first() if row else []  # the bar on this line is not its own
        for bar in bars:
            self._clock.note_bar(bar)
        if self._first is not None and self._clock.bar is not None and self._clock.bar.done:
            before = self._settle_first()
        taken: Taken | None
        if tqdm_bar.is_bare(text, bars) and not self._life.open:
            taken = Taken(ignored="progress bar")  # as would come out below, after much looking
        else:
            taken = self._rows(line) if row else None
            taken = taken or self._life.feed(line) or self._bar_only(line, bars)
        return merged([*before, taken or Taken()]) if before else taken

    def finish(self) -> Taken:
        """A row that the end of the input cut."""
        taken = [found for one in self._wrapped.flush() if (found := self._whole(one)) is not None]
        last = Taken(readings=self._updates.flush())
        self._settle(None, last)
        return merged([*taken, last, *self._settle_first()])

    def passed(self, step: int) -> None:
        """A row of that step was read by the column."""
        self._clock.passed(step)

    def _rows(self, line: Line) -> Taken | None:
        taken = Taken()
        for found in find_dicts(line.text):
            kind = kind_of(frozenset(found.pairs))
            if kind:
                self._take(line, found, kind, taken)
        told = taken.readings or taken.events or taken.ignored or taken.held
        return taken if told else None

    def _take(self, line: Line, found: Found, kind: Kind, taken: Taken) -> None:
        if kind == "train" and is_twin(line.text, found.pairs):
            self._take_twin(line, found, taken)
            return
        found = self._settle(found if kind == "train" else None, taken) or found
        if kind == "progress":
            taken.ignored = "progress without numbers of training"
        elif kind == "summary":
            self._clock.interrupt()
            taken.events.append(_summary(line, found, self._clock.last_step))
        elif kind == "eval":
            self._clock.interrupt()
            step = self._clock.eval_step(found.pairs)
            taken.readings.append(_reading(line, step, values_of(found.pairs)))
        elif line.rank is None and self._repeats.is_copy(found.pairs):
            taken.ignored = "copy by another rank"
        elif self._clock.blind and step_of(found.pairs) is None and self._first is None:
            self._first, taken.held = (line, found), True
        else:
            self._train(line, found, taken)

    def _take_twin(self, line: Line, found: Found, taken: Taken) -> None:
        """A logger's print of a row: held for the console's, or what it adds to the one before."""
        if "grad_norm" in self._last_pairs and same_row(found.pairs, self._last_pairs):
            values = values_of(found.pairs)
            more = {key: value for key, value in values.items() if key.startswith("raw/")}
            if more:
                taken.readings.append(_reading(line, self._clock.last_step, more))
            else:
                taken.ignored = _TWICE
            return
        self._settle(None, taken)
        self._twin = (line, found)
        taken.ignored = _TWICE

    def _settle(self, found: Found | None, taken: Taken) -> Found | None:
        """The held print becomes part of the row `found` if it is the same, else a row itself."""
        held, self._twin = self._twin, None
        if held is None:
            return found
        line, twin = held
        if found is not None and same_row(twin.pairs, found.pairs):
            return replace(found, pairs={**twin.pairs, **found.pairs})
        self._train(line, twin, taken)
        return found

    def _settle_first(self) -> list[Taken]:
        """The first row of an excerpt, which the bar drawn after it may tell the step of."""
        held, self._first = self._first, None
        taken = Taken()
        if held is not None:
            self._train(*held, taken)
        return [taken] if held else []

    def _train(self, line: Line, found: Found, taken: Taken) -> None:
        for first in self._settle_first():  # glued to this row
            taken.readings.extend(first.readings)
        values = values_of(found.pairs)
        step = self._clock.train_step(found.pairs, line.rank)
        elapsed = values.get("raw/elapsed_s", values.get("raw/train_runtime"))
        seconds = self._clock.step_time(step, elapsed)
        if seconds is not None:
            values.setdefault("step_time_s", seconds)
        loss = values.get("loss")
        if reveal_hidden_nan(values, self._last_loss.get(line.rank)) and not self._told_hidden:
            self._told_hidden = True
            taken.problems.append(_hidden_problem(line, step))
        self._last_loss[line.rank] = loss
        self._last_pairs = found.pairs
        taken.readings.append(_reading(line, step, values))

    def _bar_only(self, line: Line, bars: Sequence[tqdm_bar.Bar]) -> Taken | None:
        if not bars:
            return None
        bar = bars[-1]
        names = [name for name in _POSTFIX_LOSS if name in bar.postfix]
        if names and self._updates.is_summed_up(line.text, bar.start):
            return Taken(ignored="progress bar")
        if names and not any(name in bar.postfix for name in _FOREIGN_POSTFIX):
            return self._postfix_row(line, bar, names[0])
        rest = line.text[bar.end :].strip()
        return None if rest else Taken(ignored="progress bar")

    def _postfix_row(self, line: Line, bar: tqdm_bar.Bar, loss: str) -> Taken:
        """Accelerate scripts hang the loss of the last step onto the bar."""
        step = self._postfix.step(bar)
        if step is None:
            return Taken(ignored="progress bar")
        pairs: dict[str, object] = {**bar.postfix, "loss": bar.postfix[loss]}
        if loss != "loss":
            pairs.pop(loss)
        if loss == "pg":
            pairs = {_SHORT.get(name, name): value for name, value in pairs.items()}
        if "chosen_reward" in pairs and "acc" in pairs:  # of preferences, not of tokens
            pairs["rewards/accuracies"] = pairs.pop("acc")
        row = _reading(line, step, values_of(pairs))
        rows = self._updates.push(line.text, bar.start, bar.done, row)
        return Taken(readings=rows, held=not rows, ignored="" if rows else "progress bar")


def _continues(line: Line) -> bool:
    """Whether a line may be the rest of an open dictionary."""
    text = line.text
    return line.wall_s is None and not text.startswith(("{", "[")) and ("}" in text or ":" in text)


def _reading(line: Line, step: int | None, values: dict[str, float]) -> Reading:
    return Reading(step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s)


def _summary(line: Line, found: Found, step: int | None) -> Event:
    """The run's last row: means over the whole run."""
    detail = {name.removeprefix("raw/"): value for name, value in values_of(found.pairs).items()}
    return Event(
        kind="note", ref=line.ref, text=line.text[found.start : found.end][:400], step=step,
        rank=line.rank, wall_s=line.wall_s, detail={"summary": "end of training", **detail},
    )  # fmt: skip


def _hidden_problem(line: Line, step: int) -> Problem:
    return Problem(
        rule="nan_hidden_by_trainer",
        message=(
            f"step {step}: grad_norm is NaN beside a loss of 0 or one repeated from the row "
            "before: the Trainer's logging_nan_inf_filter hides a NaN loss; a 0 is read as NaN. "
            "Set logging_nan_inf_filter=False to see the loss itself"
        ),
        ref=line.ref,
    )


DIALECT = Dialect(
    name="huggingface",
    markers=(*_DICT_MARKERS, *LIFE_MARKERS, *tqdm_bar.MARKERS, STEP_MARK),
    reader=HuggingFaceReader,
    bulk=HuggingFaceBulk,
)
