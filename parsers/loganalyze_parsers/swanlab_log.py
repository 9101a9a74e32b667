"""SwanLab's own log of a run, `run-<id>.swanlab` (0.7 and later; the only file in offline mode).

The framing is that of W&B's logs with another header, see wandb_chunks. Records are protobuf
(swanlab.record.v1): num 1, timestamp 2, then one of start 10, finish 11 { state 1: 1 finished,
2 crashed, 3 aborted; error 2 }, column 12 { column_class 1: 2 = system; column_key 3 },
scalar 13 { key 1, step 2, timestamp 4, value 5 { number 1 } }, media 14, log 16 { line 1 },
save 20.

>>> sniff(Head(path=Path("run-x.swanlab"), data=SWANLAB_MAGIC, size=7))
1.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.protobuf import WireError, double, fields, signed, text, timestamp
from loganalyze_parsers.tracker_frames import readings_of
from loganalyze_parsers.tracker_join import SCALAR_COLUMNS, joined_rows
from loganalyze_parsers.tracker_names import framework_of
from loganalyze_parsers.wandb_chunks import SWANLAB_MAGIC, Damage, records
from loganalyze_parsers.wandb_console import Console, console_of
from loganalyze_parsers.wandb_frames import system_frame
from loganalyze_parsers.wandb_system import Sample

_SCALAR, _COLUMN, _FINISH, _LOG = 13, 12, 11, 16
_IGNORED = {10: "start of the run", 14: "media", 16: "console text, read as text", 20: "file"}
_ENDS = {1: ("finished", 0), 2: ("crashed", 1), 3: ("aborted", 255)}
_SYSTEM = 2
_Scalar = tuple[int, int, int, int, float | None, int, float]


def sniff(head: Head) -> float:
    """The seven bytes of the header."""
    return 1.0 if head.data.startswith(SWANLAB_MAGIC) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: rows, system rows, the end of the run, the account of records."""
    made = _Log(path, source)
    try:
        for line, found in enumerate(_records(path), start=1):
            made.take(found, line)
    except OSError as error:
        told = f"{path}: cannot be read ({error.strerror or error})"
        yield Batch(readings=None, problems=(Problem(rule="unreadable", message=told),))
        return
    yield made.batch()


def _records(path: Path) -> Iterator[tuple[int, int, bytes] | Damage]:
    with open_bytes(path) as stream:
        yield from records(stream, 0)


def console(path: Path) -> Console:
    """What the run printed, line by line. Raises OSError where the log cannot be read."""
    return console_of(_printed(path))


def console_text(path: Path) -> bytes:
    """The text of console(), without the places."""
    return console(path).text


def _printed(path: Path) -> Iterator[tuple[tuple[int, int, int], str]]:
    for line, found in enumerate(_records(path), start=1):
        if isinstance(found, Damage):
            continue
        offset, length, payload = found
        try:
            bodies = [v for n, v in fields(payload) if n == _LOG and isinstance(v, bytes)]
            for words in (text(part) for body in bodies for n, part in fields(body) if n == 1):
                yield (line, offset, length), words if words.endswith("\n") else f"{words}\n"
        except WireError:
            continue


class _Log:
    """The state of one log."""

    def __init__(self, path: Path, source: int) -> None:
        self._path = path
        self._source = source
        self._tags: dict[str, int] = {}
        self._scalars: list[_Scalar] = []
        self._samples: list[Sample] = []
        self._system: set[str] = set()
        self._events: list[Event] = []
        self._damages: list[Damage] = []
        self._ignored: Counter[str] = Counter()
        self._read = 0

    def take(self, found: tuple[int, int, bytes] | Damage, line: int) -> None:
        """One record or damage."""
        if isinstance(found, Damage):
            self._damages.append(found)
            return
        offset, length, payload = found
        ref = LineRef(source=self._source, line=line, offset=offset, length=length)
        try:
            kind, body = next(
                ((n, v) for n, v in fields(payload) if n >= 10 and isinstance(v, bytes)), (0, b"")
            )
            if kind == _SCALAR:
                self._scalar(body, ref)
            elif kind == _COLUMN:
                self._column(body)
            elif kind == _FINISH:
                self._finish(body, ref)
            else:
                self._ignored[_IGNORED.get(kind, "record of another kind")] += 1
                return
            self._read += 1
        except WireError:
            self._damages.append(Damage("record", offset))

    def _scalar(self, body: bytes, ref: LineRef) -> None:
        key, step, wall, number = "", 0, None, 0.0
        for field, value in fields(body):
            if field == 1:
                key = text(value)
            elif field == 2 and isinstance(value, int):
                step = signed(value)
            elif field == 4:
                wall = timestamp(value)
            elif field == 5 and isinstance(value, bytes):
                number = next((double(part) for inner, part in fields(value) if inner == 1), 0.0)
        if key in self._system or key.startswith("__swanlab__"):
            if wall is not None:
                self._samples.append(
                    Sample(wall_s=wall, line=ref.line, offset=ref.offset, length=ref.length,
                           values={key.removeprefix("__swanlab__."): number})
                )  # fmt: skip
            return
        tag = self._tags.setdefault(key, len(self._tags))
        self._scalars.append((step, ref.line, ref.offset, ref.length, wall, tag, number))

    def _column(self, body: bytes) -> None:
        found = dict(fields(body))
        if found.get(1) == _SYSTEM:
            self._system.add(text(found.get(3, b"")))

    def _finish(self, body: bytes, ref: LineRef) -> None:
        found = dict(fields(body))
        state = found.get(1, 0)
        words, code = _ENDS.get(state if isinstance(state, int) else 0, ("ended", 0))
        error = text(found.get(2, b""))[:200]
        detail: dict[str, str | int | float | None] = {"exit_code": code}
        if error:
            detail["error"] = error
        self._events.append(Event(kind="exit", ref=ref, text=words, detail=detail))

    def batch(self) -> Batch:
        """Everything that was taken in."""
        frame: pl.DataFrame | None = None
        problems: tuple[Problem, ...] = ()
        if self._scalars:
            found = pl.DataFrame(self._scalars, schema=list(SCALAR_COLUMNS), orient="row")
            found = found.with_columns(pl.col("wall_s", "value").cast(pl.Float64))
            rows = joined_rows(found, list(self._tags))
            frame, problems = readings_of(rows, self._source, str(self._path))
        system = system_frame(self._samples, frame, self._source)
        kept = [part for part in (frame, system) if part is not None and len(part)]
        lost = len(self._damages)
        return Batch(
            readings=pl.concat(kept, how="diagonal").sort("offset", maintain_order=True)
            if kept
            else None,
            events=tuple(self._events),
            problems=(*self._problems(), *problems),
            account=Account(
                lines=self._read + sum(self._ignored.values()) + lost,
                read=self._read,
                ignored=dict(sorted(self._ignored.items())),
                unknown=lost,
            ),
            framework=framework_of(self._tags) or "swanlab",
        )

    def _problems(self) -> list[Problem]:
        made = []
        if self._damages:
            torn = self._damages[-1].kind == "torn"
            told = (
                f"{self._path}: byte {self._damages[0].offset}: {len(self._damages)} place(s) "
                "cannot be read; the rest of the log is"
            )
            rule = "input_breaks_off" if torn else "damaged_log"
            made.append(Problem(rule=rule, message=told))
        if not any(event.kind == "exit" for event in self._events):
            told = f"{self._path}: the log has no end record: killed, still running, or a copy"
            made.append(Problem(rule="no_exit_record", message=told))
        return made


PARSER = Parser(name="swanlab_log", sniff=sniff, parse=parse)
