"""rank_missing: a rank that recorded its steps like all others, and then no more."""

from __future__ import annotations

import polars as pl
from msgspec.structs import replace

from loganalyze.detectors.base import Context, Detector, finding
from loganalyze.leads import ended_early
from loganalyze.model import Evidence, Finding, LineRef
from loganalyze.rank_states import ROWS, SHARED, TIMES, row_states

#: Silent ranks told one by one; the statistics count them all.
_ONE_BY_ONE = 16


def detect(context: Context) -> list[Finding]:
    """Ranks that ended well before most: dead, and the others took time to notice."""
    th = context.thresholds
    if not context.run.ranks and _fewer(context, th.value("straggler_rank.ranks")):
        return []
    states = context.run.ranks.states if context.run.ranks else row_states(context.run.readings)
    every = states.filter(pl.col("metric") == ROWS)
    ranks = every["rank"].n_unique()
    if ranks < th.value("straggler_rank.ranks"):
        return []
    records = every.group_by("rank").agg(pl.col("count").sum().alias("records"))
    early = ended_early(states).join(records, on="rank", how="left", maintain_order="left")
    pace = (pl.col("last_step") - pl.col("first_step")) / pl.max_horizontal(pl.col("count") - 1, 1)
    gap = th.value("rank_missing.gap") * pl.max_horizontal(pace, 1.0)
    silent = early.filter(
        (pl.col("records") >= th.value("rank_missing.records"))
        & (pl.col("end") - pl.col("last_step") > gap)
    )
    if not len(silent) or len(silent) > max(1, int(th.value("rank_missing.most") * ranks)):
        return []
    first = silent.sort("last_step", "rank").head(_ONE_BY_ONE)
    return [_finding(context, row, ranks, len(silent)) for row in first.iter_rows(named=True)]


def _fewer(context: Context, ranks: float) -> bool:
    """Whether lowest and highest rank of the rows leave no room for so many: told at once."""
    column = context.run.readings["rank"]
    low, high = column.min(), column.max()
    return not (isinstance(low, int) and isinstance(high, int)) or high - low + 1 < ranks


def _finding(context: Context, row: dict[str, int], ranks: int, silent: int) -> Finding:
    ref = LineRef(
        source=row["source"], line=row["line"], offset=row["offset"], length=row["length"]
    )
    made = finding(
        "rank_missing",
        "warning",
        first=row["last_step"],
        last=row["end"],
        peak=row["last_step"],
        statistics={
            "last_step": row["last_step"], "end_step": row["end"], "ranks": ranks, "silent": silent,
        },
        threshold=context.thresholds["rank_missing.gap"],
        evidence=(
            Evidence(
                label="rank_last", step=row["last_step"], value=f"rank {row['rank']}",
                expected=str(row["end"]), ref=ref,
            ),
        ),
    )  # fmt: skip
    return replace(made, rank=row["rank"], segment=row["segment"])


MISSING = Detector(
    name="rank_missing", kinds=("rank_missing",), needs=((*TIMES, *SHARED),), run=detect
)
