"""Home-made loops: a line with a step and a loss in any of the usual spellings, tried last.

    step=55   loss=13.00  gnorm=14.0
    Epoch: 0, Batch: 7, Global Step: 7, Step Time: 1.6160, Loss: 327.3580
    Epoch [2/10], Step [100/600], Loss: 2.3012
    Epoch: [2][ 35/464]  Time 0.738 ( 0.741)  Data 0.002 ( 0.014)  Loss 2.12e+00 (1.54e+00)
    | epoch   1 |   200/ 2928 batches | lr 5.00 | ms/batch 30.78 | loss  8.05 | ppl  3136.13
    [100/1000] loss=2.31 lr=1e-4 grad=1.2 dt=310ms tok/s=41.2K
    Epoch: 2/30
    Train Loss: 6.2979 - Train Perplexity: 543.44
    训练次数：100, Loss：1.98

A line is taken only if it says a loss (or a reward); without a step of its own it belongs to the
step read last, or to the counter that a line above said (`Epoch: 2/30`, `iteration 9/10000`).
Batches counted anew in each epoch are counted on (generic_steps.py). What an average meter prints
in brackets is a mean since the epoch's start and is left out. What is said of an epoch, in a run
whose steps are told as well (by a progress bar, too), belongs to the last step: a mean over the
epoch is no row of the curve.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "Epoch: 0, Batch: 7, Global Step: 7, Step Time: 1.5, Loss: 327.25"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["step_time_s"]
(7, 327.25, 1.5)
>>> rows_of(DIALECT, "[100/1000] loss=2.5 dt=250ms tok/s=1.5K")[-1]
(100, {'loss': 2.5, 'step_time_s': 0.25, 'tokens_per_s': 1500.0})
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.generic_names import UNIT, metric_of, settled
from loganalyze_parsers.generic_steps import EpochCount, Place, counter_of, place_of
from loganalyze_parsers.markers import holds
from loganalyze_parsers.numbers import NUMBER, goes_on, number
from loganalyze_parsers.tqdm_bar import find_bars

_WORD = r"(?!(?:nan|inf|n/a|none)\b)(?:[^\W\d][\w./%@-]{0,60})"
_NAME = rf"(?P<name>{_WORD}(?: {_WORD}){{0,4}})"
_VALUE = rf"(?P<value>(?>{NUMBER}))(?![\w.]*[/:]\d){UNIT}?(?![A-Za-z_])"
_PAIR = lazy.pattern(rf"(?<![\w./]){_NAME}\s{{0,20}}[=:]\s{{0,20}}{_VALUE}", re.IGNORECASE)
_BARE = lazy.pattern(rf"\s{{0,20}}{_NAME}\s{{1,9}}{_VALUE}(?=\s|$)", re.IGNORECASE)
_FIELDS = lazy.pattern(r"[|;,\t]|:\s|\s-\s|\s{2,20}(?!nan\b|inf\b)(?=[^\W\d_])", re.IGNORECASE)
#: `128.3k tok/s`: a speed that stands before its name.
_SPEED = lazy.pattern(
    rf"(?<![\w.,])({NUMBER})\s?([kKM]?)\s?(tok(?:en)?s?/s(?:ec)?|samples?/s(?:ec)?|s/it)(?![\w/])",
    re.IGNORECASE,
)
#: An average meter's mean behind its last value, and other numbers in brackets.
_BRACKETED = lazy.pattern(rf"\(\s{{0,9}}{NUMBER}[%z]?\s{{0,9}}\)")
_METER = lazy.pattern(
    rf"(?:^|\s)(?:(Time|Data)\s{{1,9}}({NUMBER})\s{{0,9}}\(\s{{0,9}}{NUMBER}\s{{0,9}}\)"
    rf"|(Batch|Data) \(t\):\s{{1,9}}({NUMBER}))"
)
_METER_NAMES = {"Time": "step_time_s", "Batch": "step_time_s", "Data": "data_time_s"}
#: PEFT's examples print tensors as they are: `train_epoch_loss=tensor(2.5, device='cuda:0')`.
_TENSOR = lazy.pattern(rf"\btensor\(({NUMBER})[^)]{{0,80}}\)")
_LEVEL = lazy.pattern(r"^(?:[:|\-\s]{1,9}|\[?(?:DEBUG|INFO|WARNING|SUCCESS)\]?[:\s]{1,9})+")
_WANTED = ("oss", "eward", "损失")
#: Names of what counts, not of what is measured.
_COUNTS = frozenset({
    "raw/step", "raw/global step", "raw/global_step", "raw/iteration", "raw/iter", "raw/epoch",
    "raw/batch", "raw/it", "raw/eta", "raw/steps", "raw/cuda", "raw/pid",
})  # fmt: skip
#: What only another trainer's line says: what its own format leaves is torn, and not for this one.
_FOREIGN = ("elapsed time per iteration (ms)", "consumed samples:")
#: The loss of such a line is an evaluation's.
_EVALUATION = lazy.pattern(r"^\W{0,9}(?:eval|valid|val|test|dev)[a-z]{0,9}\b", re.IGNORECASE)
_MAX_CHARS = 2000


class GenericReader:
    """Remembers the last counter line, for loops that print it apart, and the last step."""

    open = False

    def __init__(self) -> None:
        """No counter yet."""
        self._counter: int | None = None
        self._of_epochs = False  # whether it counts epochs
        self._epoch: int | None = None
        self._step: int | None = None
        self._others: int | None = None  # last step of another dialect's row
        self.count = EpochCount()

    def feed(self, line: Line) -> Taken | None:
        """A line with a loss and a step; None for prose, source code and everything else."""
        text = _plain(line.text)
        counter = counter_of(text)
        if counter is not None:
            self._counter, self._of_epochs = counter
            self._epoch = self._counter if self._of_epochs else self._epoch
            return Taken(ignored="counter of the loop")
        if not _wanted(text):
            return None
        place, rest = place_of(_without_tensors(text))
        values = values_of(rest)
        if _EVALUATION.match(text) and "loss" in values:
            values["val_loss"] = values.pop("loss")
        step, values = self._placed(place, values) if _tells(values, place) else (None, values)
        if step is None:
            return None
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _placed(
        self, place: Place | None, values: dict[str, float]
    ) -> tuple[int | None, dict[str, float]]:
        """The step of a line, and its values by what they are means of."""
        last = self._others if self._step is None else self._step
        of_epoch = self._of_epochs if place is None else place.step is None
        if of_epoch and last is not None:
            return last, _of_epoch(values)
        return self._at(place), values

    def _at(self, place: Place | None) -> int | None:
        """The step of a line; one that tells none belongs to the last."""
        if place is not None and place.step is not None:
            epoch = self._epoch if place.epoch is None and place.total else place.epoch
            self._step = self.count.step(place._replace(epoch=epoch))
            return self._step
        if self._step is not None:
            return self._step
        return place.epoch if place is not None else self._counter

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def alone(self, line: Line) -> Place | None:
        """The place that a line tells by itself; None without a step."""
        place, _ = place_of(_without_tensors(_plain(line.text)))
        return place if place is not None and place.step is not None else None

    @property
    def steady(self) -> bool:
        """Whether no epoch was told, by which batches would be counted on."""
        return self._epoch is None

    def went(self, step: int) -> None:
        """A row of its own of that step went by."""
        self._step = step

    def passed(self, step: int) -> None:
        """Another dialect read a row of that step: what is said of an epoch belongs to it."""
        self._others = step


def turns(text: str) -> bool:
    """Whether a line without its prefixes may tell of an epoch by which batches are counted on."""
    text = _plain(text)
    place, _ = place_of(_without_tensors(text))
    return counter_of(text) is not None or (place is not None and place.step is not None)


def _plain(text: str) -> str:
    return _LEVEL.sub("", _behind_bars(text).replace("：", ":"))


def _without_tensors(text: str) -> str:
    return _TENSOR.sub(r"\1", text) if "tensor(" in text else text


def _behind_bars(text: str) -> str:
    """What a line says besides progress bars, whose numbers other readers know."""
    bars = find_bars(text)
    return text[bars[-1].end :].strip() if bars else text


def _of_epoch(values: dict[str, float]) -> dict[str, float]:
    """Means over an epoch under names of their own; a validation at its end is one as any other."""
    return {
        name if name == "val_loss" else f"raw/epoch {name.removeprefix('raw/')}": value
        for name, value in values.items()
    }


def _wanted(text: str) -> bool:
    """Whether a line is short, speaks of a loss or a reward, and is no other trainer's."""
    if len(text) > _MAX_CHARS or holds(text, _FOREIGN):
        return False
    return holds(text, _WANTED)


