"""The Megatron training line: `iteration N/ TOTAL | key: value | ... |`.

Every variant is read by one rule: split on `|`, then on the last `: `; the key set is open.
Fragments of several ranks may stand on one line, and one record may be wrapped over several rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from loganalyze import lazy
from loganalyze.model import LineRef, Reading
from loganalyze_parsers.api import Line
from loganalyze_parsers.megatron_fields import (
    field_values,
    loss_left_out,
    mended,
    named_field,
    names_loss,
)
from loganalyze_parsers.numbers import NUMBER

START = lazy.pattern(
    r"(?:samples/sec: *[\d.]+ *\| *)?\biteration +(\d+) */ *(?:\d+|infinity)(?: *\||(?= *$))"
)
_CONTINUES = lazy.pattern(
    r"^(?!time |times |\(min|max time|WARNING|INFO)[\w ().,:/%+-]{1,200}(?:\||$)"
)
#: A time with its unit, and the next key.
_INNER = lazy.pattern(rf"({NUMBER} m?s) +(\S.*)$")
#: v1 and older print `learning rate 1.0E-05` without a colon.
_OLD_FIELD = lazy.pattern(r"^(.*\S)\s{1,99}([-+]?(?:[\d.]{1,99}(?:[eE][-+]?\d+)?|nan|NAN|inf))$")


class OpenRecord(Struct):
    """A record whose row has not ended with `|` yet."""

    text: str
    ref: LineRef
    rank: int | None
    wall_s: float | None

    def extended(self, line: Line) -> OpenRecord:
        """With one more row; its reference spans both."""
        end = line.ref.offset + line.ref.length
        ref = LineRef(
            source=self.ref.source,
            line=self.ref.line,
            offset=self.ref.offset,
            length=end - self.ref.offset,
        )
        return OpenRecord(self.text + line.text, ref, self.rank, self.wall_s)


def records_on(line: Line) -> list[OpenRecord]:
    """The training records that begin on a line: none, one, or several glued together."""
    starts = [match.start() for match in START.finditer(line.text)]
    ends = [*starts[1:], len(line.text)] if starts else []
    return [
        OpenRecord(_closed(line.text[a:b].rstrip()), line.ref, line.rank, line.wall_s)
        for a, b in zip(starts, ends, strict=True)
    ]


def _closed(text: str) -> str:
    """With the bar behind the last field that two forks leave out.

    >>> _closed("tgs: 353.0 time (ms)"), _closed("speed 2.5 samples/(min*GPU)"), _closed("lm lo")
    ('tgs: 353.0 |', 'speed 2.5 samples/(min*GPU) |', 'lm lo')
    """
    if text.endswith(" time (ms)"):
        return text.removesuffix("time (ms)") + "|"
    return f"{text} |" if text.endswith("samples/(min*GPU)") else text


def is_complete(record: OpenRecord) -> bool:
    """Whether the row ends as Megatron ends it."""
    return record.text.endswith("|")


def continues(line: Line) -> bool:
    """Whether a row may be the rest of a wrapped record (never the start of another one)."""
    if START.search(line.text) is not None or not ("|" in line.text or ":" in line.text):
        return False
    return _CONTINUES.match(line.text) is not None


def reading_of(record: OpenRecord, interval: int | None) -> Reading | None:
    """The numbers of a record; None where not one number is whole.

    interval: steps since the record before, for telling a skipped interval from a NaN loss.
    A field that is not closed by `|` may be cut inside its number, so it is left out.
    """
    match = START.search(record.text)
    if match is None:
        return None
    values: dict[str, float] = {}
    if record.text.startswith("samples/sec"):
        values.update(field_values("samples/sec", record.text.split(":", 1)[1]))
    fields = record.text[match.end() :].split("|")
    for key, text in (pair for field in fields[:-1] for pair in _pairs(field)):
        for name, value in field_values(key, text):
            values[f"raw/{key}" if name in values else name] = value
    if not values:
        return None
    values = mended(values)
    if loss_left_out(values, interval) and not _prints_loss(fields):
        values["loss"] = math.nan
    return Reading(
        step=int(match[1]), ref=record.ref, values=values, rank=record.rank, wall_s=record.wall_s
    )


def _prints_loss(fields: Sequence[str]) -> bool:
    """Whether a loss is printed, be it one that cannot be read or whose name is damaged.

    Behind the last `|` another rank's prefix may stand: only a whole name counts there.
    """
    *closed, last = (_split(field)[0] for field in fields)
    return any(map(names_loss, closed)) or named_field(last)[0] == "loss"


def _pairs(field: str) -> list[tuple[str, str]]:
    """Key and value of a field: one pair, but for forks that put two between two bars.

    >>> _pairs(" iteration time: 2.5 s samples/sec: 3.8 ")
    [('iteration time', '2.5 s'), ('samples/sec', '3.8 ')]
    """
    key, text = _split(field)
    name, colon, rest = key.partition(": ")
    inner = _INNER.match(rest) if colon else None
    return [(key, text)] if inner is None else [(name, inner[1]), (inner[2], text)]


def _split(field: str) -> tuple[str, str]:
    key, colon, value = field.rpartition(": ")
    if colon:
        return key.strip(), value
    key, colon, value = field.rpartition(":")
    if colon:
        return key.strip(), value
    old = _OLD_FIELD.match(field.strip())
    return (old[1], old[2]) if old else (field.strip(), "")
