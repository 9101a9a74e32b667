"""nvidia-smi dmon and dcgmi dmon: a table with two header lines, repeated every few rows.

    # gpu    pwr  gtemp  mtemp     sm    mem     fb   mclk   pclk
    # Idx      W      C      C      %      %     MB    MHz    MHz
        0    301     62      -     98     61  30211   2619   1935

    #Entity   GPUTL   MCUTL   POWER   TMPTR   SMCLK
    ID                        W       C       MHz
    GPU 0     97      40      313.2   65      1980

The columns depend on the driver and the options, so they are read from the header. `-o DT` puts
date and time before them.

>>> from loganalyze_parsers.samples import rows_of_file
>>> head = "# gpu    pwr  gtemp     sm    mem   pclk"
>>> units = "# Idx      W      C      %      %    MHz"
>>> row = "    0    301     62     98     61   1935"
>>> step, values = rows_of_file(PARSER, "dmon.txt", head, units, row)[-1]
>>> step, values["gpu_util"], values["gpu_temp_c"], values["gpu_sm_clock_hz"]
(None, 0.98, 62.0, 1935000000.0)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from loganalyze import lazy
from loganalyze.model import Batch, LineRef, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.nvidia_smi_lines import MIB, Made, parse_lines
from loganalyze_parsers.prefixes import wall_seconds

#: Column -> metric, factor to its unit. sm and mem are shares of time, fb is in MiB.
COLUMNS = {
    "pwr": ("gpu_power_w", 1.0),
    "gtemp": ("gpu_temp_c", 1.0),
    "temp": ("gpu_temp_c", 1.0),
    "mtemp": ("raw/gpu_mem_temp_c", 1.0),
    "sm": ("gpu_util", 0.01),
    "mem": ("gpu_mem_bandwidth_util", 0.01),
    "fb": ("mem_used_bytes", MIB),
    "pclk": ("gpu_sm_clock_hz", 1e6),
    "mclk": ("raw/gpu_mem_clock_hz", 1e6),
    # dcgmi's short names of the same fields
    "gputl": ("gpu_util", 0.01),
    "mcutl": ("gpu_mem_bandwidth_util", 0.01),
    "power": ("gpu_power_w", 1.0),
    "tmptr": ("gpu_temp_c", 1.0),
    "mmtmp": ("raw/gpu_mem_temp_c", 1.0),
    "smclk": ("gpu_sm_clock_hz", 1e6),
    "mmclk": ("raw/gpu_mem_clock_hz", 1e6),
    "fbusd": ("mem_used_bytes", MIB),
}
_HEADER = lazy.pattern(r"^# ?(?:(?:Date +)?(?:Time +)?gpu|Entity) +\S", re.IGNORECASE)
_ROW_STARTS = frozenset({"gpu", "date", "time"})
_DATE = lazy.pattern(r"^(\d{4})(\d\d)(\d\d)$")


def sniff(head: Head) -> float:
    """Certain where a header line stands among the first lines."""
    start = head.data[:4096].decode("utf-8", "replace")
    lines = [re.sub(r" +", " ", line.strip()) for line in start.split("\n")[:10]]
    return 0.95 if any(_HEADER.match(line) for line in lines) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """Readings with rank = GPU index; wall time only where date and time are printed."""
    yield from parse_lines(path, _Table().made, source, "nvidia-smi")


class _Table:
    """The header in force."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def made(self, text: str, ref: LineRef) -> Made:
        """A row as a reading, header lines ignored."""
        if not text:
            return "blank line"
        if text.startswith("#"):
            names = text.lstrip("# ").lower().split()
            if names[:1] == ["entity"]:
                names[0] = "gpu"
            if "gpu" in names:
                self._columns = names
            return "header"
        cells = text.removeprefix("GPU ").split()
        if cells[:1] == ["ID"]:
            return "header"
        if len(cells) != len(self._columns):
            return None
        row = dict(zip(self._columns, cells, strict=True))
        values = {}
        for name, cell in row.items():
            if name not in _ROW_STARTS and re.fullmatch(r"-?\d+(?:\.\d+)?", cell):
                metric, factor = COLUMNS.get(name, (f"raw/{name}", 1.0))
                values[metric] = float(cell) * factor
        if not values or not row["gpu"].isdecimal():
            return None
        wall_s = _wall_seconds(row)
        return Reading(step=None, ref=ref, values=values, rank=int(row["gpu"]), wall_s=wall_s), ()


def _wall_seconds(row: dict[str, str]) -> float | None:
    date = _DATE.match(row.get("date", ""))
    if date is None or "time" not in row:
        return None
    return wall_seconds(f"{date[1]}-{date[2]}-{date[3]} {row['time']}")


PARSER = Parser(name="nvidia_smi_dmon", sniff=sniff, parse=parse)
