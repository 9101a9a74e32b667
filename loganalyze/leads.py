"""Which ranks of a wide job are looked at row by row: a healthy sample, and all that stand out."""

from __future__ import annotations

import math
from collections.abc import Collection

import polars as pl

from loganalyze.rank_states import ROWS, SHARED, TIMES, leaning, sample

#: Healthy ranks beside the odd ones; fewer where a rank has very many records.
LEADS, LEAST_LEADS, LEAD_ROWS = 64, 8, 600_000
#: Of one sort of odd ranks, at most.
ODD = 16
#: Half of what the detectors ask for (straggler_rank.info_share, .z): they decide, not this.
_LEAN, _DEVIATIONS = 0.5 * math.log1p(0.01), 4.0


def choose_leads(
    states: pl.DataFrame, events: pl.DataFrame, failures: Collection[str], leader: int
) -> tuple[int, ...]:
    """The ranks, growing. leader: the rank whose records tell the run's story."""
    rows = states.filter(pl.col("metric") == ROWS)
    if not len(rows):
        return ()
    gone = set(ended_early(states)["rank"].to_list())
    counts = rows.group_by("rank").agg(pl.col("count").sum())
    whole = [rank for rank in counts["rank"].to_list() if rank not in gone]
    most = int(counts["count"].max() or 1)  # type: ignore[arg-type]
    size = max(LEAST_LEADS, min(LEADS, LEAD_ROWS // most))
    found = {*sample(whole, size), min(whole), max(whole), leader}
    found.update(rank for rank in suspects(states) if rank not in gone)
    failed = events.filter(pl.col("kind").is_in(sorted(failures)))["rank"].drop_nulls()
    found.update(failed.unique(maintain_order=True).head(ODD).to_list())
    return tuple(sorted(found & set(counts["rank"].to_list())))


def suspects(states: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that may be slow or disagree: the first few of each sort, the worst first."""
    found: dict[int, None] = {}
    for metric in (*TIMES, *SHARED):
        for late in (False, True):
            odd = outlying(states, metric, late=late).head(ODD)
            found.update(dict.fromkeys(odd["rank"].to_list()))
    for metric in SHARED:
        found.update(dict.fromkeys(apart(states, metric)["rank"].head(ODD).to_list()))
    return tuple(found)


def outlying(states: pl.DataFrame, metric: str, *, late: bool = False) -> pl.DataFrame:
    """Ranks that lean away from all others by more than noise explains, the worst first.

    Of times of a rank's own work only those that take longer, of waiting those that wait less.
    """
    if metric not in states["metric"]:
        return pl.DataFrame(schema={"segment": pl.Int32, "rank": pl.Int32, "lean": pl.Float64})
    lean = leaning(states, metric, late=late)
    if metric in SHARED:
        size, least = pl.col("lean").abs(), 1.0
    else:
        size, least = (-1 if metric == "comm_time_s" else 1) * pl.col("lean"), _LEAN
    noise = pl.max_horizontal("spread", "error")
    return lean.filter((size > least) & (size > _DEVIATIONS * noise)).sort(
        -size, "segment", "rank", maintain_order=True
    )


def apart(states: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Ranks that disagree where most ranks always agree, the most often first."""
    own = states.filter((pl.col("metric") == metric) & (pl.col("count") > 0))
    usual = pl.col("apart").median().over("segment") == 0
    return own.filter(usual & (pl.col("apart") > 0)).sort(
        "apart", "rank", descending=[True, False], maintain_order=True
    )


def ended_early(states: pl.DataFrame) -> pl.DataFrame:
    """Ranks whose last record lies well before the one at which most ranks end.

    In the last segment of each rank's metric ROWS; by more than two of its intervals. Column
    `end`: the last step of most ranks.
    """
    rows = states.filter(pl.col("metric") == ROWS)
    if not len(rows):
        return rows.with_columns(end=pl.lit(None, dtype=pl.Int64))
    last = rows.sort("segment").group_by("rank", maintain_order=True).last()
    span = (pl.col("last_step") - pl.col("first_step")) / pl.max_horizontal(pl.col("count") - 1, 1)
    end = int(last["last_step"].median() or 0)  # type: ignore[arg-type]
    return (
        last.with_columns(end=pl.lit(end))
        .filter(pl.col("last_step") + 2 * pl.max_horizontal(span, 1.0) < end)
        .sort("rank")
    )
