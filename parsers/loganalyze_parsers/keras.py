"""Keras' progress lines, of version 2 and 3, as KerasHub's fine-tuning prints them too.

    Epoch 2/3
      32/1000 [>.............................] - ETA: 1:23 - loss: 2.3012 - accuracy: 0.1234
    1000/1000 [==============================] - 83s 83ms/step - loss: 1.2345 - val_loss: 1.3456
      32/1000 ━━━━━━━━━━━━━━━━━━━━ 1:23 86ms/step - accuracy: 0.4512 - loss: 2.3012

The bar is drawn again and again, parted by carriage returns or backspaces. The step counts through
the epochs; loss and time per step are means since the beginning of the epoch.

>>> from loganalyze_parsers.samples import rows_of
>>> rows_of(DIALECT, "Epoch 2/3", "32/1000 ━━━━━━━━━━━━━━━━━━━━ 1:23 86ms/step - loss: 2.5")
[(1032, {'loss': 2.5, 'step_time_s': 0.086})]
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.numbers import NUMBER, number

_EPOCH = lazy.pattern(r"^\x08{0,999}Epoch (\d{1,7})/\d{1,7}$")
_START = lazy.pattern(
    r"^[\x08 ]{0,999}(\d{1,12})/(\d{1,12}|Unknown) (?:\[[=>.]{4,80}\]|[━╸]{4,80})"
)
_STEP_TIME = lazy.pattern(rf"\b({NUMBER})(us|ms|s)/(?:step|sample)")
_PAIR = lazy.pattern(rf" - (?!ETA)([A-Za-z_][\w./]{{0,120}}): ({NUMBER})")
_IN_A_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}
_NAMES = {
    "loss": "loss", "val_loss": "val_loss", "learning_rate": "lr", "lr": "lr",
    "accuracy": "token_accuracy", "sparse_categorical_accuracy": "token_accuracy",
    "perplexity": "perplexity",
}  # fmt: skip


class Keras:
    """Reads progress lines; remembers the epoch that a line above them said."""

    open = False

    def __init__(self) -> None:
        """The first epoch, as long as none was said."""
        self._epoch = 1

    def feed(self, line: Line) -> Taken | None:
        """The reading of a bar; None for other lines."""
        if (told := _EPOCH.match(line.text)) is not None:
            self._epoch = int(told[1])
            return Taken(ignored="epoch of a progress bar")
        match = _START.match(line.text)
        if match is None:
            return None
        rest = line.text[match.end() :]
        values = {
            _NAMES.get(name, f"raw/{name}"): value
            for name, text in _PAIR.findall(rest)
            if (value := number(text)) is not None
        }
        if (time := _STEP_TIME.search(rest)) is not None and (value := number(time[1])) is not None:
            values["step_time_s"] = value / _IN_A_SECOND[time[2]]
        if not values:
            return Taken(ignored="progress bar without a number")
        step = int(match[1]) + (self._epoch - 1) * (int(match[2]) if match[2].isdigit() else 0)
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def finish(self) -> Taken:
        """Nothing stays open."""
        return Taken()

    def passed(self, step: int) -> None:
        """It has no bulk way."""


DIALECT = Dialect(name="keras", markers=("━━━━", "[=", "[>", "..] -", "Epoch "), reader=Keras)
