"""Reads side logs line by line: what the three GPU monitors' parsers have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from loganalyze.model import Account, Batch, Event, LineRef, Problem, Reading
from loganalyze_parsers.blocks import Block, open_bytes, read_blocks
from loganalyze_parsers.frames import Names, readings_frame
from loganalyze_parsers.unpack import broken

MIB = 1024.0**2
_SAMPLES = 20

#: A line becomes a reading, events, both, or the name of the rule by which it is ignored; None if
#: nobody knows it.
Made = tuple[Reading | None, tuple[Event, ...]] | str | None


def parse_lines(
    path: Path, made: Callable[[str, LineRef], Made], source: int, framework: str
) -> Iterator[Batch]:
    """One batch a block of lines; a stream that breaks off ends with a Problem."""
    names = Names()
    told: tuple[Problem, ...] = ()
    try:
        with open_bytes(path) as stream:
            for block in read_blocks(stream):
                yield _batch(block, made, source, framework, names)
    except (OSError, EOFError) as error:
        told = (broken(path, error),)
    if told := (*told, *names.problems(str(path))):
        yield Batch(readings=None, problems=told)


def _batch(
    block: Block,
    made: Callable[[str, LineRef], Made],
    source: int,
    framework: str,
    names: Names,
) -> Batch:
    offset, line = block.offset, block.first_line
    readings: list[Reading] = []
    events: list[Event] = []
    ignored: Counter[str] = Counter()
    unknown: list[str] = []
    read = lines = 0
    for raw in block.data.splitlines(keepends=True):
        text = raw.decode("utf-8", "replace").strip("\ufeff \t\r\n")
        found = made(text, LineRef(source=source, line=line, offset=offset, length=len(raw)))
        offset, line, lines = offset + len(raw), line + 1, lines + 1
        if isinstance(found, str):
            ignored[found] += 1
        elif found is None:
            unknown.append(text[:200])
        else:
            read += 1
            readings.extend([found[0]] if found[0] is not None else [])
            events.extend(found[1])
    account = Account(
        lines=lines, read=read, ignored=dict(sorted(ignored.items())), unknown=len(unknown),
        unknown_samples=tuple(unknown[:_SAMPLES]),
    )  # fmt: skip
    return Batch(
        readings=readings_frame(names.admitted(readings)),
        events=tuple(events),
        account=account,
        framework=framework,
    )
