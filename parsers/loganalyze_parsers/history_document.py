"""Histories as one JSON document: the two ways in which pandas writes a table, and plain lists.

    [{"_step": 0, "loss": 2.1}, {"_step": 1, "loss": 2.0}, ...]
    {"_step": {"0": 0, "1": 1}, "loss": {"0": 2.1, "1": 2.0}}
    {"step": [10, 20], "loss": [2.1, 2.0]}          {"loss": [2.1, 2.0], "val_loss": [2.3, 2.2]}

Objects of a list are cited where they stand; a table by columns has no rows in the file, its rows
are cited by number. Lists without a step are counted from 1, as Keras and home-made loops keep an
entry an epoch; a list of another length than the most is told and left out.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = '[{"_step": 10, "loss": 2.5}, {"_step": 20, "loss": 2.25}]'
>>> step, values = rows_of_file(PARSER, "history.json", line)[-1]
>>> step, values["loss"]
(20, 2.25)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

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
_LISTS = lazy.pattern(rb'\s*\{\s*"[^"]*"\s*:\s*\[\s*(?:-?[\d.]|NaN|null)')
_LIST_NAME = lazy.pattern(rb'"([^"]*)"\s*:\s*\[\s*(?:-?[\d.]|NaN|null)')


def sniff(head: Head) -> float:
    """A list of objects, or an object of numbered columns, with a step and a known metric."""
    data = head.data
    if _COLUMNS.match(data):
        names = [name.decode("utf-8", "replace") for name in _NAME.findall(data)]
        return 0.9 if "_step" in names or (has_axis(names) and knows_any(names)) else 0.0
    if _LISTS.match(data):
        names = [name.decode("utf-8", "replace") for name in _LIST_NAME.findall(data)]
        return 0.6 if knows_any(names) else 0.0
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
    problems: list[Problem] = []
    if text.lstrip().startswith("["):
        grown, covered, torn = _objects(text)
    else:
        columns, problems = _columns_of(text, path)
        grown, covered, torn = _by_column(columns), count_lines(data), False
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


Columns = dict[str, Mapping[object, object]]


def _columns_of(text: str, path: Path) -> tuple[Columns, list[Problem]]:
    """Cells of each column by row: as the document numbers them, or lists of one length."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}, []
    if not isinstance(content, dict):
        return {}, []
    lists = {name: cells for name, cells in content.items() if isinstance(cells, list)}
    columns: Columns = {
        name: cells for name, cells in content.items() if isinstance(cells, Mapping)
    }
    lengths = Counter(len(cells) for cells in lists.values())
    if columns or not lengths:
        return columns, []
    most = max(lengths, key=lambda length: (lengths[length], length))
    kept = {name: cells for name, cells in lists.items() if len(cells) == most}
    columns = {name: dict(enumerate(cells)) for name, cells in kept.items()}
    if not has_axis(list(columns)):
        columns["step"] = {row: row + 1 for row in range(most)}
    return columns, _other_lengths([name for name in lists if name not in kept], most, path)


def _other_lengths(names: list[str], most: int, path: Path) -> list[Problem]:
    if not names:
        return []
    message = (
        f"{path}: {', '.join(names[:5])} have another length than the {most} entries of the other "
        "lists, so their steps are not known; they are left out"
    )
    return [Problem(rule="list_of_another_length", message=message)]


def _by_column(columns: Columns) -> Grown:
    grown = Grown()
    rows = dict.fromkeys(row for cells in columns.values() for row in cells)
    for number, row in enumerate(rows, start=1):
        grown.start(number, number, 0)
        put_all(grown, {name: cells[row] for name, cells in columns.items() if row in cells})
    return grown


PARSER = Parser(name="json_document", sniff=sniff, parse=parse)
