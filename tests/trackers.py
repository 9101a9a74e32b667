"""Reads one input with a given parser, as the tests of the trackers' files need it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from loganalyze_parsers import head_of, parser_for

from loganalyze.model import Account, Batch


def parsed(path: Path) -> list[Batch]:
    """All batches of an input, read by the parser that is surest of it; accounts are checked."""
    parser = parser_for(head_of(path))
    assert parser is not None, f"no parser wants {path.name}"
    batches = list(parser.parse(path, 0))
    for batch in batches:
        assert_adds_up(batch.account)
    return batches


def assert_adds_up(account: Account) -> None:
    """Read, ignored and unknown are all there is."""
    assert account.lines == account.read + account.ignored_total + account.unknown


def rows(batch: Batch) -> pl.DataFrame:
    """The readings, which must be there."""
    assert batch.readings is not None
    return batch.readings


def rules(batch: Batch) -> list[str]:
    """Rules of the problems told."""
    return [problem.rule for problem in batch.problems]
