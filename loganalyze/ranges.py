"""One large text log in line-aligned ranges of bytes, each read by its own worker.

A reader remembers what came before (the last step, an open record), so a worker cannot begin just
anywhere. It begins with what was known after the log's head, reads a run-up before its range, and
throws that away. Where the state in which it then begins is the one in which the range before
ended, its reading is that of a single reader, by induction from the first range. Where it is not,
the range is read again from the true state. What cannot be put together exactly is read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from loganalyze_parsers import TEXT, head_of, parser_for, text_log
from loganalyze_parsers.blocks import BLOCK_BYTES, MAX_LINE_BYTES, Block, compression, read_blocks
from loganalyze_parsers.textlog import TextLog
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.engine import Engine
from loganalyze.inputs import rank_of
from loganalyze.model import Account, Event, Problem
from loganalyze.parser_state import compared, restored, saved
from loganalyze.parts import Parts
from loganalyze.plain_data import read, told
from loganalyze.reading import total_of
from loganalyze.scratch import rows_written, written
from loganalyze.spill import mapped_file

#: Bytes of a range and of the run-up before it.
RANGE_BYTES, RUN_UP_BYTES = 64 << 20, 2 << 20
_SAMPLES = 20
_MOST_NAMES = 512  # names of numbers up to which none is left out (frames.Names)


class Range(Struct, frozen=True, kw_only=True):
    """Bytes [start, end) of a log, of whole lines; `line` is the number of the first one.

    state: of the reader at `begin`, where the run-up begins (`begin_line`); `begin` is `start`
    where the state is the true one.
    """

    path: Path
    start: int
    end: int
    line: int
    begin: int
    begin_line: int
    folder: Path
    state: bytes | None = None
    last: bool = False

    def __str__(self) -> str:
        """As an error names it."""
        return f"{self.path}, bytes {self.start} to {self.end}"


class RangeRead(Struct, frozen=True, kw_only=True):
    """What a range gave. made: of each batch its rows, and what each dialect made in it.

    before, after: states to be compared; state: to go on from. None where there is none.
    """

    rows: str
    events: tuple[Event, ...]
    problems: tuple[Problem, ...]
    account: Account
    made: tuple[tuple[int, dict[str, int]], ...]
    names: frozenset[str]
    odd: bool  # names or lines were left out
    before: bytes | None
    after: bytes | None
    state: bytes | None


def worth_ranges(path: Path, size: int) -> bool:
    """Whether a file is a plain text log of several ranges."""
    if size < 2 * RANGE_BYTES:
        return False
    try:
        with path.open("rb") as file:
            packed = compression(file.read(6))
        return not packed and parser_for(head_of(path)) is TEXT
    except OSError:
        return False


def read_in_ranges(
    path: Path, engine: Engine[Any, Any], folder: Path
) -> tuple[Parts, Account] | None:
    """The parts of a log and its account; None where it must be read whole. Raises ShardFailed."""
    ranges = _ranges(path, engine, folder)
    if len(ranges) < 2 or any(one.state is None for one in ranges[1:]):
        return None
    kept: list[RangeRead] = []
    found = {index: _load(folder, str(name)) for index, name in engine(read_range, ranges)}
    for index, one in enumerate(ranges):
        mine = found[index]
        if index and (mine.before is None or mine.before != kept[-1].after):
            if kept[-1].state is None:
                return None
            true = replace(one, begin=one.start, begin_line=one.line, state=kept[-1].state)
            ((_, name),) = engine(read_range, [true])
            mine = _load(folder, str(name))
        kept.append(mine)
    return _together(kept, folder)


def _load(folder: Path, name: str) -> RangeRead:
    made = read((folder / name).read_bytes())
    assert isinstance(made, RangeRead)
    return made


def _together(every: Sequence[RangeRead], folder: Path) -> tuple[Parts, Account] | None:
    """None where a single reader would have left out other names or shown other unknown lines."""
    shown = len(every[0].account.unknown_samples)
    late = any(one.account.unknown_samples for one in every[1:])
    names = frozenset().union(*(one.names for one in every))
    if any(one.odd for one in every) or len(names) > _MOST_NAMES or (late and shown < _SAMPLES):
        return None
    parts, total = Parts(), Counter[str]()
    for one in every:
        parts.extend(
            Parts(
                frames=[mapped_file(folder / one.rows)] if one.rows else [],
                events=list(one.events),
                problems=list(one.problems),
            )
        )
        for rows, made in one.made:
            total.update(made)
            if rows:
                parts.frameworks[total.most_common(1)[0][0] if total else ""] += rows
    return parts, total_of([one.account for one in every])


# -- where the ranges lie --------------------------------------------------------------------


def _ranges(path: Path, engine: Engine[Any, Any], folder: Path) -> list[Range]:
    """The ranges, each with the state after the log's head and its run-up."""
    size = path.stat().st_size
    with path.open("rb") as file:
        borders = {_after_line(file, at) for at in range(RANGE_BYTES, size, RANGE_BYTES)}
        starts = [0, *sorted(at for at in borders if 0 < at < size)]
        begins = [0, *(_after_line(file, max(at - RUN_UP_BYTES, 0)) for at in starts[1:])]
        state = _state_after_head(file)
    stretches = [
        _Stretch(path=path, first=first, end=end)
        for start, begin, following in zip(
            starts, [*begins[1:], size], [*starts[1:], size], strict=True
        )
        for first, end in ((start, max(begin, start)), (max(begin, start), following))
    ]
    counts = dict(engine(count_lines, stretches))
    ranges, line = [], 1
    begin_line = 1
    for index, start in enumerate(starts):
        end = starts[index + 1] if index + 1 < len(starts) else size
        ranges.append(Range(
            path=path, start=start, end=end, line=line, begin=begins[index], begin_line=begin_line,
            folder=folder, state=state if index else None, last=end == size,
        ))  # fmt: skip
        begin_line = line + int(counts[2 * index])
        line = begin_line + int(counts[2 * index + 1])
    return ranges


