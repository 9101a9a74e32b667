"""nvidia-smi --query-gpu=... --format=csv: one row per GPU and tick.

    timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu
    2031/04/02 10:11:12.345, 3, 97 %, 30211 MiB, 402.11 W, 71

`noheader` and `nounits` drop the header and the units. Without a header the columns are told by
their units (and index and temperature by their values), which is reported as a problem. The header
comes again where the tool was started again.

>>> from loganalyze_parsers.samples import rows_of_file
>>> head = "timestamp, index, utilization.gpu [%], memory.used [MiB]"
>>> row = "2031/04/02 10:11:12.345, 0, 79 %, 7850 MiB"
>>> step, values = rows_of_file(PARSER, "gpu.csv", head, row)[-1]
>>> step, values["gpu_util"], values["mem_used_bytes"]
(None, 0.79, 8231321600.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from loganalyze import config, lazy
from loganalyze.model import Batch, Event, LineRef, Problem, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.numbers import leading_number
from loganalyze_parsers.nvidia_smi_lines import MIB, Made, parse_lines
from loganalyze_parsers.prefixes import wall_seconds

#: Column without its unit -> metric, factor to its unit.
COLUMNS = {
    "utilization.gpu": ("gpu_util", 0.01),
    "utilization.memory": ("gpu_mem_bandwidth_util", 0.01),
    "memory.used": ("mem_used_bytes", MIB),
    "memory.total": ("mem_total_bytes", MIB),
    "memory.free": ("raw/mem_free_bytes", MIB),
    "power.draw": ("gpu_power_w", 1.0),
    "power.draw.average": ("gpu_power_w", 1.0),
    "power.draw.instant": ("gpu_power_w", 1.0),
    "temperature.gpu": ("gpu_temp_c", 1.0),
    "temperature.memory": ("raw/gpu_mem_temp_c", 1.0),
    "clocks.sm": ("gpu_sm_clock_hz", 1e6),
    "clocks.current.sm": ("gpu_sm_clock_hz", 1e6),
    "clocks.mem": ("raw/gpu_mem_clock_hz", 1e6),
    "clocks.current.memory": ("raw/gpu_mem_clock_hz", 1e6),
    "power.limit": ("raw/gpu_power_limit_w", 1.0),
    "enforced.power.limit": ("raw/gpu_power_limit_w", 1.0),
    "fan.speed": ("raw/gpu_fan_share", 0.01),
}
_NAMED = frozenset({
    "timestamp", "index", "name", "uuid", "gpu_uuid", "pci.bus_id", "count", "serial", "gpu_name",
    "driver_version", "pstate",
})  # fmt: skip
_UNIT = lazy.pattern(r" ?\[[^\[\]]{0,40}\]$")
_STAMP = lazy.pattern(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?$")
_LOST = ("[GPU is lost]", "[Unknown Error]", "GPU is lost", "[GPU requires reset]")
#: Unit of a value -> the columns it stands for, in the usual order of a query.
_BY_UNIT = {
    "%": ("utilization.gpu", "utilization.memory"),
    "MiB": ("memory.used", "memory.total"),
    "W": ("power.draw", "power.limit"),
    "MHz": ("clocks.sm", "clocks.mem"),
}


def sniff(head: Head) -> float:
    """A header of query columns, or rows whose values carry these units."""
    text = head.data[:4096].decode("utf-8", "replace").lstrip("\ufeff")
    lines = [line.strip() for line in text.split("\n") if line.strip()][:5]
    if not lines:
        return 0.0
    if _columns(lines[0]):
        cells = lines[0].count(",")
        return 0.95 if all(line.count(",") == cells for line in lines[1:-1]) else 0.0
    units = [unit for unit in (" %", " MiB", " W", " MHz") if unit in lines[0]]
    whole = lines[:-1] or lines
    return 0.9 if len(units) >= 2 and all(1 <= line.count(", ") <= 40 for line in whole) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """Readings with rank = GPU index; the time is local time."""
    rows = _Rows()
    yield from parse_lines(path, rows.made, source, "nvidia-smi")
    if rows.guessed:
        message = f"{path}: no header, so columns were told by their units: {rows.guessed}"
        yield Batch(readings=None, problems=(Problem(rule="columns_guessed", message=message),))


def _columns(text: str) -> list[str]:
    """The columns of a header line; empty if it is no header."""
    names = [_UNIT.sub("", cell.strip()).lower() for cell in text.split(",")]
    known = [name for name in names if name in COLUMNS or name in _NAMED]
    return names if len(known) >= 2 and any(name in COLUMNS for name in names) else []


class _Rows:
    """The header in force, and GPUs that are known by their UUID only."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.guessed = ""
        self._gpus: dict[str, int] = {}

    def made(self, text: str, ref: LineRef) -> Made:
        """A row as a reading; a GPU that does not answer as an event."""
        if not text:
            return "blank line"
        header = _columns(text)
        if header:
            self.columns = header
            return "header"
        cells = [cell.strip() for cell in text.split(",")]
        if not self.columns:
            self.columns = _guessed(cells)
            self.guessed = ", ".join(self.columns)
        if len(cells) != len(self.columns):
            return None
        row = dict(zip(self.columns, cells, strict=True))
        values = dict(chain.from_iterable(_value(name, cell) for name, cell in row.items()))
        rank, stamp = self._rank(row), row.get("timestamp", "")
        wall_s = wall_seconds(stamp) if _STAMP.match(stamp) else None
        lost = [_lost(text, ref, rank, wall_s)] if any(word in text for word in _LOST) else []
        if not values and not lost:
            return None
        reading = Reading(step=None, ref=ref, values=values, rank=rank, wall_s=wall_s)
        return (reading if values else None), tuple(lost)

    def _rank(self, row: dict[str, str]) -> int | None:
        if row.get("index", "").isdecimal():
            return int(row["index"])
        name = row.get("uuid") or row.get("gpu_uuid") or row.get("pci.bus_id")
        return None if name is None else self._gpus.setdefault(name, len(self._gpus))


