"""The fast way through DeepSpeed logs: progress and throughput lines of one engine, by the column.

Only lines that it is certain of: the envelope of rank 0, plain numbers, steps that grow. At the
first progress line that is not so (two engines, glued or cut lines), and where Megatron, the chat
example or a progress bar change what a line means, it gives up for good and leaves the rest to
the reader; a test holds the numbers of both ways equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import (
    PLAIN,
    begins_with,
    epoch_seconds,
    framed,
    holds_any,
    is_a_time,
    named_groups,
    others,
    text_of,
)
from loganalyze_parsers.deepspeed_progress import first_skipped
from loganalyze_parsers.deepspeed_state import GIB
from loganalyze_parsers.digits import Bools
from loganalyze_parsers.frames import masked_column
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot

#: Where one stands on another line, lines mean something else; the first is a progress line.
_NOT_ALONE = (
    b"skipped=", b"egatron", b"ppo_ep", b"E2E latency", b"Total Generation", b"%|", b"\r", b"\x1b",
)  # fmt: skip
_STAMP = (
    r"\[(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d)"
    r":(?P<second>\d\d),(?P<thousandths>\d{3})\] \[INFO\] \[[A-Za-z_.]+:\d+:[A-Za-z_]+\] "
)
_TIMES = ("year", "month", "day", "hour", "minute", "second", "thousandths")
_MORE_BETAS = "".join(
    rf"(?:, \((?P<x{k}>{PLAIN}), (?P<y{k}>{PLAIN})\)" for k in range(8)
) + ")?" * 8  # fmt: skip
_PROGRESS = lazy.pattern(
    rf"{_STAMP}\[Rank 0\] step=(?P<step>\d+), skipped=(?P<skipped>\d+), lr=\[(?P<lr>{PLAIN})"
    rf"(?:, (?P<lr1>{PLAIN}))?\], mom=\[\((?P<beta1>{PLAIN}), (?P<beta2>{PLAIN})\){_MORE_BETAS}\]"
)
_THROUGHPUT = lazy.pattern(
    rf"{_STAMP}(?:\[Rank 0\] )?epoch=(?P<epoch>\d+)/micro_step=(?P<micro>\d+)/global_step="
    rf"(?P<step>\d+), RunningAvgSamplesPerSec=(?P<mean>{PLAIN}), CurrSamplesPerSec="
    rf"(?P<rate>{PLAIN}), MemAllocated=(?P<memory>{PLAIN})GB, MaxMemAllocated=(?P<peak>{PLAIN})GB"
)
_INTEGERS = frozenset({"step", "skipped", "epoch", "micro"})
#: Name of a number on a line -> column and factor; others are not kept.
_COLUMNS = {
    "skipped": ("raw/skipped", 1.0), "lr": ("lr", 1.0), "beta1": ("raw/mom_beta1", 1.0),
    "beta2": ("raw/mom_beta2", 1.0), "mean": ("raw/RunningAvgSamplesPerSec", 1.0),
    "rate": ("samples_per_s", 1.0), "memory": ("mem_allocated_bytes", GIB),
    "peak": ("mem_peak_allocated_bytes", GIB), "micro": ("raw/micro_step", 1.0),
    "epoch": ("raw/epoch_count", 1.0),
}  # fmt: skip
Ints = npt.NDArray[np.int64]


class _Look(Struct, frozen=True):
    """Progress and throughput lines of a block, in order, and which of them are progress lines.

    plain: whether all progress lines were.
    """

    frame: pl.DataFrame | None
    progress: Bools
    plain: bool


class DeepSpeedBulk:
    """Reads blocks of one input; keeps the last step and the count of skipped steps."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._on = True
        self._begun = False
        self._step = -1
        self._skipped = 0
        self._templates = TemplateReader(lambda line: b"step=" in line, _teach)

    def look(self, block: Block, source: int, ranks_per_node: int) -> _Look | None:
        """The lines of the block, steps unchecked."""
        if not self._on:
            return None
        begun, self._begun = self._begun, True
        none = np.zeros(0, dtype=bool)
        if not holds_any(block.data, (b"step=",)):
            if not begun:  # the first block is looked at before all others: no such log
                self._on = False
                return None
            return _Look(None, none, not holds_any(block.data, _NOT_ALONE))
        text = text_of(block)
        found = self._templates.read(text, begins_with(text, "["))
        if holds_any(others(text, found), _NOT_ALONE):
            return _Look(None, none, False)
        if not found:
            return _Look(None, none, True)
        rows = Rows(found)
        try:
            return _Look(_frame(text, block, rows, source), rows.held("skipped"), True)
        except ValueError:
            return _Look(None, none, False)

    def rows(self, look: _Look | None) -> pl.DataFrame | None:
        """The progress and throughput lines."""
        return None if look is None else look.frame

    def settle(self, look: _Look) -> pl.DataFrame | None:
        """The frame of all lines taken, or None from some block on."""
        frame = look.frame
        if self._on and frame is not None and look.progress.any():
            frame = self._followed(frame, look.progress)
        unknown = self._step < 0 and not look.progress.any()
        if not look.plain or unknown or (frame is None and look.frame is not None):
            self._on = False  # another sort of log: not worth a look at every line
        return frame if self._on else None

    def _followed(self, frame: pl.DataFrame, progress: Bools) -> pl.DataFrame | None:
        """With the steps skipped since the line before; None where the steps do not grow."""
        steps = frame["step"].to_numpy()[progress]
        skipped = frame["raw/skipped"].to_numpy()[progress].astype(np.int64)
        if self._step >= int(steps[0]) or not bool((np.diff(steps) > 0).all()):
            return None
        new = np.full(len(progress), np.nan)
        new[progress] = self._newly_skipped(steps, skipped)
        self._step, self._skipped = int(steps[-1]), int(skipped[-1])
        return frame.with_columns(skipped_steps=_series(new, ~np.isnan(new)))

    def _newly_skipped(self, steps: Ints, skipped: Ints) -> npt.NDArray[np.float64]:
        """Differences; NaN where a line says nothing of its interval."""
        before = np.concatenate(([self._skipped], skipped[:-1]))
        new = (skipped - before).astype(np.float64)
        new[new < 0] = np.nan
        if self._step < 0:
            first = first_skipped(int(steps[0]), int(skipped[0]))
            new[0] = np.nan if first is None else first
        return new


