"""Numbers as people read them, by unit; the same in every language and locale."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SILENT = frozenset({"", "1", "count"})


def number(value: float | str | None, unit: str = "") -> str:
    """A value with its unit: bytes as GiB, shares as per cent, NaN and Inf by name, None as –."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return nonfinite_name(value)
    if unit == "B":
        return size(value)
    if unit == "share":
        return f"{significant(100 * value)} %"
    if unit == "s":
        return duration(value)
    if unit == "Hz":
        return f"{significant(value / 1e6)} MHz"
    text = significant(value)
    return text if unit in _SILENT else f"{text} {unit}"


def nonfinite_name(value: float) -> str:
    """NaN, Infinity or -Infinity."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def significant(value: float) -> str:
    """Five significant digits, thousands apart; powers of ten only outside 1e-4..1e7."""
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1e15:
        return grouped(int(value))
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}"
    text = f"{value:,.{max(0, 4 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def grouped(value: int) -> str:
    """An integer with commas; four digits stay together, as steps are usually written."""
    return f"{value:,}" if abs(value) >= 10_000 else str(value)


def size(value: float) -> str:
    """Bytes in binary units, three significant digits or more."""
    index = 0
    while abs(value) >= 1024 and index < len(_BINARY) - 1:
        value, index = value / 1024, index + 1
    return f"{value:.0f} B" if index == 0 else f"{value:.2f} {_BINARY[index]}"


def duration(seconds: float) -> str:
    """Seconds as ms, s, min, h or d, two units at most."""
    if not abs(seconds) < 1e12:  # no time that a training takes
        return f"{seconds:.3g} s"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if abs(seconds) < 120:
        return f"{seconds:.4g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(wall_s: float | None) -> str:
    """Wall time as logged (seconds since the epoch, local time as if UTC); "" if unknown."""
    if wall_s is None or not math.isfinite(wall_s) or not 0 <= wall_s < 1e11:
        return ""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def steps(first: int | None, last: int | None) -> str:
    """A range of steps, plain digits so that they can be searched for in the log."""
    if first is None:
        return "–" if last is None else str(last)
    return str(first) if last is None or last == first else f"{first}–{last}"
