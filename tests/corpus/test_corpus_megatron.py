"""Every real Megatron file: as many records as an expert counts, and every line accounted for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from paths import CORPUS, needs_corpus

from loganalyze.assemble import training_rows
from loganalyze.ingest import Ingested, ingest

pytestmark = [pytest.mark.corpus, needs_corpus]
FOLDER = CORPUS / "megatron"


def _truths() -> list[Mapping[str, Any]]:
    file = FOLDER / "TRUTH.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


TRUTHS = _truths()


@cache
def read(path: str) -> Ingested:
    """A file's runs, read once for all tests."""
    return ingest([str(FOLDER / path)])


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth["case"])
def test_account_adds_up(truth: Mapping[str, Any]) -> None:
    """Read + ignored + unknown = all lines, counted by another way."""
    data = (FOLDER / truth["path"]).read_bytes()
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    (source,) = read(truth["path"]).runs[0].sources
    account = source.account
    assert account.lines == lines
    assert account.read + account.ignored_total + account.unknown == lines


def test_records_equal_the_truth() -> None:
    """The number of step records is the expert's in at least 95 % of the files."""
    wrong = []
    for truth in TRUTHS:
        count = sum(len(training_rows(run.readings)) for run in read(truth["path"]).runs)
        if count not in [truth["records"], *truth.get("records_alt", [])]:
            wrong.append((truth["case"], count, truth["records"]))
    assert len(wrong) <= 0.05 * len(TRUTHS), wrong


def test_segments_equal_the_truth() -> None:
    """Runs that stand one after the other in a file are told apart (confident cases)."""
    for truth in TRUTHS:
        if truth.get("segments") and truth["confidence"] != "low":
            segments = read(truth["path"]).runs[0].meta.segments
            assert [[s.first, s.last, s.count] for s in segments] == truth["segments"]
