"""A job with hundreds or thousands of rank files: workers read them, the driver holds a few.

Every rank is read and cut into segments by itself, its rows go into a part of the store; what
comes back is small. All ranks are reduced to states (rank_states), and the detectors see the rows
of the leads: a sample of healthy ranks, those that print the records, those that failed and those
whose states are suspicious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.assemble import (
    assemble,
    config_of,
    empty_readings,
)
from loganalyze.event_rows import EVENT_SCHEMA, parts_before
from loganalyze.grouping import Group
from loganalyze.inputs import rank_of
from loganalyze.leads import choose_leads
from loganalyze.masking import mask
from loganalyze.model import Problem, Ranks, RunLog, RunMeta, Source
from loganalyze.parts import Parts, safe_name
from loganalyze.plain_data import read, told
from loganalyze.rank_rows import rank_rows
from loganalyze.rank_states import SHARED, TIMES, merged, middles, sample, sample_size, states_of
from loganalyze.reading import Parse, Progress, read_file
from loganalyze.scratch import rows_written, written
from loganalyze.shards import (
    Place,
    Shard,
    Workers,
    chains_of,
    cut,
    masking_of,
    size_of,
)
from loganalyze.spill import mapped_file
from loganalyze.store_parts import scan_parts, write_part

#: Rank files from which a job is wide: up to here all rows are held.
MANY_RANKS = 256
#: Of events that many ranks tell alike, at the same step, those of so many ranks are kept.
ALIKE, ALIKE_FAILURES = 8, 64
FAILURES = frozenset({
    "exception", "oom", "host_oom", "comm_timeout", "comm_error", "xid", "hardware_error", "hang",
    "disk_full", "killed", "signal", "checkpoint_failed",
})  # fmt: skip


class RanksRead(Struct, frozen=True, kw_only=True):
    """What a shard of rank files gave. part: its rows; events: a file of the shard's folder.

    rows: records of each rank. records: training records of `leader`, the rank with the most
    (the lowest of equals); meta: what its records say of the run.
    """

    part: str
    events: str
    sources: tuple[Source, ...]
    problems: tuple[Problem, ...]
    rows: Mapping[int, int]
    records: int
    leader: int
    meta: RunMeta | None
    config: Mapping[str, str]
    frameworks: Counter[str]


def is_wide(group: Group) -> bool:
    """Whether a group is a job with very many rank files."""
    if len(group.paths) <= MANY_RANKS or group.columns:
        return False
    return len({rank_of(path) for path in group.paths} - {None}) > MANY_RANKS


def read_ranks(shard: Shard) -> str:
    """Read a shard's rank files; the name of the file in its folder that says what they gave."""
    ranks: list[Parts] = []
    inputs: list[range] = []
    sources: list[Source] = []
    with masking_of(shard):
        for chain in shard.chains:
            first = shard.first + len(sources)
            parts, own = _read_rank(chain, first)
            ranks.append(parts)
            inputs.append(range(first, first + len(own)))
            sources += own
        going_on = parts_before(sources).items()
        before = {shard.first + part: shard.first + other for part, other in going_on}
        table = rank_rows(ranks, inputs, before)
        best = table.records.index(max(table.records))
        meta = _alone(ranks[best]).meta
        config = next((c for parts in ranks if (c := config_of(parts.events))), {})
    rows = table.readings
    leader = rows.filter(pl.col("source").is_in(list(inputs[best])))["rank"].min()
    made = RanksRead(
        part=write_part(rows, shard.index, shard.folder) if len(rows) else "",
        events=rows_written(fewer(table.events), shard.folder),
        sources=tuple(sources),
        problems=_first_of_each(table.problems),
        rows=dict(rows["rank"].drop_nulls().value_counts().sort("rank").iter_rows()),
        records=table.records[best],
        leader=leader if isinstance(leader, int) else 0,
        meta=meta,
        config=config,
        frameworks=sum((parts.frameworks for parts in ranks), Counter[str]()),
    )
    return written(told(made), shard.folder, ".read")


def _read_rank(chain: Sequence[Path], first: int) -> tuple[Parts, list[Source]]:
    """What one rank's files hold; its sources are numbered from `first`, its events know it."""
    parts: dict[str, Parts] = {}
    onward: dict[str, Parse] = {}
    sources = [
        read_file(path, first + number, parts, lambda done, name: None, onward)
        for number, path in enumerate(chain)
    ]
    whole = Parts()
    for _, part in sorted(parts.items()):
        whole.extend(part)
    rank = rank_of(chain[0])
    whole.events = [
        event if event.rank is not None or rank is None else replace(event, rank=rank)
        for event in whole.events
    ]
    return whole, sources


def _alone(parts: Parts) -> RunLog:
    """One rank's parts as a run of its own."""
    return assemble(
        "", parts.frames, parts.events, parts.problems, (), framework="", grouping=""
    )


