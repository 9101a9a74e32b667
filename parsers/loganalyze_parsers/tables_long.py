"""Tables in long form: a row a number, with the metric's name in a cell; CSV and JSON lines.

    name,value,step                                  home-made loggers
    tag,step,value,wall_time                         scalars of TensorBoard, printed by a script
    run_uuid,key,value,timestamp,step                metrics of MLflow; times in milliseconds
    {"metric": "loss", "value": 2.5, "step": 10}     the same as JSON lines

What was logged at one step becomes one row, runs are told apart by their column. A row cites all
its lines where they stand together; in a table that lists one metric after the other, the line of
its loss (else of its first metric).

>>> from loganalyze_parsers.samples import rows_of_file
>>> head, row = "name,value,step", "train/loss,2.5,10"
>>> step, values = rows_of_file(PARSER, "scalars.csv", head, row)[-1]
>>> step, values["loss"]
(10, 2.5)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes, read_blocks
from loganalyze_parsers.csv_table import (
    Header,
    cells_of,
    header_of,
    numbers,
    read_cells,
    sniffed_header,
)
from loganalyze_parsers.history import knows_any, sampled
from loganalyze_parsers.history_json import first_object
from loganalyze_parsers.json_spans import plain_number
from loganalyze_parsers.numbers import number
from loganalyze_parsers.tracker_frames import Rows, readings_of
from loganalyze_parsers.tracker_join import joined_rows
from loganalyze_parsers.tracker_names import framework_of, known, plain
from loganalyze_parsers.unpack import broken

#: What a column is, by its name, the surest first.
_ROLES: Mapping[str, tuple[str, ...]] = {
    "tag": ("metric", "metric_name", "tag", "metric_key", "key", "name", "variable", "scalar"),
    "value": ("value", "metric_value", "scalar_value", "val"),
    "step": ("global_step", "step", "steps", "training_step", "iteration", "iter", "epoch"),
    "wall_s": ("wall_time", "walltime", "timestamp", "time"),
    "run": ("run", "run_name", "run_id", "run_uuid", "experiment"),
}
_HEAD_BYTES = 1 << 20
_MOST_TAGS = 20_000
#: Unix times beyond this are milliseconds (the year 5138 in seconds).
_MILLISECONDS = 1e11
_SURE, _SURE_JSON = 0.85, 0.6


class _Scalars(Struct):
    """Numbers of a table, one a line, and what became of its other lines."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    lines: int = 0
    unknown: int = 0
    ignored: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def leave_out(self, rule: str, count: int) -> None:
        """So many lines have no number of their own."""
        if count:
            self.ignored[rule] = self.ignored.get(rule, 0) + count


def roles(names: Sequence[str]) -> dict[str, str]:
    """Column of each role; empty unless a name, a value and a step are among them.

    >>> roles(["Wall time", "step", "tag", "value"])["wall_s"], roles(["name", "value"])
    ('Wall time', {})
    """
    by_name = {plain(name): name for name in names}
    found = {
        role: next(by_name[name] for name in wanted if name in by_name)
        for role, wanted in _ROLES.items()
        if any(name in by_name for name in wanted)
    }
    if not {"tag", "value", "step"} <= set(found):
        return {}
    rest = [name for name in names if name not in found.values()]
    return {} if knows_any(rest) else found


def sniff(head: Head) -> float:
    """A column of names, one of values and one of steps; the first row has them."""
    header = sniffed_header(head)
    found = roles(header.names) if header is not None else {}
    lines = head.data.split(b"\n", 2)
    if header is None or not found or len(lines) < 2:
        return 0.0
    cells = cells_of(lines[1], header.separator) or ()
    return _SURE if _is_scalar(dict(zip(header.names, cells, strict=False)), found) else 0.0


def sniff_json(head: Head) -> float:
    """The same of the first object of JSON lines."""
    first = first_object(head.data)
    found = roles(list(first))
    return _SURE_JSON if found and _is_scalar(first, found) else 0.0


def _is_scalar(row: Mapping[str, object], found: Mapping[str, str]) -> bool:
    """Whether the name is a word, and value and step are numbers."""
    name = row.get(found["tag"])
    if not isinstance(name, str) or not name.strip() or number(name) is not None:
        return False
    return all(_number(row.get(found[role])) is not None for role in ("value", "step"))


