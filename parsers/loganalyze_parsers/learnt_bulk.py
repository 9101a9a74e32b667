"""The bulk way of lines that no dialect has one for: by templates learnt from its readers.

Only of lines that no other bulk way has, and that their readers read without regard to the lines
before, but for batches that are counted on from epoch to epoch: what such lines tell of their place
becomes steps when their block has its turn. What is read is held against the readers time and again
(the first rows in their context, rows spread over each block, its lowest and highest values); at
the first difference this way is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze_parsers.api import Reader
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import framed, is_a_time, others, text_of
from loganalyze_parsers.digits import Bools, Ints
from loganalyze_parsers.frames import KEY_SCHEMA, masked_column
from loganalyze_parsers.generic_pairs import turns
from loganalyze_parsers.generic_steps import EPOCH, TOTAL, EpochCount
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.learnt_lines import OTHER, TIME, TIME_PARTS, Ask, lesson_of, wall_seconds
from loganalyze_parsers.lessons import Lesson, Text
from loganalyze_parsers.prefixes import clean, peel
from loganalyze_parsers.template_reader import TemplateReader

#: Lines of an input's first block below which learning is not worth it.
LEAST_LINES = 200
_MOST_TEMPLATES = 32
#: Lines of a block that are looked at for something to learn, and those that may teach nothing.
_LOOKED_AT, _MOST_REFUSED = 256, 100
#: Columns of a block whose lowest and highest values are held against the readers, and rows.
_COLUMNS, _ROWS = 6, 8
#: Lines of a block that are looked into for what they tell of epochs.
_MOST_EPOCHS = 2000
#: Rows of the first block that are read in their context, and lines of it at most.
_FIRST_ROWS, _FIRST_LINES = 50, 300


class Look(Struct, frozen=True):
    """Frames of lines read, each with the dialect that they are of.

    steady: whether the other lines of the block change nothing in how batches are counted on.
    """

    frames: tuple[tuple[int, pl.DataFrame], ...]
    steady: bool


class LearntBulk:
    """Reads blocks of one input; keeps what it learnt from block to block."""

    def __init__(
        self,
        reader: Callable[[int], Ask],
        in_context: Callable[[Block, int], pl.DataFrame | None],
    ) -> None:
        """reader: makes a fresh one that reads a line by itself; given the ranks of a node.

        in_context: the rows of an input's first lines, read one by one.
        """
        self._reader, self._in_context = reader, in_context
        self._per_node = 1
        self._begun = False
        self._on = True
        self._beside = False
        self._refused = 0
        self._templates = TemplateReader(self._may_teach, self._teach, _MOST_TEMPLATES, _LOOKED_AT)

    def leave_off(self) -> None:
        """Learn nothing."""
        self._begun, self._on = True, False

    def look(
        self, block: Block, source: int, ranks_per_node: int, known: Sequence[pl.DataFrame] = ()
    ) -> Look | None:
        """What is read of a block. known: rows that other bulk ways have of it."""
        self._per_node = ranks_per_node
        first, self._begun = not self._begun, True
        if not self._on:
            return None
        lines = _without(len(block.bounds[0]), block.first_line, known)
        if first:  # the first block is looked at before all others
            self._on, self._beside = len(lines) >= LEAST_LINES, bool(known)
        if not self._on or b"\r" in block.data:
            return None
        text = text_of(block)
        found = self._templates.read(text, lines)
        if not found:
            if first and known:  # not worth a look at every line beside a trainer's
                self._on = False
            return None
        rows = Rows(found)
        fine = _may_be_so(rows)
        try:
            frame = _frame(text, block, rows, source).filter(fine)
        except ValueError:
            self._on = False
            return None
        owners = rows.constant("owner").to_numpy()[fine]
        if not self._is_true(frame, block, owners) or (first and not self._fits(frame, block)):
            self._on = False
            return None
        taken = [(int(one), frame.filter(owners == one)) for one in np.unique(owners)]
        steady = bool(fine.all()) or EPOCH not in frame.columns  # else some are left to the reader
        return Look(tuple(taken), steady and not _tell_of_epochs(others(text, found, lines)))

    def settle(
        self, look: Look | None, readers: Sequence[Reader]
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """The frames, each with its dialect, by what the readers know of the lines before.

        A reader may say (`steady`) that what came before has no part in such lines, but for the
        batches that it counts on.
        """
        for owner, frame in look.frames if look is not None else ():
            if look is not None and look.steady and getattr(readers[owner], "steady", True):
                yield owner, _counted_on(frame, getattr(readers[owner], "count", None))

    def _may_teach(self, raw: bytes) -> bool:
        """Beside another trainer's lines most others are noise: only those with a loss may."""
        return self._refused < _MOST_REFUSED and (not self._beside or b"oss" in raw)

    def _teach(self, raw: bytes) -> Lesson | None:
        lesson = self._lesson(raw)
        self._refused += lesson is None
        return lesson

    def _lesson(self, raw: bytes) -> Lesson | None:
        text = clean(raw.decode("utf-8", "replace"))
        if not any(map(str.isdigit, text)):
            return None
        prefix = text[: len(text.rstrip()) - len(peel(text).text)].encode()
        if not raw.startswith(prefix):
            return None
        return lesson_of(raw, len(prefix), self._reader(self._per_node))

    def _is_true(self, frame: pl.DataFrame, block: Block, owners: Ints) -> bool:
        """Whether the readers say the same of some lines: spread rows, extremes of some columns."""
        ask = self._reader(self._per_node)
        names = [name for name in frame.columns if name not in KEY_SCHEMA]
        for row in sorted(set(_telling(frame, names))):
            first, size = frame["offset"][row] - block.offset, frame["length"][row]
            said = ask(block.data[first : first + size])
            values = {n: v for n in names if (v := frame[n][row]) is not None}
            told = frame.select("step", "rank", "wall_s").row(row)
            if said is None or dict(said.values) != values or said.owner != owners[row]:
                return False
            if (said.step, said.rank, said.wall_s) != told:
                return False
        return True

    def _fits(self, frame: pl.DataFrame, block: Block) -> bool:
        """Whether the first rows are what their lines say among the lines before them."""
        last = frame["line"].head(_FIRST_ROWS).max()
        count = min(int(last) - block.first_line + 1, _FIRST_LINES) if isinstance(last, int) else 0
        end = int(block.bounds[1][count - 1]) + 1 if count else 0
        said = self._in_context(
            Block(block.data[:end], block.offset, block.first_line), self._per_node
        )
        own = frame.filter(pl.col("line") < block.first_line + count)
        own = _counted_on(own, EpochCount())
        if said is None:
            return not len(own)
        return _told(said.filter(pl.col("line").is_in(own["line"].implode()))).equals(_told(own))


