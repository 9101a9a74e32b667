"""History rows of a `.wandb` log: one row a log() call, values as JSON text or typed fields.

HistoryRecord { repeated HistoryItem item = 1; HistoryStep step = 2 }
HistoryItem   { key 1 | repeated nested_key 2; value_json 16, or one of none 3, boolean 4,
                integer 5 (sint64), number 6 (double), text 7, json 8 }

JSON text may be a bare NaN, Infinity or -Infinity. Items come in any order. wandb-core writes a
nested_key even for flat keys; several parts are joined with `.`, as W&B's exports do.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from loganalyze_parsers.protobuf import Value, WireError, double, fields, signed, zigzag
from loganalyze_parsers.wandb_bulk import decode

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Pairs = tuple[IntArray, FloatArray]

_PENDING_BYTES = 8 * 1024 * 1024
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class History:
    """Columns that grow row by row: per key the rows that have it and their numbers.

    Rows are decoded some megabytes at a time. damaged: offsets of records that could not be.
    """

    def __init__(self) -> None:
        self.line = array("q")
        self.offset = array("q")
        self.length = array("q")
        self.damaged: list[int] = []
        self._pending: list[bytes] = []
        self._bytes = 0
        self._columns: dict[bytes, list[Pairs]] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.line)

    def add(self, body: bytes, line: int, offset: int, length: int) -> None:
        """One HistoryRecord."""
        self.line.append(line)
        self.offset.append(offset)
        self.length.append(length)
        self._pending.append(body)
        self._bytes += len(body)
        if self._bytes > _PENDING_BYTES:
            self._decode()

    def columns(self) -> dict[str, Pairs]:
        """Key to (rows, values); a row may come twice, the last one counts."""
        self._decode()
        named: dict[str, list[Pairs]] = {}
        for key, parts in self._columns.items():
            named.setdefault(key.decode("utf-8", "replace"), []).extend(parts)
        return {
            name: (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
            for name, parts in sorted(named.items())
        }

    def _decode(self) -> None:
        """Decode what is pending: the usual rows together, the others one by one."""
        if not self._pending:
            return
        first = len(self.line) - len(self._pending)
        items = decode(self._pending)
        counted = np.flatnonzero(items.has_step)
        self._append(b"_step", counted + first, items.step[counted].astype(np.float64))
        order = np.argsort(items.key, kind="stable")
        edges = np.searchsorted(items.key[order], np.arange(len(items.keys) + 1))
        for at, key in enumerate(items.keys):
            mine = order[edges[at] : edges[at + 1]]
            plain = mine[~items.is_text[mine]]
            self._append(key, items.row[plain] + first, items.value[plain])
            for item in mine[items.is_text[mine]].tolist():
                start = int(items.at[item])
                text = items.data[start : start + int(items.size[item])]
                self._put_all(numbers_of(key, text), int(items.row[item]) + first)
        for row in np.flatnonzero(items.odd).tolist():
            self._slow(self._pending[row], row + first)
        self._pending, self._bytes = [], 0

    def _append(self, key: bytes, rows: IntArray, values: FloatArray) -> None:
        if len(rows):
            self._columns.setdefault(key, []).append((rows, values))

    def _put_all(self, found: Iterable[tuple[bytes, float]], row: int) -> None:
        for key, value in found:
            self._append(key, np.array([row]), np.array([value]))

    def _slow(self, body: bytes, row: int) -> None:
        try:
            self._put_all(list(row_numbers(body)), row)
        except WireError:
            self.damaged.append(self.offset[row])


def row_numbers(body: bytes) -> Iterator[tuple[bytes, float]]:
    """Keys and numbers of one HistoryRecord, field by field. Raises WireError where it is torn."""
    for number, value in fields(body):
        if number == 2 and isinstance(value, bytes):
            found = dict(fields(value)).get(1, 0)
            yield b"_step", float(signed(found)) if isinstance(found, int) else 0.0
        elif number == 1 and isinstance(value, bytes):
            key, plain, text = item_of(value)
            if plain is not None:
                yield key, plain
            elif text is not None:
                yield from numbers_of(key, text)


def item_of(item: bytes) -> tuple[bytes, float | None, bytes | None]:
    """Key, number (of a typed field) and JSON text of a history, config or summary item."""
    keys: list[bytes] = []
    number: float | None = None
    text: bytes | None = None
    for field, value in fields(item):
        if field in (1, 2) and isinstance(value, bytes):
            keys.append(value)
        elif field in (8, 16) and isinstance(value, bytes):
            text = value
        elif field == 7 and isinstance(value, bytes):
            text = json.dumps(value.decode("utf-8", "replace")).encode()
        elif field in (5, 6):
            number = _typed(field, value)
    return b".".join(keys), number, text


def _typed(field: int, value: Value) -> float | None:
    if field == 5:
        return float(zigzag(value)) if isinstance(value, int) else None
    return double(value)


def numbers_of(key: bytes, text: bytes) -> Iterator[tuple[bytes, float]]:
    """Numbers in a JSON value: itself, a non-finite word in quotes, or those of an object.

    >>> list(numbers_of(b"a", b'{"b": {"c": 2}, "d": true}')), list(numbers_of(b"x", b'"NaN"'))
    ([(b'a.b.c', 2.0)], [(b'x', nan)])
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from flat_numbers(key, value)


def flat_numbers(key: bytes, value: object) -> Iterator[tuple[bytes, float]]:
    """Numbers of a decoded JSON value, with dotted keys; media and histograms have none."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield key, _as_float(value)
    elif isinstance(value, str):
        if value in _WORDS:
            yield key, _WORDS[value]
    elif isinstance(value, Mapping) and "_type" not in value:
        for name, inner in value.items():
            yield from flat_numbers(key + b"." + str(name).encode("utf-8", "replace"), inner)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
