"""Where a GPU's memory goes: what the log shows, and what the settings let expect.

The parts follow PyTorch's allocator: allocated <= peak allocated <= reserved <= used <= total.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from loganalyze.budget import Budget, estimate
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
#: Below this the allocator's blocks outweigh the parameters, and the estimate says nothing.
LEAST_PARAMETERS = 1e7


class Part(Struct, frozen=True, kw_only=True):
    """A part of the memory, in bytes. share: of all that is shown, 0-1."""

    key: str
    label: Both
    bytes: float
    share: float
    source: Both


class MemoryBudget(Struct, frozen=True, kw_only=True):
    """The budget of the fullest GPU. missing: metrics that would show more parts.

    expected: the estimate from the configuration (see loganalyze.budget); None for a toy model or
    where its size is not told.
    """

    rank: int | None
    parts: tuple[Part, ...]
    whole: float
    expected: Budget | None
    missing: tuple[str, ...]


def memory_budget(run: RunView) -> MemoryBudget | None:
    """The budget of the GPU that came nearest to its limit; None where no size is logged."""
    rank, sizes = _fullest(run.diagnosis.run.readings)
    expected = estimate(run.diagnosis.run.meta.config)
    if expected is not None and expected.parameters < LEAST_PARAMETERS:
        expected = None
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
