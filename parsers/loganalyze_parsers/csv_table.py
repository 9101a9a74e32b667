"""CSV files in blocks of lines: cells as text, and the line and bytes of every row.

Commas, semicolons or tabs; quotes as RFC 4180 has them, line breaks inside quotes included. A row
cut off at the end of the file or with more cells than the header has (a decimal comma: which cell
is which?), and a header written again in its middle, are no rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.api import Head
from loganalyze_parsers.blocks import Block, line_bounds, open_bytes, read_blocks

IntArray = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_QUOTE = ord('"')
_BOM = b"\xef\xbb\xbf"
_SEPARATORS = (",", "\t", ";")
_MOST_COLUMNS = 20_000
_MOMENT = lazy.pattern(r"\s{0,99}\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_BEYOND = "\0beyond"  # the column of what a row has beyond the header


class Header(Struct, frozen=True):
    """Names of the columns (made unique), the separator, and the bytes of the header line."""

    names: tuple[str, ...]
    separator: str
    raw: bytes


class Cells(Struct, frozen=True, kw_only=True):
    """Rows of one block: text by column (null or empty where a cell is), and where they stand.

    lines counts all lines of the block; headers and unknown those that are no rows.
    """

    frame: pl.DataFrame
    line: IntArray
    offset: IntArray
    length: IntArray
    lines: int
    headers: int
    unknown: int
    torn: bool


def header_of(data: bytes) -> Header | None:
    """The header of a table; None where the first line is no list of at least two names."""
    raw = data.removeprefix(_BOM).split(b"\n", 1)[0].rstrip(b"\r")
    if not raw or b"\x00" in raw or raw[:1] in b"{[<":
        return None
    separator = max(_SEPARATORS, key=raw.decode("utf-8", "replace").count)
    names = cells_of(raw, separator) or []
    if not 2 <= len(names) <= _MOST_COLUMNS or all(_is_number(name) for name in names):
        return None
    if _MOMENT.match(names[0]) is not None:  # a logger's line, whose time has a decimal comma
        return None
    return Header(_unique([name.strip() for name in names]), separator, raw)


def sniffed_header(head: Head) -> Header | None:
    """The header of an input that looks like a table: its second line has as many cells."""
    header = header_of(head.data)
    if header is None:
        return None
    lines = head.data.split(b"\n", 2)
    if len(lines) < 3:
        return header
    cells = cells_of(lines[1], header.separator)
    if cells is None:
        return None
    return header if len(cells) == len(header.names) or b'"' in lines[1] else None


def cells_of(line: bytes, separator: str) -> list[str] | None:
    """The cells of one line; None where there are none, or where it is no line of a table."""
    text = line.rstrip(b"\r").decode("utf-8", "replace")
    try:
        return next(csv.reader([text], delimiter=separator))
    except (csv.Error, StopIteration):
        return None


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _unique(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(made)


def read_cells(path: Path, header: Header, *, numeric: bool = False) -> Iterator[Cells]:
    """All blocks of a table. Raises OSError, EOFError or ValueError where the input breaks.

    numeric: whether columns of nothing but numbers may come as Float64 at once; they have the
    values that numbers() gives, blocks with anything else come as text.
    """
    plain = frozenset(header.names) if numeric else frozenset()
    with open_bytes(path) as stream:
        for block in read_blocks(stream):
            cells = _cells(block, header, plain)
            yield cells
            if plain:
                plain -= _texts(cells.frame.select(pl.col(pl.String)))


def _texts(frame: pl.DataFrame) -> frozenset[str]:
    """Columns of text in which something is that is no number."""
    texts = frame.select(pl.all().filter(_odd(pl.all())).len())
    return frozenset(name for name in texts.columns if texts[name][0])


def _odd(cells: pl.Expr) -> pl.Expr:
    return cells.str.strip_chars().ne("") & numbers(cells).is_null()


def _cells(block: Block, header: Header, plain: frozenset[str]) -> Cells:
    starts, ends = line_bounds(block.data)
    if _breaks_inside_quotes(block.data, starts):
        return _slow(block, header)
    data = np.frombuffer(block.data, dtype=np.uint8)
    last = np.maximum(ends - 1, starts)
    carriage = (ends > starts) & (data[np.minimum(last, len(data) - 1)] == 13)
    size = ends - starts - carriage
    again = _headers(block, header, starts, size)
    used = np.flatnonzero((size > 0) & ~again)
    text = block.data
    if len(used) < len(starts):
        text = b"\n".join(block.data[starts[i] : starts[i] + size[i]] for i in used)
    frame = _parsed(text, header, len(used), plain) if plain else None
    frame = _parsed(text, header, len(used)) if frame is None else frame
    if frame is None:
        return _slow(block, header)
    torn = False
    if len(used) and not block.data.endswith(b"\n"):
        torn = _is_torn(block.data[starts[used[-1]] :], header)
    if torn:
        used, frame = used[:-1], frame[:-1]
    rows = used[: len(frame)]
    whole = ~_has_more(frame) & ~_ends_beyond(data, starts[rows], size[rows], header)
    rows = rows[whole]
    return Cells(
        frame=frame.filter(pl.Series(whole)).drop(_BEYOND),
        line=rows + block.first_line,
        offset=starts[rows] + block.offset,
        length=size[rows],
        lines=len(starts),
        headers=int(again.sum()),
        unknown=len(starts) - len(rows) - int(again.sum()) - int((size == 0).sum()),
        torn=torn,
    )


def _headers(
    block: Block, header: Header, starts: IntArray, size: IntArray
) -> npt.NDArray[np.bool_]:
    """Lines that repeat the header (written again by a restarted process)."""
    again = np.zeros(len(starts), dtype=np.bool_)
    if block.offset == 0 and len(again):
        again[0] = True
    for i in np.flatnonzero(size == len(header.raw)):
        start = starts[i]
        again[i] |= block.data[start : start + size[i]] == header.raw
    return again


def _breaks_inside_quotes(data: bytes, starts: IntArray) -> bool:
    """Whether some line has an odd number of quotes."""
    if b'"' not in data:
        return False
    quotes = (np.frombuffer(data, dtype=np.uint8) == _QUOTE).astype(np.int32)
    return bool((np.add.reduceat(quotes, starts) % 2).any())


def _parsed(
    text: bytes, header: Header, rows: int, plain: frozenset[str] = frozenset()
) -> pl.DataFrame | None:
    """Cells as text, of plain columns as numbers, and those beyond the header.

    None where they are not one row a line.
    """
    names = [*header.names, _BEYOND]
    if not rows:
        return _frame_of([], names)
    # A head of our own says how many columns there are, whatever the first row has.
    head = header.separator.join(f"c{at}" for at in range(len(names))).encode() + b"\n"
    try:
        frame = pl.read_csv(
            io.BytesIO(head + text),
            separator=header.separator,
            infer_schema=False,
            schema_overrides={
                f"c{at}": pl.Float64() for at, name in enumerate(names) if name in plain
            },
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
    except pl.exceptions.PolarsError:
        return None
    frame.columns = names
    return frame if len(frame) == rows else None


def _has_more(frame: pl.DataFrame) -> Bools:
    """Rows with more cells than the header: 4,03 is two cells, and moves all behind it."""
    return (frame.to_series(-1).fill_null("") != "").to_numpy()


def _ends_beyond(
    data: npt.NDArray[np.uint8], starts: IntArray, size: IntArray, header: Header
) -> Bools:
    """Rows whose cells beyond the header are empty; not known where there are quotes."""
    separator, beyond = ord(header.separator), np.zeros(len(starts), dtype=np.bool_)
    likely = np.flatnonzero((size > 0) & (data[starts + np.maximum(size, 1) - 1] == separator))
    if len(likely) and not (data == _QUOTE).any():
        places = np.flatnonzero(data == separator)
        before = np.searchsorted(places, starts[likely])
        count = np.searchsorted(places, starts[likely] + size[likely]) - before
        beyond[likely] = count >= len(header.names)
    return beyond


def _is_torn(line: bytes, header: Header) -> bool:
    """Whether a last line, without its line break, has fewer cells than the header."""
    return line.count(header.separator.encode()) < len(header.names) - 1


def _slow(block: Block, header: Header) -> Cells:
    """Row by row, for quoted cells that hold line breaks; such a row stands at its first line."""
    starts, ends = line_bounds(block.data)
    lines = (
        block.data[start:end].decode("utf-8", "replace").replace("\r", "") + "\n"
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    reader = csv.reader(lines, delimiter=header.separator)
    rows: list[list[str | None]] = []
    places: list[tuple[int, int]] = []
    before = headers = blank = 0
    width = len(header.names)
    try:
        for cells in reader:
            first, before = before, reader.line_num
            if (first == 0 and block.offset == 0) or tuple(cells) == header.names:
                headers += before - first
            elif not any(cells):
                blank += before - first
            elif len(cells) <= width:
                rows.append([*cells[:width], *[None] * (width - len(cells))])
                places.append((first, before))
    except csv.Error:
        pass
    at = np.array(places, dtype=np.int64).reshape(-1, 2)
    last = np.maximum(at[:, 1] - 1, 0)
    covered = int((at[:, 1] - at[:, 0]).sum())
    return Cells(
        frame=_frame_of(rows, header.names),
        line=at[:, 0] + block.first_line,
        offset=starts[at[:, 0]] + block.offset,
        length=ends[last] - starts[at[:, 0]],
        lines=len(starts) - (covered - len(rows)),
        headers=headers,
        unknown=len(starts) - covered - headers - blank,
        torn=False,
    )


def _frame_of(rows: Sequence[Sequence[str | None]], names: Sequence[str]) -> pl.DataFrame:
    """Rows of text under these names; a column without one would be given one by polars."""
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String()), orient="row")
    frame.columns = list(names)
    return frame


Text = TypeVar("Text", pl.Series, pl.Expr)


def numbers(cells: Text) -> Text:
    """Float64 of a column of text (or its expression); null where a cell is empty or no number.

    >>> numbers(pl.Series(["1e-3", " 2 ", "", "NaN", "-Infinity", "true"])).to_list()
    [0.001, 2.0, None, nan, -inf, None]
    """
    return cells.str.strip_chars().cast(pl.Float64, strict=False)
