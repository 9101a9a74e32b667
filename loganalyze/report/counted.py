"""What the rows of a run hold, counted: of a very long one piece by piece."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze import config
from loganalyze.assemble import record
from loganalyze.columns import given, where_given
from loganalyze.long_runs import LONGEST
from loganalyze.model import READING_COLUMNS
from loganalyze.segments import integers
from loganalyze.spill import release, slices


class MetricView(Struct, frozen=True, kw_only=True):
    """A metric that occurs in a run: its column and what it holds. Steps are as logged."""

    name: str
    unit: str
    level: str  # "" for numbers that no canonical metric stands for
    panel: str
    count: int
    nonfinite: int
    first_step: int | None
    last_step: int | None


class Held(Struct, frozen=True, kw_only=True):
    """What a run's readings hold."""

    metrics: tuple[MetricView, ...]
    ranks: tuple[int, ...]
    first: int | None
    last: int | None
    count: int


def counted(frame: pl.DataFrame) -> Held:
    """What rows with the columns of readings hold."""
    if len(frame) <= LONGEST:
        return _counted(frame)
    return _added([_counted(piece) for piece in slices(frame, LONGEST)])


def _added(parts: Sequence[Held]) -> Held:
    names: dict[str, list[MetricView]] = {}
    for part in parts:
        for metric in part.metrics:
            names.setdefault(metric.name, []).append(metric)
    return Held(
        metrics=_ordered(_one_metric(own) for own in names.values()),
        ranks=tuple(sorted({rank for part in parts for rank in part.ranks})),
        first=_least(part.first for part in parts),
        last=_most(part.last for part in parts),
        count=sum(part.count for part in parts),
    )


def _one_metric(own: Sequence[MetricView]) -> MetricView:
    return replace(
        own[0],
        count=sum(one.count for one in own),
        nonfinite=sum(one.nonfinite for one in own),
        first_step=_least(one.first_step for one in own),
        last_step=_most(one.last_step for one in own),
    )


def _least(steps: Iterable[int | None]) -> int | None:
    return min((step for step in steps if step is not None), default=None)


def _most(steps: Iterable[int | None]) -> int | None:
    return max((step for step in steps if step is not None), default=None)


def _ordered(metrics: Iterable[MetricView]) -> tuple[MetricView, ...]:
    order = {name: index for index, name in enumerate(config.metrics())}
    return tuple(sorted(metrics, key=lambda m: (order.get(m.name, len(order)), m.name)))


def _counted(frame: pl.DataFrame) -> Held:
    known = frame.select("step").drop_nulls()["step"] if "step" in frame.columns else pl.Series([])
    ranks = frame["rank"].drop_nulls().unique().sort().to_list() if "rank" in frame.columns else []
    return Held(
        metrics=_metrics(frame),
        ranks=tuple(int(rank) for rank in ranks),
        first=whole_number(known.min()) if len(known) else None,
        last=whole_number(known.max()) if len(known) else None,
        count=int(frame.select(record(frame.columns).sum()).item() or 0),
    )


def whole_number(value: object) -> int | None:
    """A number that polars gives for a column of integers; None for anything else."""
    return int(value) if isinstance(value, int | float) else None


def _metrics(frame: pl.DataFrame) -> tuple[MetricView, ...]:
    names = [name for name in frame.columns if name not in READING_COLUMNS]
    spans = _Spans(frame["step"]) if names else None
    made = [_metric(frame[name], spans) for name in names if spans is not None]
    return _ordered(metric for metric in made if metric.count)


def _metric(column: pl.Series, spans: _Spans) -> MetricView:
    name, count = column.name, len(column) - column.null_count()
    family = config.metrics().get(name) or config.metrics().get(f"{name.partition('/')[0]}/<name>")
    first, last = spans.of(column)
    nonfinite = _nonfinite(column) if count else 0
    release()
    return MetricView(
        name=name,
        unit=family.unit if family else "",
        level=family.level if family else "",
        panel=family.panel if family else "other",
        count=count,
        nonfinite=nonfinite,
        first_step=first,
        last_step=last,
    )


def _nonfinite(column: pl.Series) -> int:
    """How many NaN and Inf; where the sum is a number there is none, and to add is quick."""
    if math.isfinite(column.sum()):
        return 0
    return len(column) - column.null_count() - int(column.is_finite().sum())


class _Spans:
    """First and last step at which metrics are told: those of one line share them."""

    def __init__(self, steps: pl.Series) -> None:
        """steps: of all rows, null where a row has none."""
        self._steps = integers(steps)
        self._known = given(steps)
        self._found: dict[bytes, tuple[int | None, int | None]] = {}  # by where_given()

    def of(self, column: pl.Series) -> tuple[int | None, int | None]:
        """Those of the rows where a column is not null; None without any."""
        key = where_given(column)
        if key not in self._found:
            own = self._steps[given(column) & self._known]
            self._found[key] = (int(own.min()), int(own.max())) if len(own) else (None, None)
        return self._found[key]
