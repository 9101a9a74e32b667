"""What the bulk ways share: a block as text for templates, its other lines, frames, times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.digits import Bools, Ints
from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.kernel import holds
from loganalyze_parsers.lessons import Found, Text
from loganalyze_parsers.spans import Floats

#: A number as every bulk way takes it: no NaN, no thousands commas (those go the slow way).
PLAIN = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_TO_THE_MINUTE = ("year", "month", "day", "hour", "minute")
_MONTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def text_of(block: Block) -> Text:
    """The block's bytes and lines in the form that templates read."""
    return Text(block.data, *block.bounds)


def begins_with(text: Text, byte: str) -> Ints:
    """Lines whose first byte is that one."""
    return np.flatnonzero(text.data[text.starts] == ord(byte))


def others(text: Text, found: Iterable[Found], lines: Ints | None = None) -> bytes:
    """All lines (of `lines`, where these are given) that were not found, joined."""
    left = np.full(len(text.starts), lines is None)
    if lines is not None:
        left[lines] = True
    for one in found:
        left[one.lines] = False
    bounds = zip(text.starts[left].tolist(), text.ends[left].tolist(), strict=True)
    return b"\n".join([text.raw[first:end] for first, end in bounds])


def holds_any(data: bytes, words: Sequence[bytes]) -> bool:
    """Whether one of the words stands in the data."""
    return any(holds(data, word) for word in words)


def framed(
    text: Text, block: Block, lines: Ints, source: int, columns: Mapping[str, pl.Series]
) -> pl.DataFrame:
    """The frame of some lines; columns: step, and wall_s or metrics where known."""
    keys = {
        "source": pl.Series(np.full(len(lines), source, dtype=np.int32)),
        "line": pl.Series(lines + block.first_line),
        "offset": pl.Series(text.starts[lines] + block.offset),
        "length": pl.Series((text.ends - text.starts)[lines]),
    }
    frame = pl.DataFrame({**keys, **columns})
    missing = [name for name in KEY_SCHEMA if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    metrics = [name for name in columns if name not in KEY_SCHEMA]
    return frame.select(
        *(pl.col(name).cast(kind) for name, kind in KEY_SCHEMA.items()),
        *(pl.col(name).cast(pl.Float64) for name in metrics),
    )


def named_groups(match: re.Match[str]) -> list[tuple[str, int, str]]:
    """Name, start and text of the named groups that took part, in order of their places."""
    names = [name for name, text in match.groupdict().items() if text is not None]
    return sorted(
        ((name, match.start(name), match[name]) for name in names), key=lambda one: one[1]
    )


def epoch_seconds(times: Mapping[str, Floats]) -> npt.NDArray[np.int64]:
    """Whole seconds since the epoch of local times, as if they were UTC, without `second`.

    times: year, month, day, hour, minute (days from the civil date).
    """
    seconds: Ints = _by_the_minute(times, _epoch_seconds)
    return seconds


def is_a_time(times: Mapping[str, Floats]) -> Bools:
    """Which of the times exist."""
    fine: Bools = _by_the_minute(times, _is_a_minute) & (times["second"] < 60)
    return fine


def _by_the_minute(times: Mapping[str, Floats], work: Callable[[Mapping[str, Floats]], Any]) -> Any:
    """What `work` says of every row, asked once for neighbours of one minute."""
    fields = {name: times[name] for name in _TO_THE_MINUTE}
    new = np.ones(len(times["minute"]), dtype=bool)
    new[1:] = False
    for values in fields.values():
        new[1:] |= values[1:] != values[:-1]
    first = np.flatnonzero(new)
    said = work({name: values[first] for name, values in fields.items()})
    return np.repeat(said, np.diff(first, append=len(new)))


def _epoch_seconds(times: Mapping[str, Floats]) -> Ints:
    year = times["year"].astype(np.int64) - (times["month"] <= 2)
    era = year // 400
    of_era = year - era * 400
    month = times["month"].astype(np.int64)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5
    of_year = of_year + times["day"].astype(np.int64) - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    whole = days * 86400 + times["hour"].astype(np.int64) * 3600
    seconds: Ints = whole + times["minute"].astype(np.int64) * 60
    return seconds


def _is_a_minute(times: Mapping[str, Floats]) -> Bools:
    year, month = times["year"].astype(np.int64), times["month"].astype(np.int64)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)) & (month == 2)
    most = _MONTHS[np.clip(month, 0, 12)] + leap
    fine: Bools = (month >= 1) & (month <= 12) & (times["day"] >= 1) & (times["day"] <= most)
    return fine & (times["hour"] < 24) & (times["minute"] < 60)