_HEX = lazy.pattern(r"0x[0-9a-fA-F]{1,32}")


def _value(name: str, cell: str) -> Iterator[tuple[str, float]]:
    if name in _NAMED:
        return
    if _HEX.fullmatch(cell):
        yield f"raw/{name}", float(int(cell, 16))
        return
    found = leading_number(cell)
    if found is not None:
        metric, factor = COLUMNS.get(name, (f"raw/{name}", 1.0))
        yield metric, found[0] * factor


def _guessed(cells: list[str]) -> list[str]:
    """Columns of rows without a header: by unit, then index and temperature by their range."""
    names: list[str] = []
    for number, cell in enumerate(cells):
        found = leading_number(cell)
        unit = found[1] if found else ""
        free = [name for name in _BY_UNIT.get(unit, ()) if name not in names]
        if _STAMP.match(cell):
            names.append("timestamp")
        elif free:
            names.append(free[0])
        elif cell.isdecimal() and int(cell) < 16 and "index" not in names and number <= 2:
            names.append("index")
        elif cell.isdecimal() and 15 <= int(cell) <= 120 and "temperature.gpu" not in names:
            names.append("temperature.gpu")
        else:
            names.append(f"column {number + 1}")
    return names


def _lost(text: str, ref: LineRef, rank: int | None, wall_s: float | None) -> Event:
    signature = config.signatures()["gpu_lost"]
    return Event(
        kind=signature.kind,
        ref=ref,
        text=text[:400],
        rank=rank,
        wall_s=wall_s,
        detail={
            "signature": signature.name, "role": signature.role, "severity": signature.severity,
        },
    )  # fmt: skip


PARSER = Parser(name="nvidia_smi_csv", sniff=sniff, parse=parse)
