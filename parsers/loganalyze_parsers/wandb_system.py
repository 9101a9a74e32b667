"""System metrics of W&B: what the keys mean, and one row a sample (and GPU).

The keys changed little since 2020, the packaging did: one record a sample, or one per resource
with slightly different times (wandb 0.18 and later), so records closer than half the sampling
interval are merged. `gpu.N.memory` is the share of time the memory was busy, not its fill.
`gpu.process.N.*` names the GPUs of the run's own processes: others on the host are then left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from loganalyze import lazy

_MIB = 1024.0**2
_GPU = lazy.pattern(r"(?:system[./])?gpu\.(process\.)?(\d+)\.(\w+)$")
_SHARED = lazy.pattern(r"/l:(.*)$")  # label of the writer in shared mode, one a node
_CORE = lazy.pattern(r"cpu\.\d+\.cpu_percent$")
_GPU_KEYS: Mapping[str, tuple[str, float]] = {
    "gpu": ("gpu_util", 0.01),
    "memory": ("gpu_mem_bandwidth_util", 0.01),
    "memoryAllocatedBytes": ("mem_used_bytes", 1.0),
    "memoryUsed": ("mem_used_bytes", 1.0),
    "temp": ("gpu_temp_c", 1.0),
    "powerWatts": ("gpu_power_w", 1.0),
    "smClock": ("gpu_sm_clock_hz", 1e6),
}
_HOST_KEYS: Mapping[str, tuple[str, float]] = {
    "proc.memory.rssMB": ("host_rss_bytes", _MIB),
    "memory_percent": ("host_mem_share", 0.01),
    "memory": ("host_mem_share", 0.01),
    "memory.used": ("host_mem_used_bytes", 1.0),
}
_DEFAULT_INTERVAL_S = 15.0  # wandb 0.19 and later
#: GPUs per node assumed to follow each other where several nodes write one log.
_GPUS_PER_NODE = 8


class Sample(Struct, kw_only=True):
    """One record of system metrics: when, where in the log, and its numbers by key."""

    wall_s: float
    line: int
    offset: int
    length: int
    values: dict[str, float]


class SystemRow(Struct, frozen=True, kw_only=True):
    """Numbers of one GPU (rank set where the run has several) or of the host, canonical names."""

    sample: Sample
    rank: int | None
    values: Mapping[str, float]


def merged(samples: Sequence[Sample]) -> list[Sample]:
    """Records of one sampling joined: closer than half the interval, no key twice."""
    reach = 0.5 * _interval(samples)
    made: list[Sample] = []
    for one in sorted(samples, key=lambda sample: (sample.wall_s, sample.offset)):
        last = made[-1] if made else None
        if (
            last is not None
            and one.wall_s - last.wall_s < reach
            and not one.values.keys() & last.values.keys()
        ):
            last.values.update(one.values)
        else:
            made.append(
                Sample(
                    wall_s=one.wall_s, line=one.line, offset=one.offset, length=one.length,
                    values=dict(one.values),
                )
            )  # fmt: skip
    return made


def _interval(samples: Sequence[Sample]) -> float:
    """Seconds between two samplings: the median time until a key comes again."""
    last: dict[str, float] = {}
    gaps = []
    for sample in samples:
        for key in sample.values:
            if key in last:
                gaps.append(sample.wall_s - last[key])
            last[key] = sample.wall_s
    gaps = [gap for gap in gaps if gap > 0]
    return median(gaps) if gaps else _DEFAULT_INTERVAL_S


def system_rows(samples: Sequence[Sample]) -> list[SystemRow]:
    """Rows of all samples; with several GPUs one row per GPU and one for the host."""
    made = merged(samples)
    own = _own_gpus(made)
    nodes = sorted({node for sample in made for node in map(_node, sample.values)})
    totals = _totals(made)
    rows: list[SystemRow] = []
    for sample in made:
        parts = _parts(sample.values, own, nodes)
        _add_totals(parts, totals)
        gpus = sorted(rank for rank in parts if rank >= 0)
        if len(own) <= 1 and len(nodes) <= 1:
            joined = {name: value for rank in parts for name, value in parts[rank].items()}
            rows.append(SystemRow(sample=sample, rank=None, values=joined))
            continue
        for rank in gpus:
            rows.append(SystemRow(sample=sample, rank=rank, values=parts[rank]))
        if -1 in parts:
            rows.append(SystemRow(sample=sample, rank=None, values=parts[-1]))
    return [row for row in rows if row.values]


def _own_gpus(samples: Iterable[Sample]) -> frozenset[int]:
    """GPUs of the run's own processes where the log tells, else all of the host."""
    every: set[int] = set()
    ours: set[int] = set()
    for key in {key for sample in samples for key in sample.values}:
        match = _GPU.match(_SHARED.sub("", key))
        if match:
            every.add(int(match[2]))
            if match[1]:
                ours.add(int(match[2]))
    return frozenset(ours or every)


def _node(key: str) -> str:
    match = _SHARED.search(key)
    return match[1] if match else ""


def _parts(
    values: Mapping[str, float], own: frozenset[int], nodes: Sequence[str]
) -> dict[int, dict[str, float]]:
    """Rank (-1 for the host) to its numbers by canonical name."""
    parts: dict[int, dict[str, float]] = {}
    for key, value in values.items():
        plain = _SHARED.sub("", key).removeprefix("system.").removeprefix("system/")
        gpu = _GPU.match(plain)
        if gpu is None:
            if not _CORE.match(plain) and not plain.startswith("_gpu."):
                name, factor = _HOST_KEYS.get(plain, (f"raw/system/{plain}", 1.0))
                parts.setdefault(-1, {})[name] = value * factor
            continue
        if gpu[1] or int(gpu[2]) not in own:
            continue
        rank = nodes.index(_node(key)) * _GPUS_PER_NODE + int(gpu[2])
        name, factor = _GPU_KEYS.get(gpu[3], (f"raw/system/gpu.{gpu[3]}", 1.0))
        parts.setdefault(rank, {})[name] = value * factor
    return parts


def _totals(samples: Iterable[Sample]) -> float | None:
    """Device memory in bytes, from used bytes and used per cent (median over all samples)."""
    found = []
    for sample in samples:
        for key, used in sample.values.items():
            if key.endswith(".memoryAllocatedBytes"):
                share = sample.values.get(key.removesuffix("Bytes"), 0.0)
                if share > 1.0:
                    found.append(used / (share / 100.0))
    return median(found) if found else None


def _add_totals(parts: dict[int, dict[str, float]], total: float | None) -> None:
    for values in parts.values():
        if total is not None and "mem_used_bytes" in values:
            values["mem_total_bytes"] = total
