"""The fast way through Megatron logs: training lines of one layout, read by the column.

Only lines that it is certain of: whole, one record each, plain numbers, the loss among them. All
others (NaN, wrapped, glued, cut, coloured lines) are left to the reader, which gives the same
numbers for the lines read here; a test holds the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze import lazy
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import epoch_seconds
from loganalyze_parsers.commas import has_commas
from loganalyze_parsers.digits import Bytes, Ints
from loganalyze_parsers.frames import KEY_SCHEMA, masked_column
from loganalyze_parsers.kernel import holds
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.megatron_fields import named_field
from loganalyze_parsers.megatron_training import START
from loganalyze_parsers.prefixes import peel
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.templates import Slot, simple_number

_TIME = lazy.pattern(
    r"(?:\[|^)(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?=[\]Z+ -])"
)
_TIME_NAMES = ("year", "month", "day", "hour", "minute", "second")
_MARK = lazy.pattern(rb"iteration +\d")
_TIME_PREFIX = "time/"
Keys = dict[str, npt.NDArray[np.int32] | npt.NDArray[np.int64]]


class MegatronBulk:
    """Reads blocks of one input; keeps what it learnt from block to block."""

    def __init__(self) -> None:
        """Nothing learnt yet."""
        self._ranks_per_node = 1
        self._templates = TemplateReader(_has_one_mark, self._teach)

    def rows(self, look: pl.DataFrame | None) -> pl.DataFrame | None:
        """There is only a frame where there are lines."""
        return look

    def settle(self, look: pl.DataFrame) -> pl.DataFrame:
        """The frame as it is: a training line says all of itself."""
        return look

    def look(self, block: Block, source: int, ranks_per_node: int) -> pl.DataFrame | None:
        """The frame of all lines read (each `line` once), in order of their offsets."""
        self._ranks_per_node = ranks_per_node
        data = np.frombuffer(block.data, dtype=np.uint8)
        starts, ends = block.bounds
        last = data[np.maximum(ends - 1, 0)]
        if (last == 13).any():
            ends = _without_returns(data, starts, ends)
            last = data[np.maximum(ends - 1, 0)]
        likely = np.flatnonzero((last == ord("|")) | (last == ord(" ")))
        if not len(likely) or not holds(block.data, b"iteration"):
            return None
        found = self._templates.read(Text(block.data, starts, ends), likely)
        if not found:
            return None
        rows = Rows(found)
        keys: Keys = {
            "source": np.full(len(rows.lines), source, dtype=np.int32),
            "line": rows.lines + block.first_line,
            "offset": starts[rows.lines] + block.offset,
            "length": (ends - starts)[rows.lines],
        }
        return _frame(rows, keys)

    def _teach(self, raw: bytes) -> Lesson | None:
        if not raw.isascii() or b"\x1b" in raw or b"\r" in raw:
            return None
        text = raw.decode("ascii")
        match = None if has_commas(text) else START.search(text)
        if match is None or not text.rstrip().endswith("|") or START.search(text, match.end()):
            return None
        slots = [*_time_slots(text[: match.start()]), _step_slot(match)]
        slots.extend(_field_slots(text, match))
        names = [slot.name for slot in slots]
        plain = all(simple_number(slot.text) for slot in slots) and len(set(names)) == len(names)
        if not plain or "loss" not in names or "iteration" in text[match.end() :].split("|")[-1]:
            return None
        rank = peel(text).global_rank(self._ranks_per_node)
        return Lesson(tuple(slots), {"rank": rank})


def _without_returns(data: Bytes, starts: Ints, ends: Ints) -> Ints:
    """Ends of lines before a final carriage return."""
    last = data[np.maximum(ends - 1, 0)] == 13
    before: Ints = ends - ((ends > starts) & last)
    return before


def _has_one_mark(line: bytes) -> bool:
    """Whether exactly one `iteration N` stands on a line."""
    return b"iteration" in line and len(_MARK.findall(line)) == 1


def _time_slots(prefix: str) -> Iterator[Slot]:
    match = _TIME.search(prefix)
    if match is not None:
        for group, name in enumerate(_TIME_NAMES, 1):
            yield Slot(_TIME_PREFIX + name, 1.0, match.start(group), match[group], fixed=True)


def _step_slot(match: re.Match[str]) -> Slot:
    return Slot("step", 1.0, match.start(1), match[1])


def _field_slots(text: str, match: re.Match[str]) -> Iterator[Slot]:
    """A slot a field; a field that is not `key: number` gives a slot that is not simple."""
    if text[match.start() :].startswith("samples/sec"):
        begin = match.start()
        yield from _slot(text, begin, text.index("|", begin))
    begin = match.end()
    while (end := text.find("|", begin)) >= 0:
        yield from _slot(text, begin, end)
        begin = end + 1


def _slot(text: str, begin: int, end: int) -> Iterator[Slot]:
    key, colon, value = text[begin:end].rpartition(":")
    name, factor = named_field(key.strip())
    number = value.strip()
    start = begin + len(key) + len(colon) + len(value) - len(value.lstrip())
    single = colon and ":" not in key
    yield Slot(name, factor, start, number if single else "")


def _frame(rows: Rows, keys: Keys) -> pl.DataFrame:
    names = [name for name in rows.names if name != "step" and not name.startswith(_TIME_PREFIX)]
    columns = {
        "step": pl.Series(rows.column("step").astype(np.int64)),
        "rank": rows.constant("rank"),
        "wall_s": _wall_s(rows),
        **{name: pl.Series(values) for name, values in keys.items()},
        **{name: rows.series(name) for name in names},
    }
    return _mended(pl.DataFrame([columns[name].alias(name) for name in (*KEY_SCHEMA, *names)]))


def _wall_s(rows: Rows) -> pl.Series:
    """Seconds since the epoch of local times, as if they were UTC; null where there is none."""
    told = rows.held(_TIME_PREFIX + "year")
    if not told.any():
        return pl.Series([None], dtype=pl.Float64).new_from_index(0, len(told))
    times = {name: rows.column(_TIME_PREFIX + name) for name in _TIME_NAMES}
    seconds = epoch_seconds(times) + times["second"]
    return pl.Series(seconds) if told.all() else masked_column(seconds, ~told)


def _mended(frame: pl.DataFrame) -> pl.DataFrame:
    """What megatron_fields.mended() does to one reading, for a frame."""
    if "loss_scale" in frame.columns and not _positive(frame["loss_scale"]):
        kept = pl.when(pl.col("loss_scale") > 0).then(pl.col("loss_scale"))
        frame = frame.with_columns(kept.alias("loss_scale"))
    if {"samples_per_s", "global_batch_size", "step_time_s"} <= set(frame.columns):
        rate = pl.col("samples_per_s")
        ratio = (pl.col("global_batch_size") / pl.col("step_time_s")) / rate
        wrong = (rate > 0) & (ratio > 300) & (ratio < 3000)
        frame = frame.with_columns(pl.when(wrong).then(rate * 1000).otherwise(rate))
    return frame


def _positive(values: pl.Series) -> bool:
    least = values.min()
    return isinstance(least, float) and least > 0
