"""Reads inputs into runs: finds the files, picks the parsers, joins what belongs together."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.api import Parser
from loganalyze_parsers.blocks import BLOCK_BYTES
from loganalyze_parsers.tracker_join import join_columns

from loganalyze.assemble import assemble
from loganalyze.continued import chained
from loganalyze.grouping import Group, plan
from loganalyze.inputs import part_of, rank_of
from loganalyze.masking import mask, masked_problem, masked_source
from loganalyze.model import Account, Batch, Problem, RunLog, Source
from loganalyze.parts import Parts, Pending, attached, renamed
from loganalyze.same_run import joined
from loganalyze.spill import Spiller
from loganalyze.store import read_run

#: What reading damaged content can raise in spite of every check; it ends that input alone.
_DAMAGE = (
    ValueError, ArithmeticError, LookupError, RecursionError, struct.error,
    pl.exceptions.PolarsError,
)  # fmt: skip
Progress = Callable[[int, str], None]
Parse = Callable[[Path, int], Iterator[Batch]]


@dataclass(frozen=True, slots=True)
class Ingested:
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
) -> Ingested:
    """Every run behind the arguments: raw logs are read, run directories are opened.

    named: NAME=GLOB, files that the user holds for one run. mapped: column of an input to the
    canonical metric that it is. Raises UsageError for a missing path and UnreadableInput for a
    folder without files.
    """
    todo = plan(arguments, named)
    read = [_read_group(one, progress or _silent, mapped or {}) for one in todo.groups]
    runs = [read_run(path) for path in todo.stored]
    for pending in attached(chained(joined(read))):
        runs.extend(_assembled(pending))
    unread = [source for pending in read for source in pending.missed]
    told = [run for run in runs if _says_something(run, arguments)]
    if told and len(told) < len(runs):
        kept = {id(run) for run in told}
        unread.extend(s for run in runs if id(run) not in kept for s in run.sources)
        runs = told
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
    return named or len(run.readings) > 0 or len(run.events) > 0


def limits_reached(runs: Iterable[RunLog]) -> tuple[str, ...]:
    """What is told of inputs that were not read to their end because a limit was reached."""
    return _messages(runs, "limit_reached")


def passed_by(runs: Iterable[RunLog]) -> tuple[str, ...]:
    """What lay in the folders and was not read because it is no plain file, with the reason."""
    return _messages(runs, "passed_by")


def _messages(runs: Iterable[RunLog], rule: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(p.message for r in runs for p in r.problems if p.rule == rule))


def total_bytes(arguments: Sequence[str]) -> int:
    """Bytes on disk behind the arguments, for a progress bar; standard input is not touched."""
    named = [argument for argument in arguments if argument != "-"]
    files = [path for one in plan(named).groups for path in (*one.paths, *one.texts)]
    return sum(path.stat().st_size for path in files if path.is_file())


def _silent(done: int, name: str) -> None:
    pass


def _read_group(one: Group, progress: Progress, mapped: Mapping[str, str]) -> Pending:
    pending = Pending(group=one)
    onward: dict[str, Parse] = {}
    for path in one.paths:
        parts = pending.by_run if not one.columns else {}
        index = len(pending.sources)
        _keep(pending, _read_file(path, index, parts, progress, onward, tuple(mapped)))
        if one.columns:
            _collect(pending, parts)
    if one.columns:
        _join(pending)
    for path in one.texts:
        parts = {}
        _keep(pending, _read_file(path, len(pending.sources), parts, progress, {}))
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


def _read_file(
    path: Path, index: int, by_run: dict[str, Parts], progress: Progress,
    onward: dict[str, Parse], named: Sequence[str] = (),
) -> Source:  # fmt: skip
    """Read one input into the parts of its runs; a Source without parser if nobody can.

    onward: of a rotated log the reader that read the parts before, by the log's name. named:
    columns of tables that the user gave a meaning.
    """
    try:
        head = head_of(path)
        parser = parser_for(head, named)
        with ThreadPoolExecutor(1) as pool:  # hashing leaves the interpreter free to parse
            digest = pool.submit(_sha256, path)
            account = Account()
            if parser is not None:
                parse = _onward(parser, path, onward)
                account = _parse(path, index, parse, by_run, progress)
            sha256 = digest.result()
    except OSError as error:
        by_run.setdefault("", Parts()).problems.append(_unreadable(path, error))
        return _source(path, "", 0, None, Account())
    return _source(path, sha256, head.size, parser, account)


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(rule="unreadable", message=f"{path}: {error.strerror or error}")


def _onward(parser: Parser, path: Path, begun: dict[str, Parse]) -> Parse:
    """How to read a file: by a reader of its own, or the one that read the log's earlier parts."""
    if parser.onward is None:
        return parser.parse
    return begun.setdefault(part_of(path), parser.onward())


def _parse(
    path: Path, index: int, parse: Parse, by_run: dict[str, Parts], progress: Progress
) -> Account:
    rank = rank_of(path)
    accounts: list[Account] = []
    first = len(by_run[""].frames) if "" in by_run else 0
    spiller: Spiller | None = None
    try:
        for batch in parse(path, index):
            by_run.setdefault(batch.run, Parts()).add(batch, rank)
            if "" in by_run:
                spiller = spiller or Spiller(by_run[""].frames, first)
                spiller.look()
            accounts.append(batch.account)
            progress(BLOCK_BYTES, path.name)
    except OSError as error:  # what came before stays, with the input that it cites
        by_run.setdefault("", Parts()).problems.append(_unreadable(path, error))
    except _DAMAGE as error:
        message = f"{path}: damaged content stopped the reader ({error}); what came before is used"
        by_run.setdefault("", Parts()).problems.append(
            Problem(rule="reader_stopped", message=message)
        )
    return total_of(accounts)


def total_of(accounts: Iterable[Account]) -> Account:
    """One account of all lines that the accounts count."""
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


def _source(path: Path, sha256: str, size: int, parser: Parser | None, account: Account) -> Source:
    return masked_source(
        Source(
            path=path.as_posix(),
            sha256=sha256,
            bytes=size,
            parser=parser.name if parser else "",
            encoding="utf-8",
            account=account,
        )
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_name(name: str) -> str:
    """A run's name that is safe as a file name on every system: words, at most 180 bytes."""
    words = re.sub(r"[^\w.+-]+", "_", name).strip("._")[:120]
    return words.encode("utf-8", "replace")[:180].decode("utf-8", "ignore") or "run"


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
