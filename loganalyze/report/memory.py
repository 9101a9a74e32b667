"""Where a GPU's memory goes: what the log shows, and what the settings let expect.

The parts follow PyTorch's allocator: allocated <= peak allocated <= reserved <= used <= total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from loganalyze.detectors.audit_settings import is_lora, precision, settings
from loganalyze.report.model import RunView
from loganalyze.report.wording import Both, both, joined, metric_label

#: Levels from the inside out: part, the metrics that show it (the first that is there), and
#: whether its usual (median) or largest value counts.
LEVELS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("kept", ("mem_allocated_bytes",), "median"),
    ("step", ("mem_peak_allocated_bytes",), "max"),
    ("cache", ("mem_peak_reserved_bytes", "mem_reserved_bytes"), "max"),
    ("other", ("mem_used_bytes",), "max"),
    ("free", ("mem_total_bytes",), "min"),
)
#: A memory size in bytes that some machine may have.
_LEAST, _MOST = 1.0, 1e18
#: Below this the allocator's blocks outweigh the parameters, and the formula says nothing.
LEAST_PARAMETERS = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the memory, in bytes. share: of all that is shown, 0-1."""

    key: str
    label: Both
    bytes: float
    share: float
    source: Both


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Bytes per GPU that weights, gradients and Adam's states take by the settings.

    parameters: per GPU, 12 layers hidden^2 + vocabulary hidden over tensor and pipeline ranks.
    Bytes per parameter after seed A, section 3.1.
    """

    parameters: float
    rows: tuple[tuple[Both, float, float], ...]  # what, least, most
    total: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The budget of the fullest GPU. missing: metrics that would show more parts."""

    rank: int | None
    parts: tuple[Part, ...]
    whole: float
    expected: Expected | None
    missing: tuple[str, ...]


def memory_budget(run: RunView) -> MemoryBudget | None:
    """The budget of the GPU that came nearest to its limit; None where no size is logged."""
    rank, sizes = _fullest(run.diagnosis.run.readings)
    expected = expected_states(run.diagnosis.run.meta.config)
    if not sizes and expected is None:
        return None
    parts = _parts(sizes)
    missing = tuple(names[0] for _, names, _ in LEVELS if not any(n in sizes for n in names))
    whole = max(sizes.values(), default=0.0)
    return MemoryBudget(rank=rank, parts=parts, whole=whole, expected=expected, missing=missing)


def _fullest(frame: pl.DataFrame) -> tuple[int | None, dict[str, float]]:
    """The rank with the largest memory in use, and the value of each level there."""
    names = [name for _, wanted, _ in LEVELS for name in wanted if name in frame.columns]
    if not names:
        return None, {}
    how = {name: how for _, wanted, how in LEVELS for name in wanted}
    by_rank = frame.group_by("rank").agg(_level(name, how[name]) for name in names)
    used = [name for name in names if name != "mem_total_bytes"] or names
    fullest = by_rank.with_columns(top=pl.max_horizontal(used)).sort(
        "top", "rank", descending=[True, False], nulls_last=True
    )
    row = fullest.row(0, named=True)
    return row["rank"], {name: row[name] for name in names if row[name] is not None}


def _level(name: str, how: str) -> pl.Expr:
    value = pl.col(name).filter(pl.col(name).is_between(_LEAST, _MOST))
    made = {"median": value.median(), "max": value.max(), "min": value.min()}[how]
    return made.alias(name)


def _parts(sizes: Mapping[str, float]) -> tuple[Part, ...]:
    """What each level holds beyond the one inside it; unlogged levels join the next one."""
    whole = max(sizes.values(), default=0.0)
    parts: list[Part] = []
    below, held = 0.0, []
    for key, names, _ in LEVELS:
        held.append(both(f"ui_memory_{key}"))
        name = next((name for name in names if name in sizes), None)
        if name is None:
            continue
        size = max(0.0, sizes[name] - below)
        below = max(below, sizes[name])
        parts.append(Part(key=key, label=joined(held, en=" + ", zh=" + "), bytes=size,
                          share=size / whole, source=metric_label(name)))  # fmt: skip
        held = []
    return tuple(parts)


def expected_states(told: Mapping[str, str]) -> Expected | None:
    """Weights, gradients and Adam's states of a dense model trained whole; None if not told."""
    found = settings(told)
    layers, hidden = found.get("layers", 0.0), found.get("hidden", 0.0)
    if layers <= 0 or hidden <= 0 or found.get("experts", 0.0) > 1 or is_lora(told):
        return None
    split = max(1.0, found.get("tp", 1.0)) * max(1.0, found.get("pp", 1.0))
    count = (12 * layers * hidden**2 + found.get("vocab", 0.0) * hidden) / split
    if count < LEAST_PARAMETERS:
        return None
    half = precision(told) != "fp32"
    shards = max(1.0, found.get("world", 1.0) / split)
    states = 12.0 if half else 8.0  # two moments in fp32, and an fp32 copy of half weights
    per_parameter = {
        "weights": (2.0, 2.0) if half else (4.0, 4.0),
        "gradients": (2.0, 4.0) if half else (4.0, 4.0),
        "optimizer": (states / shards, states),
    }
    rows = tuple(
        (both(f"ui_memory_{name}"), low * count, high * count)
        for name, (low, high) in per_parameter.items()
    )
    total = sum(low for _, low, _ in rows), sum(high for _, _, high in rows)
    return Expected(parameters=count, rows=rows, total=total)
