"""Python tracebacks: many lines, one event with the exception and the innermost frame of the run.

Indentation is gone and ranks interleave, so a line is told by its looks and by what came before:
`File "...", line N, in f`, then perhaps a source line, then perhaps carets, at last the exception.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from loganalyze import lazy
from loganalyze_parsers.api import Line

HEADER = "Traceback (most recent call last):"
_FRAME = lazy.pattern(
    r'^(?:\| )?File "(?P<file>[^"]{1,400})", line (?P<line>\d+)'
    r"(?:(?P<comma>,)? in (?P<name>.{1,200}))?$"
)
_CARETS = lazy.pattern(r"^[\^~ |]{2,}$|^\^$")
_CHAIN = lazy.pattern(
    r"^(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:)"
)
_REPEATED = lazy.pattern(r"^\[Previous line repeated \d+ more times?\]$")
_ENDINGS = (
    "Error|Exception|Interrupt|Exit|Iteration|Timeout|Failure|Fault|Expired|Killed|Aborted|Group"
)
#: An exception by its name; safe anywhere in a traceback, since no source line looks like that.
_CERTAIN = lazy.pattern(
    rf"^(?P<type>(?:[A-Za-z_]\w{{0,80}}\.){{0,10}}[A-Za-z_]\w{{0,80}}(?:{_ENDINGS})(?:\(\w{{1,80}}\))?)"
    r"(?:: (?P<message>.*)|:?$)",
    re.DOTALL,
)
#: Any other class name, believed only where an exception is due.
_LIKELY = lazy.pattern(
    r"^(?P<type>(?:[A-Za-z_]\w{0,80}\.){1,10}[A-Z]\w{1,80}(?:\(\w{1,80}\))?(?=: |:?$)"
    r"|[A-Z]\w{1,80}(?:\(\w{1,80}\))?(?=: ))(?:: (?P<message>.*)|:?$)",
    re.DOTALL,
)
#: Frames of the interpreter and of installed packages are not the run's own.
_FOREIGN = lazy.pattern(r"site-packages|dist-packages|/lib(?:64)?/python\d|^<|/bin/\w+$")
_MAX_MISSES = 30
_MAX_SOURCE_LINES = 12


class Raised(Struct, frozen=True):
    """The end of a traceback: what was raised, and where."""

    exception: str
    message: str
    frame: tuple[str, int, str] | None  # file, line, function
    first_line: int  # line of the input where the traceback began
    chained: bool  # raised while another exception was handled
    ignored: bool  # Python said it ignores it (at exit, in a destructor)

    def detail(self) -> dict[str, str | int]:
        """As the detail of an event."""
        found: dict[str, str | int] = {
            "exception": self.exception,
            "message": self.message[:300],
            "traceback_line": self.first_line,
        }
        if self.frame is not None:
            found |= dict(zip(("file", "file_line", "function"), self.frame, strict=True))
        return found


class _Open(Struct):
    """Tracebacks of one stream that have begun; several where processes share it."""

    first_line: int
    depth: int = 1
    headed: bool = False  # the header was seen, not only a frame
    sources: int = 0  # source lines that may still come
    due: bool = False  # an exception may be next
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    raised: int = 0
    chained: bool = False
    misses: int = 0


class Tracebacks:
    """The open tracebacks of one input, by the stream (rank, host) that prints them."""

    def __init__(self) -> None:
        """None open."""
        self._open: dict[tuple[int | None, str | None], _Open] = {}
        self._ignored_next = False

    @property
    def open(self) -> bool:
        """Whether a traceback waits for its end."""
        return bool(self._open)

    def feed(self, line: Line) -> Raised | bool | None:
        """The exception that ends a traceback; True for its other lines; None for any other line.

        A traceback that breaks off without an exception is given up after some foreign lines.
        """
        text = line.text
        if self._header(line):
            return True
        key = (line.rank, line.host)
        state = self._open.get(key)
        if state is None:
            return self._begin(key, line)
        if text.startswith(("Message: ", "Arguments: (", "Call stack:")):
            if text.startswith("A"):
                del self._open[key]  # the end of what logging prints about its own failure
            return True
        known = self._part(state, text)
        if known is not None:
            state.misses = 0
            return known or self._end(key, state, text)
        state.misses += 1
        if state.misses > _MAX_MISSES:
            del self._open[key]
        return None

    def unfinished(self) -> list[int]:
        """First lines of tracebacks that began and never said what was raised."""
        states = self._open.values()
        return [state.first_line for state in states if state.headed and not state.raised]

    def _begin(self, key: tuple[int | None, str | None], line: Line) -> bool | None:
        """A traceback whose header is missing: cut off above, or the next link of a chain."""
        if _CHAIN.match(line.text):
            self._open[key] = _Open(first_line=line.ref.line, depth=0, chained=True)
            return True
        frame = _FRAME.match(line.text) if line.text.startswith('File "') else None
        if frame is None:
            return None
        if frame["name"] and frame["comma"]:  # faulthandler prints no comma, and no exception
            state = self._open[key] = _Open(first_line=line.ref.line)
            self._part(state, line.text)
        return True

    def _header(self, line: Line) -> bool:
        text = line.text
        if text.startswith("Exception ignored in"):
            self._ignored_next = True
            return True
        if not text.endswith(HEADER) or '"' + HEADER in text or "'" + HEADER in text:
            return False
        key = (line.rank, line.host)
        state = self._open.get(key)
        if state is None or not (state.headed or state.chained):
            self._open[key] = _Open(first_line=line.ref.line, headed=True)
        else:
            state.depth += 1
            state.headed = True
        return True

    def _part(self, state: _Open, text: str) -> bool | None:
        """True for a line inside, False for the exception, None for a foreign line."""
        frame = _FRAME.match(text)
        if frame is not None:
            state.frames.append((frame["file"], int(frame["line"]), frame["name"] or ""))
            state.sources, state.due = _MAX_SOURCE_LINES, True
            return True
        if _CARETS.match(text) or _REPEATED.match(text):
            state.due = True
            return True
        if _CERTAIN.match(text) or (state.due and _LIKELY.match(text)):
            return False
        if _CHAIN.match(text):
            state.chained = True
            return True
        if not text or not state.sources:
            return True if not text else None
        state.sources -= 1
        return True

    def _end(self, key: tuple[int | None, str | None], state: _Open, text: str) -> Raised:
        match = _CERTAIN.match(text) or _LIKELY.match(text)
        assert match is not None
        own = [frame for frame in state.frames if not _FOREIGN.search(frame[0])]
        found = Raised(
            exception=match["type"],
            message=match["message"] or "",
            frame=own[-1] if own else state.frames[-1] if state.frames else None,
            first_line=state.first_line,
            chained=state.chained,
            ignored=self._ignored_next,
        )
        self._ignored_next = False
        state.raised += 1
        state.depth -= 1
        state.sources, state.due = 0, False
        state.frames = state.frames if state.depth > 0 else []
        if state.depth <= 0:
            del self._open[key]
        return found
