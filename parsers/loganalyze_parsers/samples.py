"""Reads a few lines through one format, as the doctests of the formats' modules do.

>>> from loganalyze_parsers.torchtitan import DIALECT
>>> rows_of(DIALECT, "step: 40  loss: 7.5  tps: 6,543", "no line of it")
[(40, {'loss': 7.5, 'tokens_per_s_per_gpu': 6543.0})]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loganalyze.model import Batch
from loganalyze_parsers.api import Dialect, Parser
from loganalyze_parsers.frames import KEY_SCHEMA
from loganalyze_parsers.text_files import parse_text

Row = tuple[int | None, dict[str, float]]


def rows_of(dialect: Dialect, *lines: str) -> list[Row]:
    """Step and numbers of every row that a dialect alone reads of the lines."""
    text = "".join(f"{line}\n" for line in lines)
    with _file("sample.log", text.encode()) as path:
        return list(_rows(parse_text(path, 0, (dialect,), lambda _: None)))


def rows_of_file(parser: Parser, name: str, *lines: str) -> list[Row]:
    """The same for a parser of whole files, whose content the lines are."""
    with _file(name, "".join(f"{line}\n" for line in lines).encode()) as path:
        return list(_rows(parser.parse(path, 0)))


def events_of(dialect: Dialect, *lines: str) -> list[tuple[str, int | None]]:
    """Kind and step of every event that a dialect alone reads of the lines."""
    text = "".join(f"{line}\n" for line in lines)
    with _file("sample.log", text.encode()) as path:
        batches = parse_text(path, 0, (dialect,), lambda _: None)
        return [(event.kind, event.step) for batch in batches for event in batch.events]


@contextmanager
def _file(name: str, content: bytes) -> Iterator[Path]:
    """A file of that name in a folder of its own, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="loganalyze-") as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        yield path


def _rows(batches: Iterator[Batch]) -> Iterator[Row]:
    for batch in batches:
        if batch.readings is None:
            continue
        for row in batch.readings.iter_rows(named=True):
            named = {k: v for k, v in row.items() if k not in KEY_SCHEMA and v is not None}
            yield row["step"], dict(sorted(named.items()))