def _without(count: int, first_line: int, known: Sequence[pl.DataFrame]) -> Ints:
    """The lines of a block that are not among rows that are known."""
    left = np.ones(count, dtype=bool)
    for frame in known:
        left[frame["line"].to_numpy() - first_line] = False
    return np.flatnonzero(left)


def _counted_on(frame: pl.DataFrame, count: EpochCount | None) -> pl.DataFrame:
    """With the steps of the run where lines tell those of an epoch."""
    if EPOCH not in frame.columns or count is None:  # None: the columns are of other readers' lines
        return frame.drop(EPOCH, TOTAL, strict=False)
    epochs, totals = (
        frame[name].fill_null(-1).cast(pl.Int64).to_numpy()
        if name in frame.columns else np.full(len(frame), -1)
        for name in (EPOCH, TOTAL)
    )  # fmt: skip
    steps = count.steps(frame["step"].to_numpy(), epochs, totals)
    return frame.with_columns(step=pl.Series(steps)).drop(EPOCH, TOTAL, strict=False)


def _tell_of_epochs(lines: bytes) -> bool:
    """Whether some lines may change by what batches are counted on."""
    told = [line for line in lines.split(b"\n") if b"poch" in line.lower()]
    texts = (peel(clean(line.decode("utf-8", "replace"))).text for line in told[:_MOST_EPOCHS])
    return len(told) > _MOST_EPOCHS or any(map(turns, texts))


def _told(frame: pl.DataFrame) -> pl.DataFrame:
    """Without columns that say nothing, in the order of their names."""
    return frame.select(sorted(n for n in frame.columns if frame[n].null_count() < len(frame)))


def _may_be_so(rows: Rows) -> Bools:
    """Rows without a zero where their readers make something else of one."""
    fine: Bools = rows.constant("zeros").to_numpy() == 1
    if fine.all():
        return fine
    zero = np.zeros(len(fine), dtype=bool)
    for name in rows.names:
        if name in rows.divisors or not name.startswith((OTHER, TIME)):
            zero |= rows.held(name) & (rows.column(name) == 0.0)
    return fine | ~zero


def _telling(frame: pl.DataFrame, names: Sequence[str]) -> Iterator[int]:
    """Rows whose lines are asked for again."""
    if not len(frame):
        return
    yield from np.linspace(0, len(frame) - 1, _ROWS).astype(np.int64).tolist()
    turn = int(frame["line"][0]) % max(len(names), 1)
    for name in [*names, *names][turn : turn + min(_COLUMNS, len(names))]:
        places = (frame[name].arg_min(), frame[name].arg_max())
        yield from (place for place in places if place is not None)


def _frame(text: Text, block: Block, rows: Rows, source: int) -> pl.DataFrame:
    """Columns of the lines found; ValueError where the time of one is no time."""
    told = [name for name in rows.names if not name.startswith((OTHER, TIME))]
    columns = {name: _column(rows, name) for name in dict.fromkeys((*told, *rows.computed))}
    columns["step"] = columns["step"].cast(pl.Int64)
    columns["rank"] = rows.constant("rank")
    timed = rows.held(TIME + "year")
    if timed.any():
        columns["wall_s"] = _wall_s(rows, timed)
    return framed(text, block, rows.lines, source, columns)


def _column(rows: Rows, name: str) -> pl.Series:
    """Values of a name, by slots and by formulas."""
    if name not in rows.computed:
        return rows.series(name)
    values, told = rows.formulas(name)
    if name in rows.names:
        held = rows.held(name)
        values, told = np.where(held, rows.column(name), values), told | held
    return pl.Series(values) if told.all() else masked_column(values, ~told)


def _wall_s(rows: Rows, timed: Bools) -> pl.Series:
    times = {part: rows.column(TIME + part) for part in TIME_PARTS}
    if not is_a_time(times)[timed].all():
        raise ValueError("a time that is none")
    seconds = np.zeros(len(timed))
    digits = rows.constant("fraction").to_numpy()
    has_fraction = TIME + "fraction" in rows.names
    fraction = rows.column(TIME + "fraction") if has_fraction else seconds
    for count in np.unique(digits[timed]).tolist():
        mine = timed & (digits == count)
        own = {part: values[mine] for part, values in times.items()}
        seconds[mine] = wall_seconds(own, fraction[mine], count)
    return pl.Series(seconds) if timed.all() else masked_column(seconds, ~timed)
