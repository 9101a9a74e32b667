"""How many points a page may hold, so that the whole file stays within 2.5 MB."""

from __future__ import annotations

from collections.abc import Sequence

from loganalyze.report.incident import FULL_CARDS, MOST_CARDS
from loganalyze.report.model import RunView

PAGE_BYTES = 2_460_000
#: What the parts of a page take, in bytes, measured on pages of real and made-up runs.
PLOTLY, SCRIPTS_AND_FRAME = 1_840_000, 110_000
FULL_CARD, CARD, FINDING = 17_000, 4_500, 560
THRESHOLD, SETTING, METRIC, RANK_MAP = 260, 110, 3_600, 9_000
POINT = 7.8
LEAST_POINTS, MOST_POINTS = 8_000, 60_000


def page_points(runs: Sequence[RunView]) -> int:
    """Points for the page of these runs, all together: what room the text leaves."""
    room = PAGE_BYTES - PLOTLY - SCRIPTS_AND_FRAME - sum(_text_bytes(run) for run in runs)
    return min(MOST_POINTS, max(LEAST_POINTS, int(room / POINT)))


def _text_bytes(run: RunView) -> int:
    """An estimate of what a run's text and drawings take."""
    incidents = len(run.incidents)
    cards = FULL_CARD * min(incidents, FULL_CARDS)
    cards += CARD * max(0, min(incidents, MOST_CARDS) - FULL_CARDS)
    lists = FINDING * len(run.findings) + THRESHOLD * len(run.diagnosis.thresholds)
    lists += SETTING * len(run.diagnosis.run.meta.config)
    maps = RANK_MAP * 4 if len(run.ranks) > 1 else 0
    return cards + lists + METRIC * len(run.metrics) + maps
