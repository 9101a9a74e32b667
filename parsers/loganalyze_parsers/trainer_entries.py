"""The entries of a log_history as json.dump writes them, read by templates.

Entries are flat objects with the same white space between them. Where that ends (a nested value,
a brace in a text, the end of a torn file) the caller goes on with the JSON decoder.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze_parsers.digits import Ints
from loganalyze_parsers.frames import KEY_SCHEMA, masked_column
from loganalyze_parsers.huggingface_keys import column_of, plain_key
from loganalyze_parsers.json_rows import MOST_SHAPES, lesson_of
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Found, Lesson, Text
from loganalyze_parsers.spans import Floats
from loganalyze_parsers.template_reader import TemplateReader

#: Keys of an entry that is a summary of the run, and keys that the decoder's side must look at.
_SUMMARY = frozenset({"train_runtime", "total_flos"})
_STEP = "step"
_MOST_STEP = 2**53
#: Entries below this number are not worth it.
_LEAST = 64


class Entries(Struct, frozen=True):
    """Bounds of entries in a row, those read, and where the entry after them begins (bytes)."""

    starts: Ints
    ends: Ints
    found: tuple[Found, ...]
    next: int

    @property
    def rest(self) -> Ints:
        """Indices of the entries that were not read."""
        left = np.ones(len(self.starts), dtype=bool)
        for one in self.found:
            left[one.lines] = False
        rest: Ints = np.flatnonzero(left)
        return rest

    def losses(self) -> Floats:
        """The loss of each entry; NaN where it was not read or says none."""
        made = np.full(len(self.starts), np.nan)
        for lesson, lines, values in (part for one in self.found for part in one.apart()):
            names = [slot.name for slot in lesson.slots]
            if "loss" in names:
                made[lines] = values[names.index("loss")]
        return made


def entries_of(data: bytes, start: int) -> Entries | None:
    """Entries of the list whose `[` is at data[start], as far as they are alike; None if few."""
    view = np.frombuffer(data, dtype=np.uint8)[start:]
    opens = np.flatnonzero(view == ord("{")) + start
    closes = np.flatnonzero(view == ord("}")) + start
    count = min(len(opens), len(closes))
    starts, ends = opens[:count], closes[:count] + 1
    if count < _LEAST:
        return None
    # Each closes before the next opens, and what lies between is always the same.
    between = data[int(ends[0]) : int(starts[1])]
    alike = (starts[:-1] < ends[:-1]) & (starts[1:] - ends[:-1] == len(between))
    for place, byte in enumerate(between):
        alike &= view[np.minimum(ends[:-1] - start + place, len(view) - 1)] == byte
    count = len(alike) if alike.all() else int(np.argmin(alike))
    if count < _LEAST or between.strip() != b"," or data[start + 1 : int(starts[0])].strip():
        return None
    behind = int(starts[count])  # an entry that is left to the decoder, as is the end
    starts, ends = starts[:count], ends[:count]
    text = Text(data, starts, ends)
    reader = TemplateReader(lambda raw: True, _lesson, MOST_SHAPES)
    return Entries(starts, ends, tuple(reader.read(text, np.arange(count))), behind)


def _lesson(raw: bytes) -> Lesson | None:
    lesson = lesson_of(raw, _column, texts=False)
    names = set() if lesson is None else {slot.name for slot in lesson.slots}
    return lesson if _STEP in names and len(names) > 1 else None


def _column(key: str) -> tuple[str, float] | None:
    key = plain_key(key)
    if key in _SUMMARY:
        return None
    return (_STEP, 1.0) if key == _STEP else column_of(key)


def entries_frame(entries: Entries, lines: Ints, source: int) -> pl.DataFrame | None:
    """The frame of the entries read, in order. lines: number of the first line of each entry."""
    if not entries.found:
        return None
    rows = Rows(entries.found)
    at = rows.lines
    step = rows.column(_STEP)
    known = (np.abs(step) < _MOST_STEP) & (step == np.trunc(step))
    columns = {
        "step": masked_column(np.where(known, step, 0.0), ~known).cast(pl.Int64),
        "source": pl.Series(np.full(len(at), source, dtype=np.int32)),
        "line": pl.Series(lines[at]),
        "offset": pl.Series(entries.starts[at]),
        "length": pl.Series((entries.ends - entries.starts)[at]),
    }
    metrics = {name: rows.series(name) for name in rows.names if name != _STEP}
    frame = pl.DataFrame({**columns, **metrics})
    missing = [name for name in KEY_SCHEMA if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    kept = (pl.col(name).cast(kind) for name, kind in KEY_SCHEMA.items())
    return frame.select(*kept, *metrics)
