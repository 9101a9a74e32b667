"""Reads inputs into runs: finds the files, picks the parsers, joins what belongs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from loganalyze_parsers.tracker_join import join_columns
from msgspec import Struct
from msgspec.structs import replace

from loganalyze.assemble import assemble
from loganalyze.continued import chained
from loganalyze.grouping import Group, plan
from loganalyze.inputs import STORED_BESIDE
from loganalyze.masking import mask, masked_problem
from loganalyze.model import Problem, RunLog, Source
from loganalyze.parts import Parts, Pending, attached, renamed, safe_name
from loganalyze.reading import Parse, Progress, ReadFile, read_file
from loganalyze.same_run import joined
from loganalyze.shards import ReadAhead, Workers, chains_of, here
from loganalyze.store import StoredRun, open_run, read_run
from loganalyze.wide import is_wide, wide_run


class Ingested(Struct, frozen=True):
    """Runs made of the inputs, the inputs in which nothing could be read, and what was passed by.

    passed: of folders, what is no log to be read (a pipe, a circle of links), each with the reason.
    """

    runs: tuple[RunLog, ...]
    unread: tuple[Source, ...]
    passed: tuple[Problem, ...] = ()


def ingest(
    arguments: Sequence[str],
    *,
    progress: Progress | None = None,
    named: Sequence[str] = (),
    mapped: Mapping[str, str] | None = None,
    workers: Workers | None = None,
    begun: Mapping[str, Parse] | None = None,
) -> Ingested:
    """Every run behind the arguments: raw logs are read, run directories are opened.

    named: NAME=GLOB, files that the user holds for one run. mapped: column of an input to the
    canonical metric that it is. workers: who reads inputs that are worth it; the result is the
    same. begun: readers of text logs, by the log's name (see grown). Raises UsageError for a
    missing path, UnreadableInput for a folder without files, and ShardFailed where workers failed
    again and again.
    """
    todo = plan(arguments, named)
    told = progress or _silent
    wide = [one for one in todo.groups if is_wide(one) and not mapped]
    groups = [one for one in todo.groups if one not in wide]
    read = _read_groups(groups, told, mapped or {}, workers, begun or {})
    opened = open_run if len(todo.stored) > 1 else read_run
    runs = [opened(path) for path in todo.stored]
    runs.extend(wide_run(one, workers or here(), told) for one in wide)
    for pending in attached(chained(joined(read))):
        runs.extend(_assembled(pending))
    unread = [source for pending in read for source in pending.missed]
    telling = [run for run in runs if _says_something(run, arguments)]
    if telling and len(telling) < len(runs):
        kept = {id(run) for run in telling}
        unread.extend(s for run in runs if id(run) not in kept for s in run.sources)
        runs = telling
    passed = tuple(masked_problem(problem) for problem in todo.passed)
    return Ingested(_with_unique_ids(_told_first(runs, passed)), tuple(unread), passed)


def _told_first(runs: Sequence[RunLog], passed: tuple[Problem, ...]) -> list[RunLog]:
    """The runs; the first of them tells what was passed by beside it."""
    return [
        replace(run, problems=(*run.problems, *passed)) if passed and not index else run
        for index, run in enumerate(runs)
    ]


def _says_something(run: RunLog, arguments: Sequence[str]) -> bool:
    """Whether a run has rows or events, or is an input that the user named itself."""
    named = any(source.path in arguments for source in run.sources)
    return isinstance(run, StoredRun) or named or len(run.events) > 0 or len(run.readings) > 0


def limits_reached(runs: Iterable[RunLog]) -> tuple[str, ...]:
    """What is told of inputs that were not read to their end because a limit was reached."""
    return _messages(runs, "limit_reached")


def passed_by(runs: Iterable[RunLog]) -> tuple[str, ...]:
    """What lay in the folders and was not read: no plain files, runs stored beside logs."""
    return _messages(runs, "passed_by", STORED_BESIDE)


def to_store(run: RunLog) -> RunLog:
    """The run as it is kept: not with what is told of the stores beside it, or it would change."""
    kept = tuple(problem for problem in run.problems if problem.rule != STORED_BESIDE)
    return run if len(kept) == len(run.problems) else replace(run, problems=kept)


def _messages(runs: Iterable[RunLog], *rules: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.message for r in runs for p in r.problems if p.rule in rules))


def total_bytes(arguments: Sequence[str]) -> int:
    """Bytes on disk behind the arguments, for a progress bar; standard input is not touched."""
    named = [argument for argument in arguments if argument != "-"]
    files = [path for one in plan(named).groups for path in (*one.paths, *one.texts)]
    return sum(path.stat().st_size for path in files if path.is_file())


def _silent(done: int, name: str) -> None:
    pass


def _read_groups(
    groups: Sequence[Group], progress: Progress, mapped: Mapping[str, str],
    workers: Workers | None, begun: Mapping[str, Parse],
) -> list[Pending]:  # fmt: skip
    """All groups, their files read ahead where there is work for more than one worker."""
    chains = [chain for one in groups for chain in chains_of(one)] if workers else []
    if workers is None or mapped or not workers.worth(chains):
        read = partial(read_file, named=tuple(mapped))
        return [_read_group(one, read, progress, mapped, begun) for one in groups]
    place = workers.place()
    try:
        ahead = ReadAhead(chains, workers, place.path, progress)
        return [_read_group(one, ahead, _silent, mapped, begun) for one in groups]
    finally:
        place.remove()


def _read_group(
    one: Group, read_file: ReadFile, progress: Progress, mapped: Mapping[str, str],
    begun: Mapping[str, Parse],
) -> Pending:  # fmt: skip
    pending = Pending(group=one)
    onward: dict[str, Parse] = dict(begun)
    for path in one.paths:
        parts = pending.by_run if not one.columns else {}
        _keep(pending, read_file(path, len(pending.sources), parts, progress, onward))
        if one.columns:
            _collect(pending, parts)
    if one.columns:
        _join(pending)
    for path in one.texts:
        parts = {}
        _keep(pending, read_file(path, len(pending.sources), parts, progress, {}))
        _add_text(pending, parts)
    for found in pending.by_run.values():
        found.frames = [renamed(frame, mapped) for frame in found.frames]
        if "step" in mapped.values():  # the user said where the steps are
            found.problems = [p for p in found.problems if p.rule != "no_step_axis"]
    return pending


def _keep(pending: Pending, source: Source) -> None:
    (pending.sources if source.parser else pending.missed).append(source)


def _collect(pending: Pending, parts: dict[str, Parts]) -> None:
    """One metric's file into the run's only part (labels of such files say nothing)."""
    whole = pending.by_run.setdefault("", Parts())
    for part in parts.values():
        whole.extend(part)


def _join(pending: Pending) -> None:
    whole = pending.by_run.get("")
    if whole is not None and len(whole.frames) > 1:
        whole.frames = [join_columns(whole.frames)]


def _add_text(pending: Pending, parts: dict[str, Parts]) -> None:
    """A console log beside a tracker's files: its events; its numbers if there are no others."""
    target = next(iter(pending.by_run.values()), None) or pending.by_run.setdefault("", Parts())
    lacking = not target.frames
    for part in parts.values():
        if not lacking:
            part.frames, part.frameworks = [], Counter()
        target.extend(part)


