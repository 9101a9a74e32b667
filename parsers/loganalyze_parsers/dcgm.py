"""The DCGM exporter's page in Prometheus' text format, one scrape or many in a row.

    # TYPE DCGM_FI_DEV_GPU_UTIL gauge
    DCGM_FI_DEV_GPU_UTIL{gpu="3",UUID="GPU-1f",Hostname="node7"} 97 1931234567000

The number behind the value is the time of the scrape in milliseconds, mostly absent.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",modelName="H100"} 97'
>>> step, values = rows_of_file(PARSER, "dcgm.txt", line)[-1]
>>> step, values["gpu_util"]
(None, 0.97)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from loganalyze import config, lazy
from loganalyze.model import Batch, Event, LineRef, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.nvidia_smi_lines import MIB, Made, parse_lines

_PREFIX = "DCGM_FI_"
#: Field without its prefix -> metric, factor to its unit.
FIELDS = {
    "DEV_GPU_UTIL": ("gpu_util", 0.01),
    "DEV_MEM_COPY_UTIL": ("gpu_mem_bandwidth_util", 0.01),
    "PROF_DRAM_ACTIVE": ("raw/dram_active", 1.0),
    "PROF_SM_ACTIVE": ("raw/sm_active", 1.0),
    "PROF_PIPE_TENSOR_ACTIVE": ("raw/tensor_active", 1.0),
    "PROF_GR_ENGINE_ACTIVE": ("raw/gr_engine_active", 1.0),
    "DEV_FB_USED": ("mem_used_bytes", MIB),
    "DEV_FB_FREE": ("raw/mem_free_bytes", MIB),
    "DEV_FB_TOTAL": ("mem_total_bytes", MIB),
    "DEV_POWER_USAGE": ("gpu_power_w", 1.0),
    "DEV_GPU_TEMP": ("gpu_temp_c", 1.0),
    "DEV_MEMORY_TEMP": ("raw/gpu_mem_temp_c", 1.0),
    "DEV_SM_CLOCK": ("gpu_sm_clock_hz", 1e6),
    "DEV_MEM_CLOCK": ("raw/gpu_mem_clock_hz", 1e6),
}
_SAMPLE = lazy.pattern(
    r"^DCGM_FI_(?P<field>\w{1,80})\{(?P<labels>[^}]{0,2000})\} (?P<value>\S{1,40})"
    r"(?: (?P<time_ms>\d{10,16}))?$"
)
_GPU = lazy.pattern(r'(?:^|,)gpu="(\d{1,9})"')
#: DCGM writes blanks as huge numbers: 2**47 and up for fp64, 2**63 - 16 and up for int64.
_BLANK = 140737488355328.0


def sniff(head: Head) -> float:
    """Certain where a DCGM field stands at the beginning of a line."""
    start = head.data[:16384]
    return 0.95 if re.search(rb"(?:^|\n)(?:# (?:HELP|TYPE) )?DCGM_FI_", start) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """Readings with rank = GPU index, one a line; an Xid or a double-bit error also as an event."""
    yield from parse_lines(path, _Page().made, source, "dcgm")


class _Page:
    """The last error numbers told, so that each is told once."""

    def __init__(self) -> None:
        self._told: set[tuple[int | None, str, float]] = set()

    def made(self, text: str, ref: LineRef) -> Made:
        """A sample as a reading; comments and other exporters' lines are ignored."""
        if not text:
            return "blank line"
        if text.startswith("#"):
            return "comment"
        match = _SAMPLE.match(text)
        if match is None:
            return None if text.startswith(_PREFIX) else "metric of another exporter"
        try:
            value = float(match["value"])
        except ValueError:
            return None
        if not value < _BLANK:  # nor is NaN one
            return "blank value"
        gpu = _GPU.search(match["labels"])
        rank = int(gpu[1]) if gpu else None
        metric, factor = FIELDS.get(match["field"], (f"raw/dcgm {match['field'].lower()}", 1.0))
        wall_s = int(match["time_ms"]) / 1000 if match["time_ms"] else None
        reading = Reading(
            step=None, ref=ref, values={metric: value * factor}, rank=rank, wall_s=wall_s
        )
        return reading, self._events(match["field"], value, text, reading)

    def _events(self, field: str, value: float, text: str, reading: Reading) -> tuple[Event, ...]:
        key = (reading.rank, field, value)
        if value <= 0 or key in self._told:
            return ()
        if field == "DEV_XID_ERRORS":
            name = f"xid_{int(value)}"
        elif field in ("DEV_ECC_DBE_VOL_TOTAL", "DEV_ROW_REMAP_FAILURE"):
            name = "cuda_ecc_uncorrectable" if "ECC" in field else "row_remap_failed"
        else:
            return ()
        self._told.add(key)
        known = config.signatures()
        signature = known.get(name, known["xid_other"])
        detail: dict[str, str | int] = {
            "signature": signature.name, "role": signature.role, "severity": signature.severity,
        }  # fmt: skip
        if signature.kind == "xid":
            detail["xid"] = int(value)
        return (
            Event(
                kind=signature.kind, ref=reading.ref, text=text[:400], rank=reading.rank,
                wall_s=reading.wall_s, detail=detail,
            ),
        )  # fmt: skip


PARSER = Parser(name="dcgm_exporter", sniff=sniff, parse=parse)
