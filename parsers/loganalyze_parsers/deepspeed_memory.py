"""DeepSpeed's memory prints, by rank 0 (runtime/utils.py: see_memory_usage; utils/debug.py).

    [...] [INFO] [utils.py:1:see_memory_usage] before forward
    [...] MA 3.1 GB         Max_MA 5.6 GB         CA 7.2 GB         Max_CA 7 GB
    [...] CPU Virtual Memory:  used = 61.2 GB, percent = 24.3%
    RANK=0 MEMSTATS after step device=cuda:0 current alloc=3.1GB (delta=0.1GB max=5.6GB)
        current cache=7.2GB (delta=0.0GB max=7.9GB)

"GB" is 1024^3 bytes; MA is allocated, CA reserved by the caching allocator; the peaks are reset
by every print; the CPU line is the whole host. Within a step the print may be called at several
places (before forward, after backward): only the first place makes a curve, others are raw.
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import GIB, State, parsed, reading
from loganalyze_parsers.numbers import NUMBER

_LABEL = lazy.pattern(r"see_memory_usage\]\s+(?!MA |CPU )(.*)")
_USAGE = lazy.pattern(
    rf"\bMA ({NUMBER}) GB\s+Max_MA ({NUMBER}) GB\s+CA ({NUMBER}) GB\s+Max_CA ({NUMBER}) GB"
)
_HOST = lazy.pattern(rf"CPU Virtual Memory:\s+used = ({NUMBER}) GB, percent = ({NUMBER})%")
_MEMSTATS = lazy.pattern(
    rf"RANK=(\d{{1,9}}) MEMSTATS (.{{0,200}}?) device=\S{{1,40}} current alloc=({NUMBER})GB "
    rf"\(delta=({NUMBER})GB max=({NUMBER})GB\) "
    rf"current cache=({NUMBER})GB \(delta=({NUMBER})GB max=({NUMBER})GB\)"
)
_USAGE_NAMES = (
    "mem_allocated_bytes", "mem_peak_allocated_bytes", "mem_reserved_bytes",
    "mem_peak_reserved_bytes",
)  # fmt: skip


def take_memory(line: Line, state: State) -> Taken | None:
    """Memory readings, without a step before the first step."""
    text = line.text
    match = _USAGE.search(text)
    if match is not None:
        values = [parsed(raw) * GIB for raw in match.groups()]
        named = dict(zip(_names(state), values, strict=True))
        return Taken(readings=[reading(line, state.step, named)])
    match = _HOST.search(text)
    if match is not None:
        host = {
            "host_mem_used_bytes": parsed(match[1]) * GIB,
            "host_mem_share": parsed(match[2]) / 100.0,
        }
        return Taken(readings=[reading(line, state.step, host)])
    match = _LABEL.search(text)
    if match is not None:
        state.memory_label = re.sub(r"\d+", "#", match[1].strip())
        return Taken(ignored="label of a memory print")
    return _memstats(line, state)


def _names(state: State) -> tuple[str, ...]:
    """Canonical names at the place in the step that was seen first, raw names elsewhere."""
    if state.step is None:
        return _USAGE_NAMES
    if state.main_memory_label is None:
        state.main_memory_label = state.memory_label
    if state.memory_label == state.main_memory_label:
        return _USAGE_NAMES
    return tuple(f"raw/{name}" for name in _USAGE_NAMES)


def _memstats(line: Line, state: State) -> Taken | None:
    match = _MEMSTATS.search(line.text)
    if match is None:
        return None
    state.memory_label = re.sub(r"\d+", "#", match[2].strip())
    allocated, delta, peak, reserved, cache_delta, cache_peak = (
        parsed(raw) * GIB for raw in match.groups()[2:]
    )
    named = dict(zip(_names(state), (allocated, peak, reserved, cache_peak), strict=True))
    named["raw/mem_allocated_delta_bytes"] = delta
    named["raw/mem_reserved_delta_bytes"] = cache_delta
    return Taken(readings=[reading(line, state.step, named)])
