"""The fast way through Megatron logs: training lines of one layout, read by the column.

Only lines that it is certain of: whole, one record each, plain numbers, the loss among them. All
others (NaN, wrapped, glued, cut, coloured lines) are left to the reader, which gives the same
numbers for the lines read here; a test holds the two equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from loganalyze_parsers.blocks import Block, line_bounds
from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.megatron_fields import named_field
from loganalyze_parsers.megatron_training import START
from loganalyze_parsers.prefixes import peel
from loganalyze_parsers.templates import Bytes, Floats, Found, Ints, LayoutReader, Lesson, Slot
from loganalyze_parsers.templates import simple_number as simple

_TIME = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,6})?)\]")
_TIME_NAMES = ("year", "month", "day", "hour", "minute", "second")
_MARK = re.compile(rb"iteration +\d")
_TIME_PREFIX = "time/"


class MegatronBulk:
    """Reads blocks of one input; keeps what it learnt from block to block."""

    def __init__(self) -> None:
        """Nothing learnt yet."""
        self._ranks_per_node = 1
        self._layouts = LayoutReader(self._teach)

    def __call__(self, block: Block, source: int, ranks_per_node: int) -> pl.DataFrame | None:
        """The frame of all lines read (each `line` once), in order of their offsets."""
        self._ranks_per_node = ranks_per_node
        data = np.frombuffer(block.data + bytes(16), dtype=np.uint8)
        starts, ends = line_bounds(block.data)
        ends = _without_returns(data, starts, ends)
        found = self._layouts.read(data, starts, ends, _candidates(block.data, starts))
        if not found:
            return None
        frames = [_frame(one, starts, ends, block, source) for one in found]
        return pl.concat(frames, how="diagonal").sort("offset")

    def _teach(self, raw: bytes) -> Lesson | None:
        if not raw.isascii() or b"\x1b" in raw or b"\r" in raw:
            return None
        text = raw.decode("ascii")
        match = START.search(text)
        if match is None or not text.rstrip().endswith("|") or START.search(text, match.end()):
            return None
        slots = [*_time_slots(text[: match.start()]), _step_slot(match)]
        slots.extend(_field_slots(text, match))
        names = [slot.name for slot in slots]
        plain = all(simple(slot.text) for slot in slots) and len(set(names)) == len(names)
        if not plain or "loss" not in names or "iteration" in text[match.end() :].split("|")[-1]:
            return None
        rank = peel(text).global_rank(self._ranks_per_node)
        return Lesson(tuple(slots), {"rank": rank})


def _without_returns(data: Bytes, starts: Ints, ends: Ints) -> Ints:
    """Ends of lines before a final carriage return."""
    last = data[np.maximum(ends - 1, 0)] == 13
    return ends - ((ends > starts) & last)


def _candidates(text: bytes, starts: Ints) -> Ints:
    """Lines with exactly one `iteration N`."""
    places = np.fromiter((m.start() for m in _MARK.finditer(text)), dtype=np.int64)
    lines, counts = np.unique(np.searchsorted(starts, places, side="right") - 1, return_counts=True)
    return lines[counts == 1].astype(np.int64)


def _time_slots(prefix: str) -> Iterator[Slot]:
    match = _TIME.search(prefix)
    if match is not None:
        for group, name in enumerate(_TIME_NAMES, 1):
            yield Slot(_TIME_PREFIX + name, 1.0, match.start(group), match[group])


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
    yield Slot(name, factor, start, number if colon else "")


def _frame(found: Found, starts: Ints, ends: Ints, block: Block, source: int) -> pl.DataFrame:
    columns: dict[str, object] = {
        "source": np.full(len(found.lines), source, dtype=np.int32),
        "line": found.lines + block.first_line,
        "offset": starts[found.lines] + block.offset,
        "length": (ends - starts)[found.lines],
    }
    values = {slot.name: found.values[:, k] for k, slot in enumerate(found.lesson.slots)}
    columns["step"] = values.pop("step").astype(np.int64)
    times = {name: values.pop(_TIME_PREFIX + name, None) for name in _TIME_NAMES}
    columns["wall_s"] = None if times["year"] is None else _wall_s(times)  # type: ignore[arg-type]
    columns["rank"] = found.lesson.constants["rank"]
    columns.update(values)
    frame = pl.DataFrame({k: v for k, v in columns.items() if isinstance(v, np.ndarray)})
    constants = [pl.lit(columns[name]).alias(name) for name in ("rank", "wall_s")
                 if not isinstance(columns[name], np.ndarray)]  # fmt: skip
    frame = frame.with_columns(constants).with_columns(
        pl.col(name).cast(kind) for name, kind in KEY_SCHEMA.items()
    )
    return _mended(frame.select(*KEY_SCHEMA, *values))


def _mended(frame: pl.DataFrame) -> pl.DataFrame:
    """What megatron_fields.mended() does to one reading, for a frame."""
    if "loss_scale" in frame.columns:
        kept = pl.when(pl.col("loss_scale") > 0).then(pl.col("loss_scale"))
        frame = frame.with_columns(kept.alias("loss_scale"))
    if {"samples_per_s", "global_batch_size", "step_time_s"} <= set(frame.columns):
        rate = pl.col("samples_per_s")
        ratio = (pl.col("global_batch_size") / pl.col("step_time_s")) / rate
        wrong = (rate > 0) & (ratio > 300) & (ratio < 3000)
        frame = frame.with_columns(pl.when(wrong).then(rate * 1000).otherwise(rate))
    return frame


def _wall_s(times: dict[str, Floats]) -> Floats:
    """Seconds since the epoch of local times, as if they were UTC (days from the civil date)."""
    year = times["year"].astype(np.int64) - (times["month"] <= 2)
    era = year // 400
    of_era = year - era * 400
    month = times["month"].astype(np.int64)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5
    of_year = of_year + times["day"].astype(np.int64) - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    whole = days * 86400 + times["hour"].astype(np.int64) * 3600
    return (whole + times["minute"].astype(np.int64) * 60) + times["second"]
