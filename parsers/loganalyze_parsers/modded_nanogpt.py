"""modded-nanogpt and parameter-golf: speed-run lines behind a copy of the program's source.

    step:40/1750 train_loss:6.1234 train_time:4321ms step_avg:108.03ms
    step:125/1750 val_loss:4.5600 train_time:25.772s step_avg:206.17ms

train_time runs on from the start (and starts again at step 10), so a step's time is the
difference of two lines; step_avg is a mean since the start and is `nan` in the first ten steps.

>>> from loganalyze_parsers.samples import rows_of
>>> head = "step:40/1750 train_loss:6.5 train_time:4000ms"
>>> row = "step:41/1750 train_loss:6.25 train_time:4110ms"
>>> step, values = rows_of(DIALECT, head, row)[-1]
>>> step, values["loss"], values["step_time_s"]
(41, 6.25, 0.11000000000000032)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import PairFormat, PairReader

_UNIT = {"ms": 1e-3, "s": 1.0}
_LINE = lazy.pattern(
    r"\bstep:(?P<step>\d+)/\d+ (?:train_loss:(?P<loss>[\d.naif]+) )?"
    r"(?:val_loss:(?P<val>[\d.naif]+) )?(?:val_bpb:(?P<bpb>[\d.]+) )?"
    r"(?:[a-z_]+:[^\s]+ )*?train_time:(?P<time>[\d.]+)(?P<unit>ms|s)\b"
)


class ModdedReader:
    """Remembers the training time of the line before, to give each step its own."""

    open = False

    def __init__(self) -> None:
        """No line yet."""
        self._before: tuple[int, float] | None = None

    def feed(self, line: Line) -> Taken | None:
        """A training or validation line; None for any other."""
        match = _LINE.search(line.text)
        if match is None:
            return None
        step, seconds = int(match["step"]), float(match["time"]) * _UNIT[match["unit"]]
        values: dict[str, float] = {"raw/train_time_s": seconds}
        for group, name in (("loss", "loss"), ("val", "val_loss"), ("bpb", "raw/val_bpb")):
            if match[group]:
                values[name] = float(match[group])
        if match["val"] is None:
            step_time = self._step_time(step, seconds)
            if step_time is not None:
                values["step_time_s"] = step_time
            self._before = (step, seconds)
        reading = Reading(
            step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def _step_time(self, step: int, seconds: float) -> float | None:
        if self._before is None:
            return seconds if step == 1 else None
        steps, passed = step - self._before[0], seconds - self._before[1]
        return passed / steps if steps > 0 and passed > 0 else None

    def finish(self) -> Taken:
        """Nothing is ever open."""
        return Taken()

    def passed(self, step: int) -> None:
        """No bulk way."""


DIALECT = Dialect(name="modded_nanogpt", markers=("step:",), reader=ModdedReader)

_PEAK = PairFormat(
    start=lazy.pattern(r"^peak memory (?=allocated: \d+ MiB)"),
    pair=lazy.pattern(r"(allocated|reserved): (\d+)"),
    names={
        "allocated": ("mem_peak_allocated_bytes", 1024.0**2),
        "reserved": ("mem_peak_reserved_bytes", 1024.0**2),
    },
)
PEAK_DIALECT = Dialect(
    name="peak_memory",
    markers=("peak memory",),
    reader=lambda: PairReader((_PEAK,)),
    about="Peak memory lines of speed-run logs",
)
