"""Real logs that an expert called healthy give no incident above a note."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from paths import SHARED

from loganalyze.pipeline import Judging, report_on

CORPUS = SHARED / "corpus"
#: Larger ones are judged by benchmarks/corpus_quality.py.
_MOST_BYTES = 400_000

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the collection of real logs is not here"),
]


def healthy() -> Iterator[Mapping[str, Any]]:
    """Rows of high confidence that are healthy, with their folder."""
    for path in sorted(CORPUS.glob("*/TRUTH.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            place: Path = path.parent / row["path"]
            if row["healthy"] and row["confidence"] == "high" and _size(place) < _MOST_BYTES:
                yield {**row, "place": place}


def _size(place: Path) -> int:
    files = [place] if place.is_file() else [p for p in place.rglob("*") if p.is_file()]
    return sum(path.stat().st_size for path in files)


def test_healthy_rows_give_no_incident() -> None:
    """None of a kind that the row neither allows nor expects (a slow step in a sound run)."""
    wrong = [
        (row["case"], incident.kind, incident.severity)
        for row in healthy()
        for diagnosis in report_on([str(row["place"])], Judging()).diagnoses
        for incident in diagnosis.incidents
        if incident.kind not in {*row["allow"], *(wanted["kind"] for wanted in row["expect"])}
    ]
    assert wrong == []
