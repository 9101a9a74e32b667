"""Kernel messages (dmesg, journal): when they were written.

The messages themselves are known texts like all others (failures.py); `dmesg` prints seconds since
boot, which name no moment, `dmesg -T` prints a date:

    [Mon Apr  2 10:11:12 2031] NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.prefixes import wall_seconds

#: By hand, because month names of the standard library follow the locale.
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DATED = lazy.pattern(r"^\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]")


def kernel_seconds(text: str) -> float | None:
    """Seconds since the epoch of a `dmesg -T` stamp, read as UTC; None without one.

    >>> kernel_seconds("[Mon Apr  2 10:11:12 2031] NVRM: loading")
    1932891072.0
    """
    match = _DATED.match(text)
    if match is None or match[1] not in _MONTHS:
        return None
    month = _MONTHS.index(match[1]) + 1
    return wall_seconds(f"{match[4]}-{month:02d}-{int(match[2]):02d} {match[3]}")