def _teach(raw: bytes) -> Lesson | None:
    """What a plain line of the engine says; None for all others."""
    if not raw.isascii():
        return None
    text = raw.decode("ascii")
    match = _PROGRESS.fullmatch(text) or _THROUGHPUT.fullmatch(text)
    if match is None:
        return None
    slots = [
        Slot(name, 1.0, start, said, fixed=name in _TIMES, varies=name not in _INTEGERS)
        for name, start, said in named_groups(match)
    ]
    return Lesson(tuple(slots))


_COUNTS = ("step", "skipped")


def _frame(text: Text, block: Block, rows: Rows, source: int) -> pl.DataFrame:
    """Columns of the lines found; ValueError where a stamp is no time, or a step no integer."""
    times = {name: rows.column(name) for name in _TIMES}
    if not is_a_time(times).all():
        raise ValueError("a stamp that is no time")
    if any(rows.column(name).max() > 2.0**53 for name in _COUNTS if name in rows.names):
        raise ValueError("a count beyond all integers that a double holds")
    seconds = epoch_seconds(times) + times["second"]
    columns = {
        "step": pl.Series(rows.column("step").astype(np.int64)),
        "wall_s": pl.Series(seconds + times["thousandths"] / 1000.0),
    }
    for name in rows.names:
        if name in _COLUMNS:
            column, factor = _COLUMNS[name]
            columns[column] = rows.series(name, factor)
    if "lr1" in rows.names:
        other = rows.column("lr1")
        own = rows.held("lr1") & (other != rows.column("lr"))
        if own.any():
            columns["raw/lr_group1"] = _series(other, own)
    return framed(text, block, rows.lines, source, columns)


def _series(values: npt.NDArray[np.float64], held: Bools) -> pl.Series:
    """Numbers, null where they are not held."""
    return pl.Series(values) if held.all() else masked_column(values, ~held)
