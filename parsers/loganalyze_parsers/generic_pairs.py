"""Home-made loops: a line with a step and a loss in any of the usual spellings, tried last.

    step=55   loss=13.00  gnorm=14.0
    Epoch: 0, Batch: 7, Global Step: 7, Step Time: 1.6160, Loss: 327.3580
    epoch 1/50 - it 6/100 - loss: 2.473 - acc: 0.305
    Epoch:[0/2](100/24681) loss:5.251 lr:0.00020000
    | epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.34 | loss  7.63 | ppl  2055.72
    40 | loss 5.6250 | lr 3.000000e-04 | 13673.21ms
    Epoch: 2/30
    Train Loss: 6.2979 - Train Perplexity: 543.44
    Valid Loss: 6.1302 - Valid Perplexity: 459.54

A line is taken only if it says a loss; without a step of its own it belongs to the counter that a
line above said (`Epoch: 2/30`, `iteration 9/10000`). A counter that begins anew with each
epoch is counted through (epoch_counter.py). What is said of an epoch, in a loop that prints its
steps as well (in a progress bar, too), belongs to the last step: a mean over the epoch is no row of
the curve.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "Epoch: 0, Batch: 7, Global Step: 7, Step Time: 1.5, Loss: 327.25"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["step_time_s"]
(7, 327.25, 1.5)
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.epoch_counter import EpochCounter
from loganalyze_parsers.pairs import PairFormat, named
from loganalyze_parsers.tqdm_bar import find_bars

_N = r"[-+]?(?:nan|inf|NaN|Inf|\d[\d.]*(?:[eE][-+]?\d+)?)"
#: PEFT's examples print tensors as they are: `train_epoch_loss=tensor(2.5, device='cuda:0')`.
_PAIR = lazy.pattern(
    rf"([A-Za-z][A-Za-z_ /.]{{0,120}}?)\s{{0,20}}[=:]\s{{0,20}}(?:tensor\()?({_N})"
    r"(?![\w.]*[/:]\d)"
)
_STEP = lazy.pattern(
    r"\b(?:global[ _]step|step|iterations?|iter|it|num_updates)\b\s{0,20}[=: ]\s{0,20}"
    r"\[?(?P<count>\d+)(?:\s{0,20}/\s{0,20}(?P<total>\d+))?|\bsteps: (?P<steps>\d+)",
    re.IGNORECASE,
)
#: What else counts the steps of an epoch, always with its length.
_BATCH = lazy.pattern(
    r"\bbatch\s{0,20}[=: ]\s{0,20}\[?(?P<count>\d+)\s{0,20}/\s{0,20}(?P<total>\d+)"
    r"|\bepoch\s?:?\s?\[\d{1,9}/\d{1,9}\]\s?\((?P<in_epoch>\d+)/(?P<of_epoch>\d+)\)"
    r"|\[\s{0,20}\d{1,9}/\s{0,20}\d{1,9}\]\[\s{0,20}(?P<of_run>\d+)/\s{0,20}\d+\]"
    r"|\|\s{1,20}(?P<batches>\d+)/\s{0,20}(?P<of_batches>\d+) batches\b",
    re.IGNORECASE,
)
_NUMBERED = lazy.pattern(r"^(\d{1,15}) \| (?=[a-z])")
_ANY_EPOCH = lazy.pattern(r"\bepoch\b\s{0,20}[=:]?\s{0,20}\[?(\d{1,9})\b", re.IGNORECASE)
#: `- loss 0.25 - lr 0.1 |`: between dashes or bars nothing stands between name and number.
_SPACED = lazy.pattern(
    rf"(?<=[-|] )([A-Za-z][A-Za-z_/]{{0,40}}(?: [a-z]{{1,20}})?) {{1,20}}({_N})"
    r"(?=\s{0,20}(?:[-|]|$))"
)
#: `step 100 loss 2.34 lr 0.0001`: nothing between name and number, and nothing else on the line.
_BARE = lazy.pattern(
    rf"^(?:step|iter|iteration) (\d+)((?: {{1,20}}[a-z][a-z_/.]{{0,120}} {_N})+)$", re.IGNORECASE
)
_BARE_PAIR = lazy.pattern(rf"([A-Za-z][A-Za-z_/.]{{0,120}}) ({_N})")
#: `Epoch: 3, train_loss: 1.23, val_loss: 1.5`: one line an epoch, the epoch is the step.
_EPOCH = lazy.pattern(
    r"^(?:[\w.]{1,80} - )?epochs?\b\s{0,20}[=: ]?\s{0,20}\[?(\d+)\b", re.IGNORECASE
)
_COUNTER = lazy.pattern(
    r"^(?:epoch|iteration|step|iter)\s{0,20}[=: ]?\s{0,20}(\d+)(?:/\d+)?:?$", re.IGNORECASE
)
_NAMES = {
    "loss": ("loss", 1.0),
    "train loss": ("loss", 1.0),
    "train_loss": ("loss", 1.0),
    "train_epoch_loss": ("loss", 1.0),
    "eval_epoch_loss": ("val_loss", 1.0),
    "train_ppl": ("perplexity", 1.0),
    "training loss": ("loss", 1.0),
    "total_loss": ("loss", 1.0),
    "train/total_loss": ("loss", 1.0),
    "valid loss": ("val_loss", 1.0),
    "val loss": ("val_loss", 1.0),
    "val_loss": ("val_loss", 1.0),
    "validation loss": ("val_loss", 1.0),
    "test loss": ("val_loss", 1.0),
    "lr": ("lr", 1.0),
    "learning rate": ("lr", 1.0),
    "learning_rate": ("lr", 1.0),
    "gnorm": ("grad_norm", 1.0),
    "grad_norm": ("grad_norm", 1.0),
    "grad norm": ("grad_norm", 1.0),
    "gradient norm": ("grad_norm", 1.0),
    "step time": ("step_time_s", 1.0),
    "entropy": ("entropy", 1.0),
    "train perplexity": ("perplexity", 1.0),
    "ppl": ("perplexity", 1.0),
    "ms/batch": ("step_time_s", 1e-3),
    "acc": ("token_accuracy", 1.0),
    "norm": ("grad_norm", 1.0),
    "tok/sec": ("tokens_per_s", 1.0),
    "tok/s": ("tokens_per_s", 1.0),
    "tokens/s": ("tokens_per_s", 1.0),
    "tokens/sec": ("tokens_per_s", 1.0),
    "samples/s": ("samples_per_s", 1.0),
    "samples/sec": ("samples_per_s", 1.0),
}
_FORM = PairFormat(
    start=lazy.pattern(r"(?!)"), pair=_PAIR, names=_NAMES,
    dropped=frozenset({"step", "global step", "iteration", "iter", "epoch", "batch", "it", "cuda",
                       "steps", "pid", "rank"}),
)  # fmt: skip
#: A training line of Megatron that was cut: its own reader waits for the rest of it.
_MEGATRON = lazy.pattern(r"\biteration +\d+ */ *\d+ *\|")
_LEVEL = lazy.pattern(r"^(?:DEBUG|INFO|WARNING)\s+")
_MAX_CHARS = 2000


class GenericReader:
    """Remembers the last counter line, for loops that print it apart."""

    open = False

    def __init__(self) -> None:
        """No counter yet."""
        self._counter: int | None = None
        self._of_epoch = False  # whether it counts epochs
        self._step: int | None = None  # the last step that a line said itself
        self._epochs = EpochCounter()

    def feed(self, line: Line) -> Taken | None:
        """A line with a loss and a step; None for prose, source code and everything else."""
        text = _LEVEL.sub("", _behind_bars(line.text))
        counter = _COUNTER.match(text)
        if counter is not None:
            self._counter = int(counter[1])
            self._of_epoch = text[:1] in "eE"
            return Taken(ignored="counter of the loop")
        if len(text) > _MAX_CHARS or "loss" not in text.lower():
            return None
        if _MEGATRON.search(text) is not None:
            return None
        values = _values(text)
        if not {"loss", "val_loss"} & values.keys():
            return None
        number = self._number(text)
        if number is None:
            epoch = _EPOCH.match(text) or (_ANY_EPOCH.search(text) if self._step else None)
            number = int(epoch[1]) if epoch else self._counter
            if (epoch or self._of_epoch) and self._step is not None:
                number, values = self._step, _of_epoch(values)
        if number is None:
            return None
        reading = Reading(
            step=number, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _number(self, text: str) -> int | None:
        """The step that a line says itself, counted through the epochs."""
        match = _BARE.match(text) or _NUMBERED.match(text)
        if match is not None:
            self._step = int(match[1])
            return self._step
        match = _STEP.search(text) or _BATCH.search(text)
        if match is None:
            return None
        said = [int(group) for group in match.groups() if group]
        epoch = _ANY_EPOCH.search(text) if "lobal" not in match[0] else None
        total = said[1] if len(said) > 1 else None
        self._step = self._epochs.step(int(epoch[1]) if epoch else None, said[0], total)
        return self._step

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """Another dialect read a row of that step: the loop's steps are its."""
        self._step = step


def _values(text: str) -> dict[str, float]:
    """The numbers of a line by name."""
    bare = _BARE.match(text)
    pairs = _BARE_PAIR.findall(bare[2]) if bare else _PAIR.findall(text)
    if not bare:
        said = {key.lower() for key, _ in pairs}
        pairs += [(key, value) for key, value in _SPACED.findall(text) if key.lower() not in said]
    return named([(key.lower(), value) for key, value in pairs if not key.endswith(".py")], _FORM)


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


DIALECT = Dialect(
    name="home_made", markers=("oss", "poch", "iteration ", "step "), reader=GenericReader,
    follows=True,
)
