"""The table in which torchrun lists the workers that failed.

    Root Cause (first observed failure):
    [0]:
      time      : 2031-04-02_10:11:12
      host      : node7
      rank      : 3 (local_rank: 3)
      exitcode  : -9 (pid: 77)
      error_file: <N/A>
      traceback : Signal 9 (SIGKILL) received by PID 77

Every entry becomes one event on its `exitcode` line; the first that failed is named so.

>>> from loganalyze_parsers.samples import events_of
>>> head, entry = "Root Cause (first observed failure):", "[0]:"
>>> events_of(DIALECT, head, entry, "  rank      : 3 (local_rank: 3)", "  exitcode  : -9 (pid: 77)")
[('killed', None)]
"""

from __future__ import annotations

from msgspec import Struct, field

from loganalyze import config, lazy
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.failures import failure_event
from loganalyze_parsers.failures_text import Found

_ROW = lazy.pattern(r"^(?P<key>time|host|rank|exitcode|error_file|traceback) *: ?(?P<value>.*)$")
_RANK = lazy.pattern(r"(?P<rank>\d+) \(local_rank: (?P<local_rank>\d+)\)")
_EXIT = lazy.pattern(r"(?P<exit_code>-?\d+) +\(pid: (?P<pid>\d+)\)")
_TIME = lazy.pattern(r"(\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)")
_NUMBERED = lazy.pattern(r"^\[\d+\]:$")
_HEADINGS = ("Failures:", "<NO_OTHER_FAILURES>", "Root Cause (first observed failure):")
_RULE = "launcher's table of failures"


class _Table(Struct):
    """What one stream has said of the entry at hand."""

    root: bool = False
    entry: dict[str, str | int | float] = field(default_factory=dict)


class LauncherReader:
    """The open tables of one input, by the stream that prints them."""

    open = False

    def __init__(self) -> None:
        """No table seen."""
        self._tables: dict[tuple[int | None, str | None], _Table] = {}

    def feed(self, line: Line) -> Taken | None:
        """An event at an entry's exit code; the rest of the table is ignored."""
        text = line.text
        table = self._tables.setdefault((line.rank, line.host), _Table())
        if text in _HEADINGS:
            table.root = text.startswith("Root")
            return Taken(ignored=_RULE)
        if _NUMBERED.match(text):
            table.entry = {}
            return Taken(ignored=_RULE)
        if text.endswith(" FAILED") and len(text) < 300 and ".py" in text:
            return Taken(ignored=_RULE)
        row = _ROW.match(text)
        return None if row is None else _row(line, table, row["key"], row["value"].strip())

    def finish(self) -> Taken:
        """Nothing waits."""
        return Taken()

    def passed(self, step: int) -> None:
        """There is no bulk way here."""


def _row(line: Line, table: _Table, key: str, value: str) -> Taken | None:
    if key == "exitcode":
        return _event(line, table, value)
    if key == "host":
        table.entry["host"] = value
    elif key == "time":
        moment = _TIME.match(value)
        if moment is None:
            return None
        table.entry["at"] = f"{moment[1]} {moment[2]}"
    elif key == "rank":
        rank = _RANK.match(value)
        if rank is None:
            return None
        table.entry |= {name: int(number) for name, number in rank.groupdict().items()}
    return Taken(ignored=_RULE)


def _event(line: Line, table: _Table, value: str) -> Taken | None:
    match = _EXIT.match(value)
    if match is None:
        return None
    name = "elastic_root_cause" if table.root else "elastic_failure"
    detail = {**table.entry, **{key: int(text) for key, text in match.groupdict().items()}}
    table.entry = {}
    return Taken(events=[failure_event(line, Found(config.signatures()[name], detail))])


DIALECT = Dialect(
    name="launcher",
    markers=(
        "exitcode ", "error_file:", "traceback :", "host  ", "rank  ", "time  ", "Failures:",
        "<NO_OTHER_FAILURES>", "Root Cause (first", ".py FAILED", "[0]:", "[1]:", "[2]:", "[3]:",
        "[4]:", "[5]:", "[6]:", "[7]:", "[8]:", "[9]:",
    ),
    reader=LauncherReader,
    commas="words",
)  # fmt: skip
