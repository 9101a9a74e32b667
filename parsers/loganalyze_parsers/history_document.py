"""Histories as one JSON document, the two ways in which pandas writes a table.

    [{"_step": 0, "loss": 2.1}, {"_step": 1, "loss": 2.0}, ...]
    {"_step": {"0": 0, "1": 1}, "loss": {"0": 2.1, "1": 2.0}}

Objects of a list are cited where they stand; a table by columns has no rows in the file, its rows
are cited by number.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = '[{"_step": 10, "loss": 2.5}, {"_step": 20, "loss": 2.25}]'
>>> step, values = rows_of_file(PARSER, "history.json", line)[-1]
>>> step, values["loss"]
(20, 2.25)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from loganalyze import lazy
from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.history import has_axis, history_batch, knows_any
from loganalyze_parsers.history_json import put_all
from loganalyze_parsers.history_rows import Grown
from loganalyze_parsers.json_spans import count_lines, list_spans
from loganalyze_parsers.unpack import broken

_COLUMNS = lazy.pattern(rb'\s*\{\s*"[^"]*"\s*:\s*\{\s*"\d+"\s*:')
_NAME = lazy.pattern(rb'"([^"]*)"\s*:\s*\{\s*"\d+"\s*:')


def sniff(head: Head) -> float:
    """A list of objects, or an object of numbered columns, with a step and a known metric."""
    data = head.data
    if _COLUMNS.match(data):
        names = [name.decode("utf-8", "replace") for name in _NAME.findall(data)]
        return 0.9 if "_step" in names or (has_axis(names) and knows_any(names)) else 0.0
    if not data.lstrip().startswith(b"["):
        return 0.0
    text = data.decode("utf-8", "replace")
    first = next(list_spans(text, text.index("[")), None)
    if first is None or not isinstance(first.value, dict):
        return 0.0
    keys = list(first.value)
    return 0.8 if "_step" in keys or (has_axis(keys) and knows_any(keys)) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch; a document that breaks off keeps the rows before the tear (lists only)."""
    try:
        with open_bytes(path) as stream:
            data = stream.read()
    except (OSError, EOFError, ValueError) as error:
        yield Batch(readings=None, problems=(broken(path, error),))
        return
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("["):
        grown, covered, torn = _objects(text)
    else:
        grown, covered, torn = _by_column(text), count_lines(data), False
    problems = []
    if torn or not len(grown):
        message = f"{path}: the JSON breaks off after {len(grown)} rows; they are used"
        problems.append(Problem(rule="input_breaks_off", message=message))
    lines = count_lines(data)
    batch = history_batch(grown.table(lines=lines), path, source)
    yield replace(
        batch,
        problems=(*problems, *batch.problems),
        account=_account(lines, min(covered, lines), torn or not len(grown)),
    )


def _account(lines: int, read: int, torn: bool) -> Account:
    rest = lines - read
    if torn or not rest:
        return Account(lines=lines, read=read, unknown=rest)
    return Account(lines=lines, read=read, ignored={"frame of the JSON": rest})


def _objects(text: str) -> tuple[Grown, int, bool]:
    """Rows, the lines they cover, and whether the list is torn."""
    grown = Grown()
    covered: set[int] = set()
    for span in list_spans(text, text.index("[")):
        if isinstance(span.value, dict):
            grown.start(span.line, span.offset, span.length)
            put_all(grown, span.value)
            covered.update(range(span.line, span.line + span.lines))
    return grown, len(covered), not text.rstrip().endswith("]")


def _by_column(text: str) -> Grown:
    grown = Grown()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return grown
    if not isinstance(content, dict):
        return grown
    columns = {name: cells for name, cells in content.items() if isinstance(cells, Mapping)}
    rows = dict.fromkeys(row for cells in columns.values() for row in cells)
    for number, row in enumerate(rows, start=1):
        grown.start(number, number, 0)
        put_all(grown, {name: cells[row] for name, cells in columns.items() if row in cells})
    return grown


PARSER = Parser(name="json_document", sniff=sniff, parse=parse)
