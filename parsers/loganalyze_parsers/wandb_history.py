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
from collections.abc import Iterator, Mapping

from loganalyze_parsers.protobuf import Value, WireError, double, fields, signed, varint, zigzag

_ITEM, _KEY, _NESTED = 0x0A, 0x0A, 0x12
_VALUE_JSON = b"\x82\x01"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class History:
    """Columns that grow row by row: per key the rows that have it and their numbers."""

    def __init__(self) -> None:
        self.line = array("q")
        self.offset = array("q")
        self.length = array("q")
        self._columns: dict[bytes, tuple[array[int], array[float]]] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.line)

    def columns(self) -> dict[str, tuple[array[int], array[float]]]:
        """Key to (rows, values); a row may come twice, the last one counts."""
        named = {key.decode("utf-8", "replace"): pair for key, pair in self._columns.items()}
        return dict(sorted(named.items()))

    def add(self, body: bytes, line: int, offset: int, length: int) -> None:
        """One HistoryRecord. Raises WireError where it is damaged."""
        row = len(self.line)
        self.line.append(line)
        self.offset.append(offset)
        self.length.append(length)
        at, end = 0, len(body)
        columns = self._columns
        try:
            while at < end:
                size = body[at + 1]
                if body[at] != _ITEM or size >= 0x80:
                    at = self._other(body, at, row)
                    continue
                start = at + 2
                stop = start + size
                middle = start + 2 + body[start + 1]
                if (
                    (body[start] == _NESTED or body[start] == _KEY)
                    and body[middle : middle + 2] == _VALUE_JSON
                    and middle + 3 + body[middle + 2] == stop
                ):
                    key = body[start + 2 : middle]
                    value = body[middle + 3 : stop]
                    try:
                        self._put(columns, key, row, float(value))
                    except ValueError:
                        self._json(key, value, row)
                else:
                    self._item(body[start:stop], row)
                at = stop
        except IndexError as error:
            raise WireError("a history row breaks off") from error

    @staticmethod
    def _put(
        columns: dict[bytes, tuple[array[int], array[float]]], key: bytes, row: int, value: float
    ) -> None:
        pair = columns.get(key)
        if pair is None:
            pair = columns[key] = (array("q"), array("d"))
        pair[0].append(row)
        pair[1].append(value)

    def _other(self, body: bytes, at: int, row: int) -> int:
        """A long item, the step of the record, or a field nobody needs; the place behind it."""
        tag, at = varint(body, at)
        if tag & 7 != 2:
            raise WireError("unexpected field in a history row")
        size, at = varint(body, at)
        part = body[at : at + size]
        if len(part) < size:
            raise WireError("a history row breaks off")
        if tag == _ITEM:
            self._item(part, row)
        elif tag >> 3 == 2:
            for number, value in fields(part):
                if number == 1 and isinstance(value, int):
                    self._put(self._columns, b"_step", row, float(signed(value)))
        return at + size

    def _item(self, item: bytes, row: int) -> None:
        key, number, text = item_of(item)
        if number is not None:
            self._put(self._columns, key, row, number)
        elif text is not None:
            self._json(key, text, row)

    def _json(self, key: bytes, text: bytes, row: int) -> None:
        for name, value in numbers_of(key, text):
            self._put(self._columns, name, row, value)


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
