"""Text files, through the dialects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loganalyze.model import Batch
from loganalyze_parsers.api import Dialect
from loganalyze_parsers.guarded import guarded_blocks
from loganalyze_parsers.textlog import TextLog


def parse_text(
    path: Path, source: int, dialects: Sequence[Dialect], ignore_rule: Callable[[str], str | None]
) -> Iterator[Batch]:
    """All batches of a text file; a broken compressed stream ends it with a Problem."""
    yield from parse_part(TextLog(dialects, ignore_rule, source), path, source)


def parse_part(log: TextLog, path: Path, source: int) -> Iterator[Batch]:
    """The same for one part of a rotated log, with what the log knows from the parts before."""
    log.turn_to(source)
    blocks, told = guarded_blocks(path, redraws=True)
    yield from log.batches(blocks)
    told.extend(log.names.problems(str(path)))
    if told:
        yield Batch(readings=None, problems=tuple(told))
