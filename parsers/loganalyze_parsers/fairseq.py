"""fairseq and metaseq: bars, pipes and JSON lines; the loss is in base 2 and becomes nats.

| epoch 005  40 / 1000 loss=3.9 (4.1), wps=12345, bsz=32, lr=0.0005, gnorm=0.9         (2018)
| epoch 005 | train loss 3.88 | train ppl 14.7 | words/s 12345 | gnorm 0.635           (2018)
epoch 005:  40 / 1000 loss=3.9, ppl=14.9, wps=12345, num_updates=4040, lr=0.0005, gnorm=0.9
| epoch 005 | loss 3.882 | nll_loss 2.1 | ppl 4.3 | num_updates 9165 | gnorm 0.635
| epoch 005 | valid on 'valid' subset | loss 9.329 | ppl 272.04 | num_updates 9165
2031-04-02 10:11:12 | INFO | train_inner | {"epoch": 1, "loss": "3.9", "num_updates": "40"}
NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 8.0

Without num_updates a step is counted through the epochs. The line at the end of an epoch holds
means over it: where the epoch's own lines were read they are kept beside the curve, not in it.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "| epoch 005 | loss 4 | ppl 16 | num_updates 9165 | gnorm 0.635"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["perplexity"], values["grad_norm"]
(9165, 2.772588722239781, 16.0, 0.635)
"""

from __future__ import annotations

import math
import re

from loganalyze import lazy
from loganalyze.model import Event, Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import PairFormat, named

_BITS = math.log(2.0)  # 1 bit = ln 2 nats
_NAMES = {
    "loss": ("loss", _BITS),
    "train loss": ("loss", _BITS),
    "valid loss": ("val_loss", _BITS),
    "valid_loss": ("val_loss", _BITS),
    "train ppl": ("perplexity", 1.0),
    "words/s": ("tokens_per_s", 1.0),
    "ppl": ("perplexity", 1.0),
    "wps": ("tokens_per_s", 1.0),
    "gnorm": ("grad_norm", 1.0),
    "lr": ("lr", 1.0),
    "loss_scale": ("loss_scale", 1.0),
}
_N = r"[-+]?(?:nan|inf|[\d.]+(?:[eE][-+]?\d+)?)"
_DROPPED = frozenset({"num_updates", "epoch"})
_BAR = PairFormat(
    start=lazy.pattern(
        r"\bepoch (?P<epoch>\d{1,9}):? {1,20}(?P<done>\d{1,15}) / (?P<total>\d{1,15}) "
    ),
    pair=lazy.pattern(rf"(\w{{1,120}})=({_N})"),
    names=_NAMES,
    dropped=_DROPPED,
)
_PIPE = PairFormat(
    start=lazy.pattern(r"\| epoch (?P<epoch>\d{1,9}) \|"),
    pair=lazy.pattern(rf"\| ((?:(?:train|valid) )?[\w/]{{1,120}}) {{1,20}}({_N})"),
    names=_NAMES,
    dropped=_DROPPED,
)
_JSON = PairFormat(
    start=lazy.pattern(r"\btrain(?P<inner>_inner)? \| (?=\{)"),
    pair=lazy.pattern(rf'"(\w+)": "?({_N})"?'),
    names=_NAMES,
    dropped=_DROPPED,
)
_UPDATES = lazy.pattern(r'num_updates(?:=| |": "?)(\d+)')
_VALID = lazy.pattern(r"\| (valid\w*|test\w*) \| (?=\{)")
_OVERFLOW = lazy.pattern(r"overflow detected,.{0,400}setting loss scale to: ([\d.]+)")


class FairseqReader:
    """The epoch whose lines are being read, and its length, for lines that do not say a step."""

    open = False

    def __init__(self) -> None:
        """No epoch yet."""
        self._total: int | None = None
        self._inner = False  # whether lines of the epoch itself were read

    def feed(self, line: Line) -> Taken | None:
        """A reading, an overflow event, or None."""
        overflow = _OVERFLOW.search(line.text)
        if overflow is not None:
            event = Event(
                kind="overflow", ref=line.ref, text=line.text[:400], rank=line.rank,
                wall_s=line.wall_s, detail={"new_scale": float(overflow[1])},
            )  # fmt: skip
            return Taken(events=[event])
        for form in (_BAR, _JSON, _PIPE):
            start = form.start.search(line.text)
            if start is not None:
                return self._record(line, form, start)
        return self._validation(line)

    def _record(self, line: Line, form: PairFormat, start: re.Match[str]) -> Taken | None:
        pairs = form.pair.findall(line.text, max(start.end() - 1, 0))
        if form is _JSON and any(key == "train_loss" for key, _ in pairs):
            pairs = [(key.removeprefix("train_"), value) for key, value in pairs]
        values = named(pairs, form)
        step = self._step(line.text, form, start)
        if step is None and "valid on" in line.text:
            return Taken(ignored="progress of a validation")
        if step is None or not {"loss", "val_loss"} & values.keys():
            return None
        inner = form is _BAR or bool(start.groupdict().get("inner"))
        if "valid on" in line.text:
            values = {"val_loss": values.get("val_loss", values.get("loss", math.nan))}
        elif inner:
            self._inner = True
        elif self._inner:
            values = {f"raw/epoch {key.removeprefix('raw/')}": v for key, v in values.items()}
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _step(self, text: str, form: PairFormat, start: re.Match[str]) -> int | None:
        """The updates that a line says, else those of the epochs before it and its own."""
        if form is _BAR and "valid on" not in text:
            self._total = int(start["total"])
        updates = _UPDATES.search(text, start.end())
        if updates is not None:
            return int(updates[1])
        if form is _JSON or self._total is None:
            return None
        if form is _BAR:
            return (int(start["epoch"]) - 1) * self._total + int(start["done"])
        # the bar of a validation has a length of its own, and its loss is no mean yet
        return None if " / " in text else int(start["epoch"]) * self._total

    def _validation(self, line: Line) -> Taken | None:
        """A JSON line of the validation: its keys have the set's name before them."""
        start = _VALID.search(line.text)
        if start is None:
            return None
        pairs = [(k.removeprefix(f"{start[1]}_"), v) for k, v in _JSON.pair.findall(line.text)]
        numbers = dict(pairs)
        if "loss" not in numbers or "num_updates" not in numbers:
            return None
        values = {"val_loss": float(numbers["loss"]) * _BITS}
        known = {"loss", "num_updates", "epoch"}
        more = {f"valid_{k}": v for k, v in numbers.items() if k not in known}
        values.update(named(more.items(), _JSON))
        step = int(float(numbers["num_updates"]))
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No bulk way."""


DIALECT = Dialect(
    name="fairseq", markers=("num_updates", "overflow detected", "| epoch "), reader=FairseqReader
)
