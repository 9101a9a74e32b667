"""Megatron's rarer lines: stragglers, timers by rank, Bridge's step time, energy, progress.txt.

    | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | MnPwr/Rnk: 601796W/8 | MnTmp/Rnk: 52C/0 |
    ^^^^ Bottom 4 Ranks with lowest  Etpt(TF): 296.02/0, 296.05/1
    times across ranks (ms):
      forward-backward:
         rank  0: 1901.10
    Step Time : 2.00s GPU utilization: 400.1MODEL_TFLOP/s/GPU
    Theoretical memory footprints: weight and optimizer=1000.00 MB, activation=200.50 MB, total=...
    2031-01-02 03:04:05  Job ID: 7  # GPUs: 64  Saved checkpoint  Iteration: 100  Job throughput:..

All of it is kept under raw/ names in SI units: it stands beside the training line's own numbers,
some of it of one rank only. (training/utils.py, core/utils.py StragglerDetector, core/timers.py,
training/theoretical_memory_usage.py; Megatron-Bridge training/utils/train_utils.py.)

>>> from loganalyze.model import LineRef
>>> text = "| MnRtt/Rnk: 3453.08ms/8 | MxUtl/Rnk: 100%/6 | MnEtpt/Rnk: 296.02TF/0"
>>> line = Line(text=text, ref=LineRef(source=0, line=1, offset=0, length=len(text)))
>>> values = side_line(line, 40).readings[0].values
>>> values["raw/straggler/MnRtt"], values["raw/straggler/MnRtt rank"], values["raw/straggler/MxUtl"]
(3.45308, 8.0, 1.0)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze.model import Event, Reading
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.numbers import NUMBER

MARKERS = (
    "Rtt/Rnk", "^^^^ ", "Step Time : ", "Theoretical memory", "Total training energy",
    "# GPUs: ", "across ranks (ms)",
)  # fmt: skip
_STRAGGLER = lazy.pattern(rf"(M[nx]\w{{1,120}})/Rnk: *({NUMBER})(ms|us|W|C|%|MHz|TF)/(\d{{1,9}})")
_EXTREMES = lazy.pattern(r"\^{4} (?:Bottom|Top) \d+ Ranks")
_BRIDGE = lazy.pattern(
    rf"Step Time : *({NUMBER})s GPU utilization: *({NUMBER}) ?(?:MODEL_)?TFLOP/s/GPU"
)
_THEORY = lazy.pattern(rf"([a-z][a-z ]{{0,120}})=({NUMBER}) MB")
_ENERGY = lazy.pattern(rf"Total training energy \(GPU\): *({NUMBER}) *MJ")
_JOB = lazy.pattern(r"Job ID: (\S*)\s+# GPUs: (\d{1,9})\s+([^\t]+)")
_JOB_FIELD = lazy.pattern(
    rf"(Iteration|Job throughput|Cumulative throughput|[\w ()-]{{1,120}}): ({NUMBER})"
)
_RANK_ROW = lazy.pattern(rf"^rank +(\d{{1,9}}): *({NUMBER})$")
_TIMER_NAME = lazy.pattern(r"^([\w/,-]+):$")
_SI = {"ms": 1e-3, "us": 1e-6, "W": 1.0, "C": 1.0, "%": 0.01, "MHz": 1e6, "TF": 1.0}


def side_line(line: Line, step: int | None) -> Taken | None:
    """What one of these lines says; None for any other."""
    text = line.text
    found = _STRAGGLER.findall(text)
    if found:
        values: dict[str, float] = {}
        for name, number, unit, rank in found:
            values[f"raw/straggler/{name}"] = float(number) * _SI[unit]
            values[f"raw/straggler/{name} rank"] = float(rank)
        return Taken(readings=[_reading(line, step, values)])
    match = _BRIDGE.search(text)
    if match is not None:
        seconds, tflops = float(match[1]), float(match[2])
        values = {"raw/step time (rank 0)": seconds, "raw/model TFLOP/s per GPU (rank 0)": tflops}
        return Taken(readings=[_reading(line, step, values)])
    return _told(line, step) or _progress(line)


def _told(line: Line, step: int | None) -> Taken | None:
    """Facts without a curve: notes."""
    detail: dict[str, str | int | float | None] = {}
    if _EXTREMES.search(line.text):
        detail["report"] = "straggler ranks"
    elif "Theoretical memory" in line.text:
        for name, megabytes in _THEORY.findall(line.text):
            detail[f"{name.strip()} bytes"] = float(megabytes) * 1024.0**2
    elif match := _ENERGY.search(line.text):
        detail["energy_j"] = float(match[1]) * 1e6
    return Taken(events=[_event(line, step, detail)]) if detail else None


def _progress(line: Line) -> Taken | None:
    """A line of progress.txt."""
    match = _JOB.search(line.text)
    if match is None:
        return None
    numbers = {name.strip(): float(raw) for name, raw in _JOB_FIELD.findall(line.text, match.end())}
    step = numbers.pop("Iteration", None)
    at = None if step is None else int(step)
    values = {f"raw/progress/{name}": value for name, value in numbers.items()}
    detail: dict[str, str | int | float | None] = {
        "job": match[1], "gpus": int(match[2]), "event": match[3].strip(),
    }  # fmt: skip
    readings = [_reading(line, at, values)] if values else []
    return Taken(readings=readings, events=[_event(line, at, detail)])


class RankTimes:
    """The block `times across ranks (ms):` with a timer's name and a row for each rank."""

    def __init__(self) -> None:
        """No block open."""
        self.open = False
        self._name = ""

    def head(self) -> Taken:
        """The heading of a block."""
        self.open, self._name = True, ""
        return Taken(ignored="timer heading")

    def row(self, line: Line, step: int | None) -> Taken | None:
        """A row of the block; anything else closes it."""
        match = _RANK_ROW.match(line.text)
        if match is not None and self._name:
            values = {f"raw/timer {self._name}": float(match[2]) * 1e-3}
            reading = Reading(
                step=step, ref=line.ref, values=values, rank=int(match[1]), wall_s=line.wall_s
            )
            return Taken(readings=[reading])
        name = _TIMER_NAME.match(line.text)
        if name is not None:
            self._name = name[1]
            return Taken(ignored="timer heading")
        self.open = False
        return None


def _reading(line: Line, step: int | None, values: dict[str, float]) -> Reading:
    return Reading(step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s)


def _event(line: Line, step: int | None, detail: dict[str, str | int | float | None]) -> Event:
    return Event(
        kind="note", ref=line.ref, text=line.text[:400], step=step, rank=line.rank,
        wall_s=line.wall_s, detail=detail,
    )  # fmt: skip