def _number(cell: object) -> float | None:
    return number(cell) if isinstance(cell, str) else plain_number(cell)


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a run; lines are counted once, with the first."""
    made = _Scalars()
    try:
        with open_bytes(path) as stream:
            header = header_of(stream.read(_HEAD_BYTES))
        if header is not None:
            _read_cells(path, header, made)
    except (OSError, EOFError, ValueError) as error:
        made.problems.append(broken(path, error))
    yield from _batches(made, path, source)


def parse_json(path: Path, source: int) -> Iterator[Batch]:
    """The same of JSON lines."""
    made = _Scalars()
    try:
        _read_objects(path, made)
    except (OSError, EOFError, ValueError) as error:
        made.problems.append(broken(path, error))
    yield from _batches(made, path, source)


def _read_cells(path: Path, header: Header, made: _Scalars) -> None:
    found = roles(header.names)
    for cells in read_cells(path, header):
        rows = {role: cells.frame[name] for role, name in found.items()}
        rows.setdefault("wall_s", pl.Series([None] * len(cells.line), dtype=pl.String))
        rows.setdefault("run", pl.Series([None] * len(cells.line), dtype=pl.String))
        frame = pl.DataFrame(
            {
                **{role: numbers(rows[role]) for role in ("value", "step", "wall_s")},
                **{role: rows[role].str.strip_chars() for role in ("tag", "run")},
                "line": cells.line, "offset": cells.offset, "length": cells.length,
            }
        )  # fmt: skip
        made.lines += cells.lines
        made.unknown += cells.unknown
        made.leave_out("header", cells.headers)
        blank = cells.lines - cells.headers - cells.unknown - len(frame)
        made.leave_out("blank line", blank)
        _keep(frame, made)
        if cells.torn:
            message = f"{path}: the last line lacks cells and its line break; it is left out"
            made.problems.append(Problem(rule="input_breaks_off", message=message))


def _read_objects(path: Path, made: _Scalars) -> None:
    found: dict[str, str] = {}
    with open_bytes(path) as stream:
        for block in read_blocks(stream):
            rows: list[tuple[object, ...]] = []
            for at, (start, end) in enumerate(zip(*block.bounds, strict=True)):
                made.lines += 1
                words = block.data[start:end].strip()
                if not words:
                    made.leave_out("blank line", 1)
                    continue
                content = first_object(words)
                found = found or roles(list(content))
                if not content:
                    made.unknown += 1
                    continue
                place = (block.first_line + at, block.offset + int(start), int(end - start))
                rows.append((*_cells_of(content, found), *place))
            _keep(pl.DataFrame(rows, schema=_OBJECTS, orient="row"), made)


_OBJECTS: Mapping[str, pl.DataType] = {
    "value": pl.Float64(), "step": pl.Float64(), "wall_s": pl.Float64(), "tag": pl.String(),
    "run": pl.String(), "line": pl.Int64(), "offset": pl.Int64(), "length": pl.Int64(),
}  # fmt: skip


def _cells_of(content: Mapping[str, object], found: Mapping[str, str]) -> tuple[object, ...]:
    """Value, step, time, name and run of an object; None for what it does not have."""
    told = {role: content.get(name) for role, name in found.items()}
    tag, run = told.get("tag"), told.get("run")
    return (
        *(_number(told.get(role)) for role in ("value", "step", "wall_s")),
        _sound(tag.strip()) if isinstance(tag, str) else None,
        None if run is None else json.dumps(run).strip('"'),
    )


def _sound(text: str) -> str:
    """Without halves of characters, which no frame holds."""
    return text.encode("utf-8", "replace").decode()


def _keep(frame: pl.DataFrame, made: _Scalars) -> None:
    """The rows that name a metric, its number and a step."""
    step = pl.col("step")
    whole = step.is_finite() & (step.abs() < 2.0**53)
    named = pl.col("tag").is_not_null() & (pl.col("tag") != "")
    kept = frame.filter(whole & named & pl.col("value").is_not_null())
    made.leave_out("row without a name, a number or a step", len(frame) - len(kept))
    made.parts.append(kept.with_columns(pl.col("step").cast(pl.Int64)))


def _batches(made: _Scalars, path: Path, source: int) -> Iterator[Batch]:
    found = pl.concat(made.parts) if made.parts else pl.DataFrame(schema=_OBJECTS)
    account = Account(
        lines=made.lines, read=len(found), ignored=dict(sorted(made.ignored.items())),
        unknown=made.unknown,
    )  # fmt: skip
    runs = found.partition_by("run", maintain_order=True, as_dict=True)
    first = Batch(readings=None, problems=tuple(made.problems), account=account)
    for (run,), scalars in runs.items():
        batch = _run(scalars, path, source)
        yield replace(
            batch,
            problems=(*first.problems, *batch.problems),
            account=first.account,
            run=str(run or "") if len(runs) > 1 else "",
        )
        first = Batch(readings=None)
    if not runs:
        yield first


def _run(scalars: pl.DataFrame, path: Path, source: int) -> Batch:
    tags = scalars["tag"].unique(maintain_order=True).to_list()
    problems: list[Problem] = []
    if len(tags) > _MOST_TAGS:
        message = f"{path}: {len(tags)} different names; the first {_MOST_TAGS} are read"
        problems.append(Problem(rule="limit_reached", message=message))
        tags = tags[:_MOST_TAGS]
        scalars = scalars.filter(pl.col("tag").is_in(tags))
    place = pl.col("tag").replace_strict(tags, range(len(tags)), return_dtype=pl.Int32)
    rows = _rows(scalars.with_columns(tag=place, wall_s=_seconds(scalars["wall_s"])), tags)
    frame, told = readings_of(rows, source, str(path))
    if frame is not None:
        problems += sampled(frame["step"], path)
    return Batch(readings=frame, problems=(*told, *problems), framework=framework_of(tags))


def _seconds(clock: pl.Series) -> pl.Series:
    middle = clock.median()
    return clock / 1000.0 if isinstance(middle, float) and middle > _MILLISECONDS else clock


def _rows(scalars: pl.DataFrame, tags: Sequence[str]) -> Rows:
    """One row a step. A table of one metric after the other is put in the order of its steps."""
    back = pl.col("step").diff() < 0
    goes_back = bool(scalars.select(back.any()).item())
    if not goes_back or bool(scalars.select(back.over("tag").any()).item()):
        return joined_rows(scalars, tags)
    leads = [at for at, tag in enumerate(tags) if (known(tag) or ("",))[0] == "loss"]
    ordered = scalars.sort("step", ~pl.col("tag").is_in(leads), maintain_order=True)
    rows = joined_rows(ordered, tags)
    lines = scalars["line"].to_numpy()
    length = scalars["length"].to_numpy()[np.searchsorted(lines, rows.line)]
    return replace(rows, length=length.astype(np.int64))


PARSER = Parser(name="csv_long", sniff=sniff, parse=parse)
JSON_PARSER = Parser(name="json_long", sniff=sniff_json, parse=parse_json)
