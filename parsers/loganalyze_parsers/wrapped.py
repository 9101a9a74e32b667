"""Lines that a terminal or a mail cut in two: held until the rest comes.

    {'loss': 1.25, 'grad_norm': 0.5, 'learning_
    rate': 4e-05, 'epoch': 0.12}

The rest stands on the next lines, without a mark of its own. A line that was torn for good (a
crash, another rank's text) is given back as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from loganalyze.model import LineRef
from loganalyze_parsers.api import Line, Taken


class Wrapped:
    """At most one line that is still open."""

    def __init__(
        self, is_open: Callable[[str], bool], continues: Callable[[Line], bool], most: int
    ) -> None:
        """is_open: whether a text ends inside a record; continues: whether a line goes on.

        most: lines that a record spans at most.
        """
        self._most = most
        self._is_open = is_open
        self._continues = continues
        self._held: Line | None = None
        self._lines = 0

    @property
    def open(self) -> bool:
        """Whether something is held."""
        return self._held is not None

    def push(self, line: Line) -> list[Line]:
        """The lines that are complete now, in order; empty while this one is held."""
        held = self._held
        if held is None:
            return self._hold(line)
        same = (line.rank, line.ref.source) == (held.rank, held.ref.source)
        if same and self._lines < self._most and self._continues(line):
            joined = join(held, line)
            self._held = joined
            self._lines += 1
            return [] if self._is_open(joined.text) else self.flush()
        return [*self.flush(), *self._hold(line)]

    def flush(self) -> list[Line]:
        """What is held, as it is."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _hold(self, line: Line) -> list[Line]:
        if not self._is_open(line.text):
            return [line]
        self._held, self._lines = line, 1
        return []


def merged(taken: Iterable[Taken]) -> Taken:
    """Several lines' contents as one."""
    whole = Taken()
    for one in taken:
        whole.readings.extend(one.readings)
        whole.events.extend(one.events)
        whole.problems.extend(one.problems)
        whole.ignored = whole.ignored or one.ignored
        whole.held = whole.held or one.held
    return whole


def join(first: Line, second: Line) -> Line:
    """Both texts as one line at the place of both.

    White space at the ends is gone, so a cut between words and one inside a word look alike: only
    after a comma, a bar or a colon is a space put in.
    """
    space = " " if first.text.endswith((",", "|", ":")) else ""
    ref = LineRef(
        source=first.ref.source,
        line=first.ref.line,
        offset=first.ref.offset,
        length=second.ref.offset + second.ref.length - first.ref.offset,
    )
    return replace(first, text=first.text + space + second.text, ref=ref)
