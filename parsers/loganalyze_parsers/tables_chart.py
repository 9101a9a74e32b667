"""CSV exports of charts, from W&B's and TensorBoard's pages.

    W&B          "Step","<run> - <metric>","<run> - <metric>__MIN","<run> - <metric>__MAX", ...
    TensorBoard  Wall time,Step,Value        the tag stands in the file's name: run-x-tag-loss.csv

The first column of W&B's is the axis of the chart: Step, a metric, or a clock in seconds (then each
run has `<run> - _step` too). Neither the first nor the last ` - ` of a column's name is sure to
part run and metric: the part behind it that is a known metric decides, else the last one does.
A chart draws the last value of each bucket; what lies between is only in __MIN and __MAX, so loss
and gradient norm are taken from __MAX where it differs; the drawn value and __MIN stay as
`raw/<metric> (drawn)` and `(lowest)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
from msgspec import Struct, field

from loganalyze import lazy
from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.csv_table import Header, cells_of, sniffed_header
from loganalyze_parsers.history import Table, sampled
from loganalyze_parsers.numbers import number
from loganalyze_parsers.tables import read_table
from loganalyze_parsers.tracker_frames import Rows, readings_of
from loganalyze_parsers.tracker_names import known, plain

_PART = " - "
_BOUND = lazy.pattern(r"__(MIN|MAX)$")
_BOARD = ("Wall time", "Step", "Value")
_TAG = lazy.pattern(r"(?:^|[-_.])tag[-_](.+?)(?: ?\(\d+\))?\.csv")
_RELATIVE = ("relative time", "wall time")
#: Metrics whose extreme counts: what __MAX shows must not be lost.
_WORST_IS_HIGH = frozenset({"loss", "val_loss", "grad_norm"})


class _Chart(Struct):
    """Columns of one run: metric to the names of its value, __MIN and __MAX columns."""

    values: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, dict[str, str]] = field(default_factory=dict)


def sniff(head: Head) -> float:
    """`<run> - <metric>` in every column behind the first; or TensorBoard's three columns."""
    header = sniffed_header(head)
    if header is None:
        return 0.0
    if header.names == _BOARD:
        return 0.95
    rest = header.names[1:]
    # A line of a logger (`03:04:05,678 - train - INFO - ...`) has such a name in it as well.
    is_name = header.raw.startswith(b'"') or not any(map(str.isdigit, header.names[0]))
    if is_name and all(_PART in name for name in rest) and _numbers_follow(head, header):
        return 0.95 if any(_BOUND.search(name) for name in rest) else 0.6
    return 0.0


