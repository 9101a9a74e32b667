"""Memory prints of home-made loops: lines of names and sizes with their units, of no step.

    GPU memory allocated: 10.25 GB, reserved: 12.50 GB, max allocated: 11.75 GB
    Memory info of CPU: total:201.37Gb, available: 190.78Gb, percent: 5.3%
    svmem(total=540000000000, available=500000000000, percent=7.4, used=38000000000)
    GPU 0 memory: 12345MiB / 81920MiB
    RAM used: 63.5 GiB

A line belongs to the record above it (assemble.py). People divide by 1024 three times and write GB:
every unit counts as binary here. A size without a unit is left alone, but for psutil's own `svmem`,
which is in bytes; so is a line with any other number, and one that speaks of what something takes.

>>> from loganalyze_parsers.samples import rows_of
>>> rows_of(DIALECT, "allocated: 1.5 GB, max reserved: 2 GB")
[(None, {'mem_allocated_bytes': 1610612736.0, 'mem_peak_reserved_bytes': 2147483648.0})]
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken

_PAIR = lazy.pattern(
    r"([A-Za-z][A-Za-z_ .]{0,60}[A-Za-z]|/) {0,4}[:=]? {0,4}"
    r"(\d{1,9}(?:\.\d{1,9})?) ?(?:([KMGT])i?B?|(bytes|B)|(%))(?![\w/])",
    re.IGNORECASE,
)
_SVMEM = lazy.pattern(r"(total|available|percent|used)=(\d{1,16}(?:\.\d{1,3})?)")
#: What is left of a line when its pairs are taken out holds no number but that of a device.
_DEVICE = lazy.pattern(r"\b(?:GPU|cuda|rank|device|node|pid)[_ :=]{0,3}\d{1,7}\b", re.IGNORECASE)
_ABOUT_MEMORY = lazy.pattern(r"mem|ram\b|rss\b|alloc|reserved|cache", re.IGNORECASE)
#: Words of lines that speak of one thing's size, of a plan or of a failure.
_OTHER = lazy.pattern(
    r"estimat|requir|need|tried|try|would|error|exceed|saved?\b|saving|download|file|disk|model|"
    r"param|dataset|tensor|offload|buffer|bucket|expected|limit|kv|block|pool|swap|theoretic|"
    r"footprint|weight|activation|optimizer|gradient|reduc|sav(?:es|ings?)\b",
    re.IGNORECASE,
)
_HOST = frozenset({"cpu", "ram", "rss", "host", "system", "virtual"})
_POWERS = {"k": 1024.0, "m": 1024.0**2, "g": 1024.0**3, "t": 1024.0**4}


class MemoryLines:
    """Reads such lines one by one."""

    open = False

    def feed(self, line: Line) -> Taken | None:
        """The sizes of a line; None where it holds anything else."""
        values = _svmem(line.text) if "svmem(" in line.text else _sizes(line.text)
        if not values:
            return None
        reading = Reading(
            step=None, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s
        )
        return Taken(readings=[reading])

    def finish(self) -> Taken:
        """Nothing stays open."""
        return Taken()

    def passed(self, step: int) -> None:
        """It has no bulk way."""


def _svmem(text: str) -> dict[str, float]:
    told = {name: float(value) for name, value in _SVMEM.findall(text)}
    return _host(told.get("total"), told.get("available"), told.get("percent"), told.get("used"))


def _host(
    total: float | None, available: float | None, percent: float | None, used: float | None
) -> dict[str, float]:
    """psutil's four numbers: what is in use is what is not available."""
    made: dict[str, float] = {}
    if total is not None and available is not None:
        made["host_mem_used_bytes"] = total - available
    elif used is not None:
        made["host_mem_used_bytes"] = used
    if percent is not None:
        made["host_mem_share"] = percent / 100.0
    return made


def _sizes(text: str) -> dict[str, float]:
    if not _ABOUT_MEMORY.search(text) or _OTHER.search(text):
        return {}
    rest = _DEVICE.sub(" ", _PAIR.sub(" ", text))
    if any(letter.isdigit() for letter in rest):
        return {}
    host = bool(_HOST & set(re.findall(r"[a-z]+", text.lower())))
    told = [(match[1].lower(), _size(match)) for match in _PAIR.finditer(text)]
    return _of_host(told) if host else _of_gpu(told)


def _size(match: re.Match[str]) -> float:
    """Bytes, or per cent."""
    return float(match[2]) * _POWERS.get((match[3] or "").lower(), 1.0)


def _of_host(told: list[tuple[str, float]]) -> dict[str, float]:
    named: dict[str, float] = {}
    for label, value in told:
        words = ("total", "available", "percent", "rss")
        name = next((word for word in words if word in label), "used")
        named.setdefault(name, value)
    made = _host(*(named.get(name) for name in ("total", "available", "percent", "used")))
    return {**made, "host_rss_bytes": named["rss"]} if "rss" in named else made


def _of_gpu(told: list[tuple[str, float]]) -> dict[str, float]:
    made: dict[str, float] = {}
    for label, value in told:
        if "percent" in label or "util" in label:
            continue
        if label == "/" or "capacity" in label or ("total" in label and "mem" in label):
            name = "mem_total_bytes"
        elif "free" in label or "available" in label:
            name = "raw/mem_free_bytes"
        else:
            peak = "peak_" if "max" in label or "peak" in label else ""
            kept = "reserved" in label or "cache" in label
            plain = "mem_used_bytes" if "alloc" not in label and not peak else ""
            name = f"mem_{peak}reserved_bytes" if kept else plain or f"mem_{peak}allocated_bytes"
        made.setdefault(name, value)
    return made


DIALECT = Dialect(
    name="memory_lines",
    markers=("mem", "Mem", "MEM", "RAM", "RSS", "rss", "alloc", "Alloc", "eserved"),
    reader=MemoryLines,
    stateless=True,
)
