"""Histories as JSON lines: W&B's legacy files, API exports, and lines of other makers.

    wandb-history.jsonl   {"loss": 2.1, "_step": 4, "_runtime": 9.5, "_timestamp": 1.6e9}
    wandb-events.jsonl    {"system.cpu": 3.1, "system.gpu.0.gpu": 80, "_timestamp": 1.6e9, ...}
    log.txt               {"train_lr": 1e-5, "train_loss": 4.06, "epoch": 47}

Bare NaN and Infinity are numbers, and so are these words in quotes. The last line may be cut. The
system metrics of wandb-events.jsonl take their steps, by time, from the history beside them.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = '{"_step": 0, "train/global_step": 10, "train/loss": 2.5, "train/grad_norm": NaN}'
>>> step, values = rows_of_file(PARSER, "history.jsonl", line)[-1]
>>> step, values["loss"], values["grad_norm"]
(10, 2.5, nan)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze.model import Account, Batch, Event, LineRef, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import Block, open_bytes, read_blocks
from loganalyze_parsers.bulk_lines import text_of
from loganalyze_parsers.digits import Ints
from loganalyze_parsers.history import Table, has_axis, history_batch, knows_any, tells_epochs
from loganalyze_parsers.history_rows import Grown
from loganalyze_parsers.huggingface_keys import kind_of
from loganalyze_parsers.json_rows import object_reader
from loganalyze_parsers.json_spans import plain_number
from loganalyze_parsers.template_reader import TemplateReader
from loganalyze_parsers.unpack import broken
from loganalyze_parsers.wandb_files import config_beside
from loganalyze_parsers.wandb_frames import system_frame
from loganalyze_parsers.wandb_history import flat_numbers
from loganalyze_parsers.wandb_system import Sample

_HISTORY, _EVENTS = "wandb-history.jsonl", "wandb-events.jsonl"
_BESIDE = ("wandb-summary.json", "wandb-metadata.json")
#: Objects of a line in which structured loggers put all that they log.
_WRAPPERS = ("data.", "metrics.", "extra.", "fields.", "payload.")
_TRACKER = frozenset({"_step", "_runtime", "_timestamp"})


def first_object(data: bytes) -> dict[str, object]:
    """The object on the first line that is not blank; empty if there is none."""
    line = next((part for part in data.split(b"\n") if part.strip()), b"")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def sniff(head: Head) -> float:
    """W&B's counters in the first object; else a step and a metric that nobody else reads."""
    if head.path.name in (_HISTORY, _EVENTS):
        return 0.97
    if head.path.name in _BESIDE:
        return 0.0
    found = first_object(head.data)
    keys = frozenset(found)
    if len(keys & _TRACKER) >= 2:
        return 0.95
    flat = [
        name
        for key, value in found.items()
        for name in ([key] if not isinstance(value, dict) else _inside(key, value))
        if not isinstance(value, list)
    ]
    nested = any(_has_numbers(value) for value in found.values())
    if not found or ("_step" not in keys and kind_of(keys) and not nested):
        return 0.0
    if has_axis(flat) and knows_any(flat):
        return 0.5
    return 0.5 if isinstance(found.get("epoch"), int) and tells_epochs(flat) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch, rows in the order of the lines."""
    if path.name == _EVENTS:
        yield _events(path, source)
        return
    lines = read_lines(path)
    batch = history_batch(lines.rows(), path, source, epochs=True)
    framework = batch.framework or ("wandb" if lines.is_tracker else "")
    events: tuple[Event, ...] = ()
    if path.name == _HISTORY:
        config = config_beside(path)
        ref = LineRef(source=source, line=1, offset=0, length=0)
        events = (Event(kind="config", ref=ref, text="", detail=config),) if config else ()
    yield replace(
        batch, events=events, problems=(*lines.problems, *batch.problems), framework=framework
    )


class JsonLines(Struct):
    """The objects of a file, one a line, and what became of the other lines."""

    lines: int = 0
    unknown: int = 0
    blank: int = 0
    is_tracker: bool = False
    grown: Grown = field(default_factory=Grown)
    problems: list[Problem] = field(default_factory=list)

    def rows(self) -> Table:
        """The numbers as columns, out of the object that they are wrapped in."""
        table = self.grown.table(lines=self.lines, unknown=self.unknown, blank=self.blank)
        columns: dict[str, pl.Series] = {}
        for name, cells in table.columns.items():
            plain = _unwrapped(name)
            taken = plain in columns or plain in table.columns  # both may stand on a line
            columns[name if taken else plain] = cells
        return replace(table, columns=columns)


def read_lines(path: Path) -> JsonLines:
    """All objects of a JSONL file; a line that is none is unknown, a cut last one is told."""
    made = JsonLines()
    torn = False
    reader = object_reader(_column)
    for block in _blocks(path, made):
        rest = _by_templates(block, reader, made)
        for place, words, is_last in _lines(block, rest, made):
            content = _object(words)
            if content is None:
                made.unknown += 1
                torn = is_last
                continue
            made.is_tracker = made.is_tracker or "_step" in content
            made.grown.start(*place)
            put_all(made.grown, content)
    if torn:
        message = f"{path}:{made.lines}: the last line breaks off; it is left out"
        made.problems.append(Problem(rule="input_breaks_off", message=message))
    return made


def _column(key: str) -> tuple[str, float]:
    return key.encode("utf-8", "replace").decode("utf-8", "replace"), 1.0


def _inside(key: str, inner: Mapping[str, object]) -> list[str]:
    """Names of the numbers in an object, without what structured loggers wrap all of them in."""
    return [_unwrapped(f"{key}.{name}") for name in inner]


def _has_numbers(value: object) -> bool:
    """Whether a value is an object with numbers in it: a trainer's own row has none."""
    return isinstance(value, dict) and any(plain_number(one) is not None for one in value.values())