def _numbers_follow(head: Head, header: Header) -> bool:
    """Whether the second line has a number, or nothing, in each cell behind the first."""
    lines = head.data.split(b"\n", 2)
    if len(lines) < 2 or not lines[1].strip():
        return True
    cells = cells_of(lines[1], header.separator)
    return cells is not None and all(
        number(cell) is not None or not cell.strip(' "') for cell in cells[1:]
    )


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a run; lines are counted once, with the first."""
    header, table = read_table(path)
    if header is None or not len(table):
        yield Batch(
            readings=None, problems=tuple(table.problems), framework="wandb",
            account=_account(table, 0),
        )  # fmt: skip
        return
    if header.names == _BOARD:
        yield _board(table, path, source)
        return
    axis = header.names[0]
    charts = _charts(header.names[1:])
    first = True
    for run in sorted(charts):
        batch = _run(table, charts[run], axis, path, source)
        told = (*(table.problems if first else ()), *batch.problems)
        yield Batch(
            readings=batch.readings,
            problems=told,
            account=_account(table, len(table)) if first else Account(),
            run=run if len(charts) > 1 else "",
            framework="wandb",
        )
        first = False


def _account(table: Table, read: int) -> Account:
    ignored = {rule: count for rule, count in table.ignored.items() if count}
    return Account(lines=table.lines, read=read, ignored=ignored, unknown=table.unknown)


def _charts(names: tuple[str, ...]) -> dict[str, _Chart]:
    charts: dict[str, _Chart] = {}
    for name in names:
        bound = _BOUND.search(name)
        run, metric = split_name(_BOUND.sub("", name))
        chart = charts.setdefault(run, _Chart())
        if bound:
            chart.bounds.setdefault(metric, {})[bound[1]] = name
        else:
            chart.values[metric] = name
    return charts


def split_name(name: str) -> tuple[str, str]:
    """Run and metric of a column.

    >>> split_name("lr - 3e-4 - train/loss"), split_name("Group: ddp - a - b")
    (('lr - 3e-4', 'train/loss'), ('ddp - a', 'b'))
    """
    parts = name.removeprefix("Group: ").split(_PART)
    for count in range(1, len(parts)):
        metric = _PART.join(parts[count:])
        if known(metric) is not None or metric == "_step":
            return _PART.join(parts[:count]), metric
    return _PART.join(parts[:-1]), parts[-1]


def _run(table: Table, chart: _Chart, axis: str, path: Path, source: int) -> Batch:
    columns: dict[str, pl.Series] = {}
    bucketed: list[str] = []
    for metric, name in chart.values.items():
        if metric == "_step":
            continue
        drawn = table.columns[name]
        highest = table.columns.get(chart.bounds.get(metric, {}).get("MAX", ""))
        found = known(metric)
        if highest is None or not _differs(drawn, highest):
            columns[metric] = drawn
        elif found is not None and found[0] in _WORST_IS_HIGH:
            columns[metric] = pl.select(pl.max_horizontal(drawn, highest)).to_series()
            columns[f"{metric} (drawn)"] = drawn
            bucketed.append(metric)
        else:
            columns[metric] = drawn
            columns[f"{metric} (highest)"] = highest
            bucketed.append(metric)
        lowest = table.columns.get(chart.bounds.get(metric, {}).get("MIN", ""))
        if lowest is not None and _differs(drawn, lowest):
            columns[f"{metric} (lowest)"] = lowest
    steps, wall = _axis(table.columns, chart, axis)
    rows = Rows(
        step=steps, wall_s=wall, line=table.line, offset=table.offset, length=table.length,
        columns=columns,
    )  # fmt: skip
    frame, problems = readings_of(rows, source, str(path))
    found_problems = [*problems, *_told(bucketed, path)]
    if frame is not None:
        found_problems.extend(sampled(frame["step"], path))
    return Batch(readings=frame, problems=tuple(found_problems))


def _differs(drawn: pl.Series, bound: pl.Series) -> bool:
    """Whether some bucket holds more than the value drawn."""
    more = (bound != drawn).fill_null(False) | (drawn.is_null() & bound.is_not_null())
    return bool(more.any())


def _axis(
    columns: Mapping[str, pl.Series], chart: _Chart, axis: str
) -> tuple[pl.Series, pl.Series]:
    """Steps and times of one run's rows."""
    first = columns[axis]
    nothing = pl.Series([None] * len(first), dtype=pl.Float64)
    counter = chart.values.get("_step")
    if plain(axis).replace("_", " ").startswith(_RELATIVE):
        steps = nothing if counter is None else columns[counter]
        return steps.cast(pl.Int64, strict=False), first if _is_unix(first) else nothing
    whole = bool(((first == first.floor()) | first.is_null()).all())
    if whole and plain(axis) != "epoch":
        return first.cast(pl.Int64, strict=False), nothing
    steps = first if counter is None else columns[counter]
    return steps.cast(pl.Int64, strict=False), nothing


def _is_unix(values: pl.Series) -> bool:
    middle = values.median()
    return isinstance(middle, float) and middle > 1e9


def _told(bucketed: list[str], path: Path) -> list[Problem]:
    if not bucketed:
        return []
    return [
        Problem(
            rule="bucketed_export",
            message=f"{path}: the chart of {', '.join(bucketed)} shows one value a bucket, "
            "extremes stand in __MIN and __MAX only; loss and gradient norm are read from __MAX. "
            "Export the history with all points for exact values",
        )
    ]


def _board(table: Table, path: Path, source: int) -> Batch:
    """TensorBoard's export of one tag."""
    named = _TAG.search(path.name)
    tag = named[1] if named else path.stem
    with_folder = tag.replace("_", "/", 1)  # the page writes `_` for the `/` of a tag
    tag = with_folder if known(tag) is None and known(with_folder) else tag
    rows = Rows(
        step=table.columns["Step"].cast(pl.Int64, strict=False),
        wall_s=table.columns["Wall time"],
        line=table.line,
        offset=table.offset,
        length=table.length,
        columns={tag: table.columns["Value"]},
    )
    frame, problems = readings_of(rows, source, str(path))
    return Batch(
        readings=frame,
        problems=(*table.problems, *problems),
        account=_account(table, len(table)),
        framework="tensorboard",
    )


PARSER = Parser(name="csv_chart", sniff=sniff, parse=parse)