def fewer(events: pl.DataFrame) -> pl.DataFrame:
    """Of events that ranks tell alike (numbers aside) at one step, those of the first few ranks.

    Failures: the first few by time. fewer() of parts together is that of the whole.
    """
    if not len(events):
        return events
    failed = pl.col("kind").is_in(sorted(FAILURES))
    words = pl.col("text").str.replace_all(r"\d+", "#")
    other = events.filter(~failed).with_columns(words=words).sort("rank", "source", "offset")
    other = other.group_by("kind", "step", "words", maintain_order=True).head(ALIKE)
    known = events.filter(failed).sort("wall_s", "rank", "source", "offset", nulls_last=True)
    known = known.group_by("kind", maintain_order=True).head(ALIKE_FAILURES)
    kept = pl.concat([known.select(*EVENT_SCHEMA), other.select(*EVENT_SCHEMA)])
    return kept.sort("source", "offset")


def _first_of_each(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    seen: Counter[str] = Counter()
    kept = []
    for problem in problems:
        seen[problem.rule] += 1
        if seen[problem.rule] <= ALIKE:
            kept.append(problem)
    return tuple(kept)


def wide_run(group: Group, workers: Workers, progress: Progress) -> RunLog:
    """The run of a wide group. Raises ShardFailed."""
    place = workers.place()
    shards = cut(chains_of(group), place.path)
    found: dict[int, RanksRead] = {}
    for index, name in workers.engine(read_ranks, shards):
        found[index] = read((place.path / str(name)).read_bytes())
        for chain in shards[index].chains:
            progress(sum(map(size_of, chain)), chain[0].name)
    return _together(group, [found[index] for index in sorted(found)], workers, place)


def _together(group: Group, every: Sequence[RanksRead], workers: Workers, place: Place) -> RunLog:
    events = fewer(pl.concat([mapped_file(place.path / one.events) for one in every]))
    parts = tuple(place.path / one.part for one in every if one.part)
    problems = _first_of_each([problem for one in every for problem in one.problems])
    sources = tuple(source for one in every for source in one.sources)
    states = reduced(parts, _counted(every), workers, place) if parts else pl.DataFrame()
    last = max(one.leader for one in every)
    leads = choose_leads(states, events, FAILURES, last) if parts else ()
    return RunLog(
        meta=_meta(group, every),
        readings=rows_of(parts, leads) if parts else empty_readings(),
        events=events,
        problems=(*problems, _told(_counted(every), leads)),
        sources=sources,
        ranks=Ranks(states=states, leads=leads, parts=parts, keep=place),
    )


def _told(rows: Mapping[int, int], leads: Sequence[int]) -> Problem:
    message = (
        f"{len(rows)} ranks, {sum(rows.values())} rows: every rank is reduced to a state, "
        f"the rows of {len(leads)} ranks are looked at one by one; of events and problems that "
        f"ranks tell alike the first {ALIKE} are kept, of failures {ALIKE_FAILURES} a kind"
    )
    return Problem(rule="ranks_reduced", message=message)


def _counted(every: Sequence[RanksRead]) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for one in every:
        counts.update(one.rows)
    return counts


def _meta(group: Group, every: Sequence[RanksRead]) -> RunMeta:
    """What the rank with the most records says; settings that only another printed beside it."""
    best = max(every, key=lambda one: (one.records, -one.leader))
    config = next((one.config for one in every if one.config), {})
    frameworks = sum((one.frameworks for one in every), Counter[str]())
    assert best.meta is not None
    return replace(
        best.meta,
        id=safe_name(mask(group.name)),
        framework=frameworks.most_common(1)[0][0] if frameworks else "",
        config=dict(sorted({**config, **best.meta.config}.items())),
        grouping=mask(group.reason),
    )


# -- the reduction over the ranks ------------------------------------------------------------


class ReduceTask(Struct, frozen=True, kw_only=True):
    """One part to be reduced. references: metric to the file of its middles, in the folder."""

    part: Path
    references: Mapping[str, str]
    folder: Path


def reduce_part(task: ReduceTask) -> str:
    """States of the ranks in a part; the name of the file in the task's folder."""
    middle = {name: mapped_file(task.folder / file) for name, file in task.references.items()}
    return rows_written(states_of(task.part, middle), task.folder)


def reduced(
    parts: Sequence[Path], rows: Mapping[int, int], workers: Workers, place: Place
) -> pl.DataFrame:
    """States of all ranks in the parts (rank_states.merged). rows: of each rank, about.

    Raises ShardFailed.
    """
    chosen = sample(rows, sample_size(max(rows.values(), default=0)))
    held = scan_parts(parts).collect_schema()
    references = {
        name: rows_written(middles(parts, name, chosen), place.path)
        for name in (*TIMES, *SHARED)
        if name in held
    }
    tasks = [ReduceTask(part=part, references=references, folder=place.path) for part in parts]
    names = {index: str(name) for index, name in workers.engine(reduce_part, tasks)}
    return merged([mapped_file(place.path / names[index]) for index in sorted(names)])


def rows_of(parts: Sequence[Path], ranks: Sequence[int]) -> pl.DataFrame:
    """All rows of some ranks, in the order of the parts."""
    return scan_parts(parts).filter(pl.col("rank").is_in(list(ranks))).collect()
