"""lit-gpt and litgpt: one line an iteration, in the words of several releases.

    iter 40 step 10: loss 3.2101, iter time: 512.33ms (optimizer.step)
    iter 40 | step 10: loss 3.2101, iter time: 512.33 ms
    Epoch 1 | iter 40 step 10 | loss train: 3.210, val: n/a | iter time: 512.33 ms (step)
    iter 400: val loss 1.7258, val time: 3778.02 ms
    Memory used: 14.49 GB

An iteration is a micro-step; the number of the optimizer's step stays raw. A validation loss is
printed until the next validation: only a new one is kept. Forks print seconds.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "Epoch 1 | iter 40 step 10 | loss train: 3.210, val: 2.5 | iter time: 512.5 ms (step)"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["val_loss"], values["step_time_s"]
(40, 3.21, 2.5, 0.5125)
"""

from __future__ import annotations

from msgspec.structs import replace

from loganalyze import lazy
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import PairFormat, PairReader

_N = r"[-+]?(?:nan|inf|[\d.,]+(?:[eE][-+]?\d+)?)"
_START = (
    r"\biter {1,9}(?P<step>\d+) {0,9}\|? {0,9}st[eE]p {1,9}(?P<update>\d+)"
    r":? {0,9}\|? {0,9}(?=loss)"
)
_PAIR = lazy.pattern(
    rf"(loss train|val_loss valid|loss|val|iter time)(?: \([\w ]{{1,40}}\))?:? ({_N})"
)
_NAMES = {
    "loss": ("loss", 1.0),
    "loss train": ("loss", 1.0),
    "val": ("val_loss", 1.0),
    "val_loss valid": ("val_loss", 1.0),
    "iter time": ("step_time_s", 1e-3),
    "update": ("raw/optimizer step", 1.0),
}
_SECONDS = PairFormat(
    start=lazy.pattern(_START + r"(?=.{0,200}\biter time: [\d.]{1,20} s\b)"),
    pair=_PAIR,
    names={**_NAMES, "iter time": ("step_time_s", 1.0)},
)
_MILLISECONDS = PairFormat(start=lazy.pattern(_START), pair=_PAIR, names=_NAMES)
_VALIDATION = PairFormat(
    start=lazy.pattern(r"\biter {1,9}(?P<step>\d+)(?:: | {0,20}\| )(?=val[ _]loss)"),
    pair=lazy.pattern(rf"(val[ _]loss):? ({_N})"),
    names={"val loss": ("val_loss", 1.0), "val_loss": ("val_loss", 1.0)},
)
_MEMORY = PairFormat(
    start=lazy.pattern(r"^(?=Memory used: [\d.]{1,20} GB$)"),
    pair=lazy.pattern(r"(Memory used): ([\d.]{1,20})"),
    names={"Memory used": ("mem_peak_allocated_bytes", 1e9)},
)


class LitgptReader(PairReader):
    """Remembers the last validation loss, which is printed on every line."""

    def __init__(self) -> None:
        """No validation yet."""
        super().__init__((_SECONDS, _MILLISECONDS, _VALIDATION, _MEMORY))
        self._val_loss: float | None = None

    def feed(self, line: Line) -> Taken | None:
        """The readings of a line, without a validation loss that was told before."""
        taken = super().feed(line)
        if taken is not None:
            for index, reading in enumerate(taken.readings):
                values = dict(reading.values)
                if "loss" in values and values.get("val_loss", self._val_loss) == self._val_loss:
                    values.pop("val_loss", None)
                self._val_loss = values.get("val_loss", self._val_loss)
                taken.readings[index] = replace(reading, values=values)
        return taken


DIALECT = Dialect(
    name="litgpt", markers=(" step ", " stEp ", "val loss", "val_loss", "Memory used"),
    reader=LitgptReader, about="lit-gpt and litgpt",
)  # fmt: skip