def _unwrapped(name: str) -> str:
    """A dotted name without the object that a structured logger puts all numbers in."""
    wrapper = next((one for one in _WRAPPERS if name.startswith(one)), "")
    return name.removeprefix(wrapper)


def _blocks(path: Path, made: JsonLines) -> Iterator[Block]:
    try:
        with open_bytes(path) as stream:
            yield from read_blocks(stream)
    except (OSError, EOFError, ValueError) as error:
        made.problems.append(broken(path, error))


def _by_templates(block: Block, reader: TemplateReader, made: JsonLines) -> Ints:
    """Read what templates read of a block; the indices of the other lines."""
    text = text_of(block)
    left = np.ones(len(text.starts), dtype=bool)
    found = reader.read(text, np.arange(len(text.starts)))
    for lesson, at, values in (part for one in found for part in one.apart()):
        names = [slot.name for slot in lesson.slots]
        starts, ends = text.starts[at], text.ends[at]
        places = np.stack([at + block.first_line, starts + block.offset, ends - starts])
        made.grown.many(places, names, values)
        made.is_tracker = made.is_tracker or "_step" in names
        left[at] = False
    made.lines += int(len(left) - left.sum())
    rest: Ints = np.flatnonzero(left)
    return rest


def _lines(
    block: Block, rest: Ints, made: JsonLines
) -> Iterator[tuple[tuple[int, int, int], bytes, bool]]:
    """Place and text of those lines that are not blank, and whether their line break is missing."""
    starts, ends = block.bounds
    whole = block.data.endswith(b"\n")
    for at in rest.tolist():
        start, end = int(starts[at]), int(ends[at])
        made.lines += 1
        words = block.data[start:end].strip()
        if not words:
            made.blank += 1
            continue
        place = (block.first_line + at, block.offset + start, end - start)
        yield place, words, not whole and at == len(starts) - 1


def _object(words: bytes) -> dict[str, object] | None:
    try:
        content = json.loads(words)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def put_all(grown: Grown, content: Mapping[str, object]) -> None:
    """All numbers of an object into the row started last, nested ones by dotted key."""
    for key, value in content.items():
        for name, number in flat_numbers(str(key).encode("utf-8", "replace"), value):
            grown.put(name.decode("utf-8", "replace"), number)


def _events(path: Path, source: int) -> Batch:
    """System metrics, with the steps of the history that lies beside them."""
    made = JsonLines()
    samples = []
    lines = (
        line
        for block in _blocks(path, made)
        for line in _lines(block, np.arange(len(block.bounds[0])), made)
    )
    for (line, offset, length), words, _ in lines:
        content = _object(words)
        if content is None:
            made.unknown += 1
            continue
        values = {
            name.decode("utf-8", "replace"): number
            for key, value in content.items()
            for name, number in flat_numbers(str(key).encode("utf-8", "replace"), value)
        }
        wall = values.pop("_timestamp", None)
        values.pop("_runtime", None)
        if wall is not None:
            samples.append(
                Sample(wall_s=wall, line=line, offset=offset, length=length, values=values)
            )
    beside = path.with_name(_HISTORY)
    history = None
    if beside.is_file():
        history = history_batch(read_lines(beside).rows(), beside, source).readings
    read = made.lines - made.blank - made.unknown
    return Batch(
        readings=system_frame(samples, history, source),
        problems=tuple(made.problems),
        account=Account(
            lines=made.lines, read=read, unknown=made.unknown,
            ignored={"blank line": made.blank} if made.blank else {},
        ),
        framework="wandb",
    )  # fmt: skip


PARSER = Parser(name="json_history", sniff=sniff, parse=parse)
