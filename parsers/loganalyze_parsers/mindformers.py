"""MindFormers and MindSpore: the loss monitors' lines, and the speed printed below them.

    ... - INFO - { Epoch:[  1/  2], step:[   40/  735], loss: 7.500, per_step_time: 1752ms,
        lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.25],
        train_throughput_per_npu: 170.7T
    ... - INFO -    5.2% |██          | 4.56621 samples/s/p  0:01:03 }
    epoch: 1 step: 40, loss is 7.5
    Train epoch time: 36501.8 ms, per step time: 935.9 ms

MindFormers counts steps within an epoch, whose length it prints; MindSpore's own monitor prints no
length, so it is taken from the last step of the epoch before. `loss:[a/ b]` is the last loss and
the mean of the epoch so far, which is left out. A step with `overflow cond: True` is not taken.

>>> from loganalyze_parsers.samples import rows_of
>>> line = ("{ Epoch:[  2/  2], step:[    3/   20], loss:[ 9.5/ 9.75], per_step_time: 1500ms, "
...         "lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.25]")
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["step_time_s"], values["grad_norm"], values["skipped_steps"]
(23, 9.5, 1.5, 1.25, 0.0)
>>> rows_of(DIALECT, "epoch: 1 step: 39, loss is 2.5", "epoch: 2 step: 2, loss is 2.25")
[(39, {'loss': 2.5}), (41, {'loss': 2.25})]
"""

from __future__ import annotations

from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.numbers import NUMBER
from loganalyze_parsers.pairs import PairFormat, PairReader

_RECORD = PairFormat(
    start=lazy.pattern(
        r"\bEpoch:\[ *(?P<round>\d+)/ *\d+\], step:\[ *(?P<step>\d+)/ *(?P<total>\d+)\], (?=loss)"
    ),
    pair=lazy.pattern(rf"([a-z_]{{1,80}}): ?\[? *({NUMBER}[TG]?)"),
    names={
        "loss": ("loss", 1.0),
        "lm_loss": ("aux_loss/lm", 1.0),
        "aux_loss": ("aux_loss/moe", 1.0),
        "mtp_loss": ("aux_loss/mtp", 1.0),
        "per_step_time": ("step_time_s", 1e-3),
        "time": ("step_time_s", 1e-3),
        "lr": ("lr", 1.0),
        "loss_scale": ("loss_scale", 1.0),
        "global_norm": ("grad_norm", 1.0),
        "train_throughput_per_npu": ("tflops_per_gpu", 1e-12),
    },
)
_OVERFLOW = lazy.pattern(r"overflow cond: \[? ?(True|False)")
_SPEED = lazy.pattern(rf"\| ({NUMBER}) samples/s/p ")
_MONITOR = lazy.pattern(rf"\bepoch: (\d{{1,9}}) step: (\d{{1,9}}), loss is ({NUMBER})")
_TIMES = lazy.pattern(rf"epoch time: {NUMBER} ms, per step time: ({NUMBER}) ms")


class MindFormersReader(PairReader):
    """Remembers the last step, which the lines below a record belong to, and the epochs' length."""

    def __init__(self) -> None:
        """Nothing seen."""
        super().__init__((_RECORD,))
        self._step: int | None = None
        self._epoch: int | None = None
        self._before = 0  # steps of the epochs that are over
        self._count = 0

    def feed(self, line: Line) -> Taken | None:
        """A record, a line of MindSpore's monitors, or the speed behind the progress bar."""
        taken = super().feed(line)
        if taken is not None and taken.readings:
            return Taken(readings=[self._told(reading, line) for reading in taken.readings])
        match = _MONITOR.search(line.text)
        if match is not None:
            self._step = self._counted(int(match[1]), int(match[2]))
            return Taken(readings=[self._single(line, "loss", float(match[3]))])
        match = _TIMES.search(line.text)
        if match is not None:
            return Taken(readings=[self._single(line, "step_time_s", float(match[1]) * 1e-3)])
        match = _SPEED.search(line.text)
        if match is not None and self._step is not None:
            return Taken(readings=[self._single(line, "raw/samples/s/p", float(match[1]))])
        return taken

    def _told(self, reading: Reading, line: Line) -> Reading:
        self._step = reading.step
        overflow = _OVERFLOW.search(line.text)
        if overflow is None:
            return reading
        skipped = float(overflow[1] == "True")
        return replace(reading, values={**reading.values, "skipped_steps": skipped})

    def _counted(self, epoch: int, step: int) -> int:
        """The step through the epochs; one epoch is as long as the last one was."""
        if self._epoch is not None and epoch != self._epoch:
            later = epoch - self._epoch
            self._before = self._before + later * self._count if later > 0 else 0
        self._epoch, self._count = epoch, step
        return self._before + step

    def _single(self, line: Line, name: str, value: float) -> Reading:
        return Reading(
            step=self._step, ref=line.ref, values={name: value}, rank=line.rank, wall_s=line.wall_s
        )


DIALECT = Dialect(
    name="mindformers",
    markers=("Epoch:[", "samples/s/p", ", loss is ", ", per step time: "),
    reader=MindFormersReader,
)