def _after_line(file: Any, at: int) -> int:
    """Where the first line that starts at or behind a byte starts."""
    if at == 0:
        return 0
    file.seek(at - 1)
    found = file.read(MAX_LINE_BYTES).find(b"\n")
    return at + found if found >= 0 else -1


def _state_after_head(file: Any) -> bytes | None:
    file.seek(0)
    log = text_log(0)
    for block in read_blocks(file, redraws=True):
        log.feed(block)
        return saved(log)
    return None


class _Stretch(Struct, frozen=True, kw_only=True):
    path: Path
    first: int
    end: int


def count_lines(stretch: _Stretch) -> int:
    """Newlines in a stretch of a file."""
    count, left = 0, stretch.end - stretch.first
    with stretch.path.open("rb", buffering=0) as file:
        file.seek(stretch.first)
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            count, left = count + data.count(b"\n"), left - len(data)
    return count


# -- the work of an engine -------------------------------------------------------------------


def read_range(one: Range) -> str:
    """Read a range; the name of the file in its folder that holds what it gave."""
    log = text_log(0) if one.state is None else restored(one.state)
    assert log is not None
    cut: list[int] = []
    for block in _blocks(one.path, one.begin, one.start, one.begin_line, cut):
        log.feed(block)
    before = compared(log)
    parts, accounts, made = Parts(), list[Account](), list[tuple[int, dict[str, int]]]()
    rank = rank_of(one.path)
    for batch, counts in _batches(log, one, cut):
        parts.add(batch, rank)
        accounts.append(batch.account)
        made.append((0 if batch.readings is None else len(batch.readings), counts))
    name = rows_written(pl.concat(parts.frames, how="diagonal"), one.folder) if parts.frames else ""
    return written(told(RangeRead(
        rows=name, events=tuple(parts.events), problems=tuple(parts.problems),
        account=total_of(accounts), made=tuple(made), names=frozenset(log.names._taken),
        odd=bool(cut or log.names.left_out), before=before, after=compared(log), state=saved(log),
    )), one.folder, ".read")  # fmt: skip


def _batches(log: TextLog, one: Range, cut: list[int]) -> Iterator[tuple[Any, dict[str, int]]]:
    """Each batch of the range, with the rows that each dialect made in it."""
    for block in _blocks(one.path, one.start, one.end, one.line, cut):
        yield _counted(log, lambda block=block: log.feed(block))
    if one.last:
        yield _counted(log, log.finish)


def _counted(log: TextLog, work: Any) -> tuple[Any, dict[str, int]]:
    known = Counter(log._made)
    batch = work()
    return batch, dict(log._made - known)


def _blocks(path: Path, first: int, end: int, line: int, cut: list[int]) -> Iterator[Block]:
    """Blocks of [first, end), their offsets and lines those of the whole file."""
    if first >= end:
        return
    with path.open("rb") as file:
        file.seek(first)
        until: Any = _Until(file, end - first)
        for one in read_blocks(until, BLOCK_BYTES, cut, redraws=True):
            offset, number = one.offset + first, one.first_line + line - 1
            yield Block(one.data, offset, number, goes_on=one.goes_on)


class _Until:
    """A stream that ends after so many bytes."""

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data
