"""The rows of many ranks as one table: what each rank's own run would hold, put together."""

from __future__ import annotations

import random
from collections.abc import Sequence

import polars as pl
import pytest

from loganalyze.assemble import assemble
from loganalyze.event_rows import EVENT_SCHEMA
from loganalyze.model import Event, LineRef, Problem, RunLog
from loganalyze.parts import Parts
from loganalyze.rank_rows import RankRows, rank_rows

_KEYS = {"rank": pl.Int32, "source": pl.Int32, "step": pl.Int64}


def _frame(made: random.Random, source: int, rank: int) -> pl.DataFrame:
    """Rows of one input, with step backs, timers without a loss, and columns by chance."""
    steps: list[int] = []
    for _ in range(made.randint(1, 3)):
        first = made.randint(0, 30)
        steps += range(first, first + made.randint(1, 20))
    rows = len(steps)
    frame: dict[str, list[object]] = {
        "step": [None if made.random() < 0.1 else step for step in steps],
        "rank": [rank if made.random() < 0.9 else rank + 1000 for _ in steps],
        "wall_s": [None] * rows,
        "source": [source] * rows,
        "line": list(range(1, rows + 1)),
        "offset": [100 * at for at in range(rows)],
        "length": [99] * rows,
    }
    for name in ("loss", "lr", "grad_norm", "step_time_s", "samples_per_s", "raw/other"):
        if made.random() < 0.6:
            zero = name == "grad_norm" and made.random() < 0.5
            frame[name] = [
                None if made.random() < 0.2 else 0.0 if zero else made.random() for _ in steps
            ]
    names = {name: pl.Float64 for name in frame if name not in ("step", "line", "offset", "length")}
    return pl.DataFrame(frame, schema_overrides={**names, **_KEYS, "line": pl.Int64})


def _event(made: random.Random, source: int) -> Event:
    kind = made.choice(["checkpoint_load", "start_fresh", "warning", "exception"])
    step = made.randint(0, 40) if kind == "checkpoint_load" or made.random() < 0.5 else None
    ref = LineRef(source=source, line=1, offset=made.randrange(3000), length=9)
    return Event(kind=kind, ref=ref, text=kind, step=step, rank=None, wall_s=None, detail={})


def _ranks(seed: int) -> tuple[list[Parts], list[range]]:
    """Some ranks of one to three inputs each; of a few inputs there are no rows."""
    made = random.Random(seed)
    ranks, inputs, source = [], [], 0
    for rank in range(made.randint(1, 6)):
        parts, first = Parts(), source
        for _ in range(made.randint(1, 3)):
            if made.random() < 0.8:
                parts.frames.append(_frame(made, source, rank))
            parts.events += [_event(made, source) for _ in range(made.randint(0, 3))]
            source += 1
        parts.problems.append(Problem(rule="odd", message=str(rank)))
        ranks.append(parts)
        inputs.append(range(first, source))
    return ranks, inputs


def _alone(parts: Parts) -> RunLog:
    return assemble("", parts.frames, parts.events, parts.problems, (), framework="", grouping="")


@pytest.fixture(scope="module")
def jobs() -> Sequence[tuple[RankRows, list[RunLog]]]:
    """The table of sixty jobs, and each of their ranks assembled alone."""
    made = [_ranks(seed) for seed in range(60)]
    return [(rank_rows(ranks, inputs, {}), list(map(_alone, ranks))) for ranks, inputs in made]


def test_the_rows_are_those_of_every_rank_alone(
    jobs: Sequence[tuple[RankRows, list[RunLog]]],
) -> None:
    """Order, segments and values are the same; a column that a rank lacks is null."""
    for table, alone in jobs:
        rows = pl.concat([run.readings for run in alone], how="diagonal")
        assert sorted(rows.columns) == sorted(table.readings.columns)
        assert table.readings.equals(rows.select(table.readings.columns))


def test_the_events_are_those_of_every_rank_alone(
    jobs: Sequence[tuple[RankRows, list[RunLog]]],
) -> None:
    """With the step and the segment of the row before them, in rows or without any."""
    told = 0
    for table, alone in jobs:
        events = pl.concat([run.events for run in alone]).select(*EVENT_SCHEMA)
        assert table.events.equals(events)
        told += len(events)
    assert told > 300


def test_placeholders_and_records_are_those_of_every_rank_alone(
    jobs: Sequence[tuple[RankRows, list[RunLog]]],
) -> None:
    """A metric that only one rank has at zero is told of that rank; records are counted alike."""
    placeholders = 0
    for table, alone in jobs:
        assert list(table.problems) == [problem for run in alone for problem in run.problems]
        counts = [sum(one.count for one in run.meta.segments) for run in alone]
        assert list(table.records) == counts
        placeholders += sum(p.rule == "placeholder_metric" for p in table.problems)
    assert placeholders > 10
