"""Slow ranks that share a node or a place in the parallel layout are one finding, not many."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec.structs import replace

from loganalyze.detectors.base import Context
from loganalyze.leads import outlying
from loganalyze.model import Evidence, Finding, severity_rank
from loganalyze.rank_layout import RankGroup, layout_of, shared_group

#: Slow ranks told one by one; of more, the worst.
_ONE_BY_ONE = 16


def rank_count(context: Context, held: int) -> int:
    """Ranks of the job: those whose rows are held, or of a wide job all of them."""
    ranks = context.run.ranks
    return held if ranks is None else int(ranks.states["rank"].n_unique())


def together(context: Context, found: Sequence[Finding]) -> list[Finding]:
    """Findings of single ranks; those of one segment whose ranks are a group's as one."""
    told: list[Finding] = []
    for segment in sorted({item.segment or 0 for item in found}):
        own = sorted((f for f in found if (f.segment or 0) == segment), key=_worst)
        group, odd = _group(context, own, segment)
        told.extend(own[:_ONE_BY_ONE] if group is None else [_of_group(own[0], group, odd)])
    return told


def _worst(item: Finding) -> tuple[float, float]:
    return (-severity_rank(item.severity), -float(item.statistics.get("excess_share") or 0.0))


def _group(
    context: Context, found: Sequence[Finding], segment: int
) -> tuple[RankGroup | None, set[int]]:
    """What the slow ranks of a segment have in common, and which they are."""
    odd = {item.rank for item in found if item.rank is not None}
    ranks = context.run.ranks
    if ranks is not None and found and found[0].metric:
        lean = outlying(ranks.states, found[0].metric).filter(pl.col("segment") == segment)
        odd |= set(lean["rank"].to_list())
        known = ranks.states["rank"].unique().to_list()
    else:
        known = context.run.readings["rank"].drop_nulls().unique().to_list()
    layout = layout_of(context.run.meta.config, max(known, default=-1) + 1)
    return shared_group(odd, known, layout), odd


def _of_group(worst: Finding, group: RankGroup, odd: set[int]) -> Finding:
    """The worst rank's finding, told of its group."""
    inside = len(odd & group.ranks)
    names = {"node": "node", "tp": "TP", "pp": "PP", "dp": "DP"}
    told = f"{names[group.name]} {group.index} ({inside}/{len(group.ranks)} ranks)"
    return replace(
        worst,
        statistics={**worst.statistics, "group": told, "slow_ranks": len(odd)},
        evidence=(*worst.evidence, Evidence(label="rank_group", value=told)),
    )