def _tells(values: dict[str, float], place: Place | None) -> bool:
    """A loss tells; a reward only beside a step."""
    own = place is not None and place.step is not None
    return bool({"loss", "val_loss"} & values.keys()) or (own and "reward" in values)


def values_of(text: str) -> dict[str, float]:
    """Metrics of a line without its place; the first of two of one name counts."""
    values: dict[str, float] = {}
    if "(" in text:
        for name, value, other, said in _METER.findall(text):
            values.setdefault(_METER_NAMES[name or other], float(value or said))
        text = _BRACKETED.sub(" ", _METER.sub(" ", text))
    for pair in _pairs(text):
        value = number(pair["value"])
        if value is not None and not goes_on(pair.string, pair):
            metric, scaled = metric_of(pair["name"], value, pair["unit"] or "")
            if metric not in _COUNTS and not metric.endswith(".py"):
                values.setdefault(metric, scaled)
    for said, unit, name in _SPEED.findall(text) if "/s" in text or "s/it" in text else ():
        metric, scaled = metric_of(name, float(said), unit.upper())
        values.setdefault(metric, scaled)
    return settled(values)


def _pairs(text: str) -> Iterator[re.Match[str]]:
    """`name: value` anywhere, and `name value` from the start of each field of the rest."""
    rest, at = [], 0
    for pair in _PAIR.finditer(text):
        rest.append(text[at : pair.start()])
        at = pair.end()
        yield pair
    for field in _FIELDS.split("|".join([*rest, text[at:]])):
        at = 0
        while (bare := _BARE.match(field, at)) is not None:
            yield bare
            at = bare.end()


DIALECT = Dialect(
    name="home_made",
    markers=("oss", "eward", "poch", "teration", "step ", "step:", "损失", "奖励"),
    reader=GenericReader,
    follows=True,
)
