"""Megatron-LM and its kin: v1 to today, BigScience, deepspeedai, GPT-NeoX, Bridge, Primus.

A training line is `iteration N/ TOTAL | key: value | ... |` behind whatever the launcher prints:

    9: [default3]: [2031-01-02 03:04:05] iteration        7/      90 | consumed samples:     56 |
    elapsed time per iteration (ms): 2000.5 | lm loss: 4.500000E+00 | grad norm: 1.250 |

>>> from loganalyze.model import LineRef
>>> reader = MegatronReader()
>>> text = "iteration        7/      90 | lm loss: 4.500000E+00 | grad norm: 1.250 |"
>>> line = Line(text=text, ref=LineRef(source=0, line=1, offset=0, length=len(text)))
>>> reader.feed(line).readings[0].values
{'loss': 4.5, 'grad_norm': 1.25}

A loss is printed only if it is a number, so a line that has the fields behind it but no loss is
read as a NaN loss (unless all its steps were skipped).
"""

from __future__ import annotations

from loganalyze.model import Reading
from loganalyze_parsers import megatron_blocks as blocks
from loganalyze_parsers import megatron_side as side
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.megatron_bulk import MegatronBulk
from loganalyze_parsers.megatron_training import (
    OpenRecord,
    continues,
    is_complete,
    reading_of,
    records_on,
)

#: Rows that a wrapped record may span, at most.
_MAX_ROWS = 12


class MegatronReader:
    """One input's state: an open record, an open argument dump, the last step seen."""

    def __init__(self) -> None:
        """Nothing open."""
        self._record: OpenRecord | None = None
        self._rows = 0
        self._arguments: dict[str, blocks.Argument] | None = None
        self._first_argument: Line | None = None
        self._last_step: int | None = None
        self._cut_off = Taken()
        self._rank_times = side.RankTimes()

    @property
    def open(self) -> bool:
        """Whether the next line may belong to what began above."""
        waiting = self._record is not None or self._arguments is not None
        return waiting or self._rank_times.open or bool(self._cut_off.readings)

    def feed(self, line: Line) -> Taken | None:
        """Readings, events, or None for a line of another make."""
        cut_off, self._cut_off = self._cut_off, Taken()
        found = self._feed(line)
        if not cut_off.readings:
            return found
        if found is not None:
            found.readings[:0] = cut_off.readings
        return found or cut_off

    def _feed(self, line: Line) -> Taken | None:
        taken = Taken()
        if self._record is not None and self._join(line, taken):
            return taken
        found = self._argument_line(line) or self._training_line(line, taken)
        return found or self._other(line)

    def passed(self, step: int) -> None:
        """A whole record of that step went by: what was open before it is cut off there."""
        if self._record is not None:
            self._close(self._cut_off)
        self._last_step = step

    def finish(self) -> Taken:
        """A record or an argument dump that the end of the input cut."""
        taken = self._cut_off
        self._close(taken)
        if self._arguments and self._first_argument is not None:
            taken.events.append(blocks.config_event(self._first_argument, self._arguments))
            self._arguments = None
        return taken

    def _join(self, line: Line, taken: Taken) -> bool:
        """Whether the line was the next row of the open record; else that record is closed."""
        assert self._record is not None
        same = (line.rank, line.ref.source) == (self._record.rank, self._record.ref.source)
        if same and self._rows < _MAX_ROWS and continues(line):
            self._record = self._record.extended(line)
            self._rows += 1
            if is_complete(self._record):
                self._close(taken)
            else:
                taken.ignored = "row of a wrapped record"
            return True
        self._close(taken)
        return bool(self._training_line(line, taken))

    def _training_line(self, line: Line, taken: Taken) -> Taken | None:
        if "iteration" not in line.text:
            return taken if taken.readings else None
        records = records_on(line)
        for record in records:
            self._record, self._rows = record, 1
            if is_complete(record) or record is not records[-1]:
                self._close(taken)
        if self._record is not None:
            taken.ignored = "row of a wrapped record"
        return taken if records or taken.readings else None

    def _close(self, taken: Taken) -> None:
        if self._record is None:
            return
        reading = self._reading(self._record)
        self._record = None
        if reading is not None:
            taken.readings.append(reading)
            self._last_step = reading.step

    def _reading(self, record: OpenRecord) -> Reading | None:
        reading = reading_of(record, None)
        if reading is None or self._last_step is None or reading.step is None:
            return reading
        gap = reading.step - self._last_step
        return reading_of(record, gap) if gap > 0 else reading

    def _argument_line(self, line: Line) -> Taken | None:
        text = line.text
        if "arguments" in text and "---" in text:
            if "end of" in text:
                return self._end_arguments(line)
            self._arguments, self._first_argument = {}, line
            return Taken(ignored="argument dump")
        if self._arguments is None:
            return None
        found = blocks.argument(text)
        if found is None:
            return None
        self._arguments[found[0]] = (found[1], line.ref)
        return Taken(ignored="argument dump")

    def _end_arguments(self, line: Line) -> Taken:
        arguments, first = self._arguments or {}, self._first_argument or line
        self._arguments = None
        if not arguments:
            return Taken(ignored="argument dump")
        return Taken(events=[blocks.config_event(first, arguments)])

    def _other(self, line: Line) -> Taken | None:
        text, step = line.text, self._last_step
        if "memory (" in text:
            return blocks.memory(line)
        if " at " in text and "|" in text:
            found = blocks.validation(line, step)
            if found:
                return found
        if self._rank_times.open:
            row = self._rank_times.row(line, step)
            if row is not None:
                return row
        if text.startswith("times across ranks"):
            return self._rank_times.head()
        if "across ranks" in text:
            return Taken(ignored="timer heading")
        if text.startswith("time"):
            return blocks.old_timers(line, step)
        if "....:" in text:
            return blocks.timer_row(line, step)
        return blocks.checkpoint(line, step) or side.side_line(line, step)


DIALECT = Dialect(
    name="megatron",
    markers=(
        "iteration", " loss at ", " results at ", "memory (", "time (ms)", "across ranks",
        "....: ", "checkpoint", "metadata file", " arguments ", "Unexpected result",
        *side.MARKERS,
    ),
    reader=MegatronReader,
    bulk=MegatronBulk,
)  # fmt: skip