def _assembled(pending: Pending) -> list[RunLog]:
    by_run = dict(pending.by_run)
    whole = by_run.pop("", Parts())
    if not by_run:
        by_run = {"": whole} if pending.sources else {}
    return [_assemble(pending, label, parts, whole) for label, parts in sorted(by_run.items())]


def _assemble(pending: Pending, label: str, parts: Parts, whole: Parts) -> RunLog:
    """A run of its own parts and of what the inputs say of no run in particular."""
    beside = whole if whole is not parts else Parts()
    frameworks = parts.frameworks or whole.frameworks
    name = pending.group.name
    return assemble(
        safe_name(mask(f"{name}-{label}" if label and label != name else name)),
        parts.frames,
        [*beside.events, *parts.events],
        [*beside.problems, *parts.problems],
        pending.sources,
        framework=frameworks.most_common(1)[0][0] if frameworks else "",
        grouping=pending.group.reason,
    )


def _with_unique_ids(runs: Sequence[RunLog]) -> tuple[RunLog, ...]:
    seen: Counter[str] = Counter()
    named = []
    for run in runs:
        seen[run.meta.id] += 1
        count = seen[run.meta.id]
        if count > 1:
            run = replace(run, meta=replace(run.meta, id=f"{run.meta.id}-{count}"))
        named.append(run)
    return tuple(named)
