"""Reads inputs into runs: finds the files, picks the parsers, joins what belongs together."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import BLOCK_BYTES

from loganalyze.assemble import assemble
from loganalyze.inputs import Group, expand, group, rank_of
from loganalyze.model import Account, Batch, Event, Problem, RunLog, Source
from loganalyze.store import is_run, read_run

Progress = Callable[[int, str], None]


@dataclass(frozen=True, slots=True)
class Ingested:
    """Runs made of the inputs, and the inputs in which nothing could be read."""

    runs: tuple[RunLog, ...]
    unread: tuple[Source, ...]


@dataclass(slots=True)
class _Parts:
    """What one run is made of, while its inputs are read."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    frameworks: Counter[str] = field(default_factory=Counter)

    def add(self, batch: Batch, rank: int | None) -> None:
        """Take a batch in; rows without a rank get the one of the file's name."""
        if batch.readings is not None and len(batch.readings):
            frame = batch.readings
            if rank is not None and frame["rank"].null_count() == len(frame):
                frame = frame.with_columns(rank=pl.lit(rank, dtype=pl.Int32))
            self.frames.append(frame)
            self.frameworks[batch.framework] += len(frame)
        self.events.extend(batch.events)
        self.problems.extend(batch.problems)


def ingest(
    arguments: Sequence[str],
    *,
    progress: Progress | None = None,
) -> Ingested:
    """Every run behind the arguments: raw logs are read, run directories are opened.

    Raises UsageError for a missing path and UnreadableInput for a folder without files.
    """
    paths = expand(arguments)
    stored = [read_run(path) for path in paths if is_run(path)]
    raw = [path for path in paths if not is_run(path)]
    runs: list[RunLog] = list(stored)
    unread: list[Source] = []
    for one in group(raw):
        made, missed = _read_group(one, progress or _silent)
        runs.extend(made)
        unread.extend(missed)
    return Ingested(_with_unique_ids(runs), tuple(unread))


def total_bytes(arguments: Sequence[str]) -> int:
    """Bytes on disk behind the arguments, for a progress bar."""
    return sum(path.stat().st_size for path in expand(arguments) if path.is_file())


def _silent(done: int, name: str) -> None:
    pass


def _read_group(one: Group, progress: Progress) -> tuple[list[RunLog], list[Source]]:
    by_run: dict[str, _Parts] = {}
    sources: list[Source] = []
    missed: list[Source] = []
    for path in one.paths:
        index = len(sources)
        source = _read_file(path, index, by_run, progress)
        if source.parser:
            sources.append(source)
        else:
            missed.append(source)
    whole = by_run.pop("", _Parts())
    if not by_run:
        by_run = {"": whole} if sources else {}
    runs = [_assemble(one, label, parts, whole, sources) for label, parts in sorted(by_run.items())]
    return runs, missed


def _assemble(
    one: Group, label: str, parts: _Parts, whole: _Parts, sources: Sequence[Source]
) -> RunLog:
    """A run of its own parts and of what the inputs say of no run in particular."""
    beside = whole if whole is not parts else _Parts()
    frameworks = parts.frameworks or whole.frameworks
    return assemble(
        safe_name(f"{one.name}-{label}" if label else one.name),
        parts.frames,
        [*beside.events, *parts.events],
        [*beside.problems, *parts.problems],
        sources,
        framework=frameworks.most_common(1)[0][0] if frameworks else "",
        grouping=one.reason,
    )


def _read_file(path: Path, index: int, by_run: dict[str, _Parts], progress: Progress) -> Source:
    """Read one input into the parts of its runs; a Source without parser if nobody can."""
    try:
        head = head_of(path)
        parser = parser_for(head)
        with ThreadPoolExecutor(1) as pool:  # hashing leaves the interpreter free to parse
            digest = pool.submit(_sha256, path)
            account = _parse(path, index, parser, by_run, progress) if parser else _no_lines(head)
            sha256 = digest.result()
    except OSError as error:
        problem = Problem(rule="unreadable", message=f"{path}: {error.strerror or error}")
        by_run.setdefault("", _Parts()).problems.append(problem)
        return _source(path, "", 0, None, Account())
    return _source(path, sha256, head.size, parser, account)


def _parse(
    path: Path, index: int, parser: Parser, by_run: dict[str, _Parts], progress: Progress
) -> Account:
    rank = rank_of(path)
    accounts: list[Account] = []
    for batch in parser.parse(path, index):
        by_run.setdefault(batch.run, _Parts()).add(batch, rank)
        accounts.append(batch.account)
        progress(BLOCK_BYTES, path.name)
    return _sum(accounts)


def _sum(accounts: Iterable[Account]) -> Account:
    ignored: Counter[str] = Counter()
    lines = read = unknown = 0
    samples: list[str] = []
    for account in accounts:
        lines, read = lines + account.lines, read + account.read
        unknown += account.unknown
        ignored.update(account.ignored)
        samples.extend(account.unknown_samples[: 20 - len(samples)])
    return Account(
        lines=lines,
        read=read,
        ignored=dict(sorted(ignored.items())),
        unknown=unknown,
        unknown_samples=tuple(samples),
    )


def _no_lines(head: Head) -> Account:
    return Account()


def _source(path: Path, sha256: str, size: int, parser: Parser | None, account: Account) -> Source:
    return Source(
        path=path.as_posix(),
        sha256=sha256,
        bytes=size,
        parser=parser.name if parser else "",
        encoding="utf-8",
        account=account,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_name(name: str) -> str:
    """A run's name that is safe as a file name on every system."""
    return re.sub(r"[^\w.+-]+", "_", name).strip("._")[:120] or "run"


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
