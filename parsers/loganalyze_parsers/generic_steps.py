"""Where in its run a line of a home-made loop stands: a step, a batch of an epoch, or both.

    step 55             Epoch [2/10], Step [100/600]      Epoch: [21][1390/1930]
    [100/1000] loss     Train Epoch: 1 [640/60000 (1%)]   Epoch:[1/2](100/8824)
    490 | loss          | epoch   1 |   200/ 2928 batches

Most loops count their batches anew in every epoch. EpochCount counts them on, so that an epoch's
first batch follows the last of the epoch before and is not taken for a restart; it does so only
where the count really fell, for others print a number that runs through.

>>> place_of("Epoch [2/10], Step [100/600], Loss: 2.3")[0]
Place(step=100, total=600, epoch=2)
>>> count = EpochCount()
>>> lines = ("Epoch 1 Step 590/600", "Epoch 2 Step 10/600", "Epoch 2 Step 20/600")
>>> [count.step(place_of(line)[0]) for line in lines]
[590, 610, 620]
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from loganalyze import lazy
from loganalyze_parsers.digits import Ints

_WHOLE = r"(\d{1,15})(?!\.?\d)"
_OF = rf"(?:\s{{0,9}}/\s{{0,9}}{_WHOLE})?"
_GLOBAL = lazy.pattern(
    rf"\b(?:global|total|train)[ _]?(?:step|iter|iteration)\b\s{{0,20}}[=: ]\s{{0,20}}{_WHOLE}",
    re.IGNORECASE,
)
#: A step of the run by names that may count all that are planned, where another is beside them.
_OWN = lazy.pattern(
    r"(?<!total )(?<!total_)(?<!max )(?<!max_)\b(?:num_updates|steps|iterations)"
    rf"\s{{0,3}}[:=]\s{{0,3}}{_WHOLE}",
    re.IGNORECASE,
)
#: `[   1/   3][ 100/ 1000]`: the epoch, and the step of the run.
_PAIRED = lazy.pattern(r"\[\s{0,9}\d{1,9}/\s{0,9}\d{1,9}\]\[\s{0,9}(\d{1,15})/\s{0,9}\d{1,15}\]")
_NAMED = lazy.pattern(
    r"(?<![/\w])(?:train(?:ing)?[ _])?(?:step|iteration|iter|it|batch|iter_num|batch_idx|update|"
    r"训练次数|步数|迭代次数|迭代)(?![A-Za-z_])(?:\.{3})?"
    rf"\s{{0,20}}[=: ]?\s{{0,20}}[\[(]?\s{{0,9}}{_WHOLE}{_OF}[\])]?",
    re.IGNORECASE,
)
#: `[100/600]`, `( 100/8824)`, `[640/60000 (1%)]`, `200/ 2928 batches`.
_BRACKET = lazy.pattern(
    rf"[\[(]\s{{0,9}}{_WHOLE}\s{{0,9}}/\s{{0,9}}{_WHOLE}(?:\s?\(\s{{0,3}}[\d.]{{1,6}}%\))?\s{{0,3}}[\])]"
    rf"|(?<![\d./]){_WHOLE}\s{{0,9}}/\s{{0,9}}{_WHOLE}\s{{1,9}}(?:batches|steps|iters)\b"
)
_EPOCH = lazy.pattern(
    r"(?:^|[-|:\]>,;)] {0,3})(?:(?:start|end) of )?(?:train(?:ing)?[ _])?epochs?\b(?:\.{3})?"
    rf"\s{{0,20}}[=: ]?\s{{0,20}}[\[(]?\s{{0,9}}{_WHOLE}{_OF}\s{{0,3}}[\])]?",
    re.IGNORECASE,
)
#: `490 | loss 5.75`: the first cell of a row.
_CELL = lazy.pattern(rf"^{_WHOLE}()\s{{0,9}}\|(?!\d)")
#: A line of nothing but a counter, whose lines come below.
_COUNTER = lazy.pattern(
    r"^(?P<what>(?:train(?:ing)?[ _])?(?:epoch|iteration|step|iter))s?\s{0,20}[=: ]?\s{0,20}"
    r"[\[(]?(?P<at>\d{1,15})(?:\s?/\s?\d{1,15})?[\])]?:?$",
    re.IGNORECASE,
)
_MOST_COUNTER = 80  # characters
_MOST_STEP = 2**62  # what epochs of absurd lengths add up to stays a number of 64 bits
#: What a place that is counted on is called beside the values of its line.
EPOCH, TOTAL = "place/epoch", "place/total"


class Place(NamedTuple):
    """What a line says of where it stands. step None: only its epoch is told.

    total: steps of an epoch. epoch None: not told, or the step runs through all epochs.
    """

    step: int | None
    total: int | None = None
    epoch: int | None = None

    @property
    def values(self) -> dict[str, float]:
        """What the step is to be counted on by; nothing where no epoch is told."""
        if self.epoch is None:
            return {}
        told = {EPOCH: float(self.epoch)}
        return told if self.total is None else told | {TOTAL: float(self.total)}


def counter_of(text: str) -> tuple[int, bool] | None:
    """The number of a line that is a counter and no more, and whether it counts epochs.

    >>> counter_of("Epoch: 2/30"), counter_of("iteration 9/10000"), counter_of("step 3: loss 1")
    ((2, True), (9, False), None)
    """
    found = _COUNTER.match(text) if len(text) < _MOST_COUNTER else None
    return None if found is None else (int(found["at"]), "epoch" in found["what"].lower())


def place_of(text: str) -> tuple[Place | None, str]:
    """The place that a line tells, and the line without those words."""
    whole = _GLOBAL.search(text) or _PAIRED.search(text)
    if whole is None and _NAMED.search(text) is None:
        whole = _OWN.search(text)
    if whole is not None:
        return Place(int(whole[1])), _without(text, whole)
    epoch = _EPOCH.search(text)
    rest = text if epoch is None else _without(text, epoch)
    step = _NAMED.search(rest) or _position(rest, after_epoch=epoch is not None)
    number = None if epoch is None else int(epoch[1])
    if step is None:
        return (None if number is None else Place(None, None, number)), rest
    said = [group for group in step.groups() if group]  # a bracket has two alternatives
    total = int(said[1]) if len(said) > 1 else None
    return Place(int(said[0]), total, number), _without(rest, step)


def _position(text: str, *, after_epoch: bool) -> re.Match[str] | None:
    """A bracket where an epoch stands before it or where it begins or ends the line; or a cell."""
    found = _BRACKET.search(text)
    edge = found is not None and (not text[: found.start()].strip() or found.end() == len(text))
    return found if after_epoch or edge else _CELL.match(text)


def _without(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]} | {text[match.end() :]}"


class EpochCount:
    """Counts the batches of all epochs; its state is the epoch at hand and where it began."""

    def __init__(self) -> None:
        """No epoch yet."""
        self._epoch: int | None = None
        self._begun = 0
        self._last = 0

    def step(self, place: Place) -> int:
        """The step counted from the first epoch that was seen."""
        step = place.step or 0
        if place.epoch is None:
            return step
        if self._epoch is not None and place.epoch != self._epoch:
            self._turn(place.epoch - self._epoch, step, place.total)
        self._epoch, self._last = place.epoch, step
        return self._begun + step

    def steps(self, steps: Ints, epochs: Ints, totals: Ints) -> Ints:
        """The same of many places in a row, -1 where an epoch or a total is not told."""
        made = steps.copy()
        edges = np.flatnonzero(epochs[1:] != epochs[:-1]) + 1
        for first, end in pairwise([0, *edges.tolist(), len(steps)]):
            if first < end and epochs[first] >= 0:
                total = int(totals[first]) if totals[first] >= 0 else None
                self.step(Place(int(steps[first]), total, int(epochs[first])))
                made[first:end] += min(self._begun, _MOST_STEP)
                self._last = int(steps[end - 1])
        return made

    def _turn(self, epochs: int, step: int, total: int | None) -> None:
        """Another epoch begins; a smaller one is another rank's, or a run begun again."""
        if epochs > 0 and step <= self._last:
            # Counted from zero, the last step of an epoch is one less than its length.
            self._begun += epochs * (total or self._last + (step == 0))
        elif epochs < 0 and self._begun:
            self._begun = max(0, self._begun + epochs * total) if total else 0
