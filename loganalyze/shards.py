"""Inputs read ahead by an engine: a shard is some whole files, its rows go through a shared folder.

How inputs are cut into shards depends on the inputs alone, and what a shard gives is put together
in the order of the inputs: the result is the same whatever the engine, the number of workers and
the order in which they finish.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
from loganalyze_parsers import TEXT
from msgspec import Struct, field

from loganalyze.digest import digest_of
from loganalyze.engine import Engine, cores, engine_for, serial
from loganalyze.errors import OutputError
from loganalyze.grouping import Group
from loganalyze.inputs import log_of
from loganalyze.masking import is_on, unmasked
from loganalyze.model import Account, Source
from loganalyze.parts import Parts
from loganalyze.plain_data import read, told
from loganalyze.ranges import read_in_ranges, worth_ranges
from loganalyze.reading import Parse, Progress, read_file, source_of
from loganalyze.same_run import moved_parts
from loganalyze.scratch import rows_written, written
from loganalyze.spill import mapped_file

#: Without a word from the user, inputs below are read by one process.
LEAST_BYTES = 512 << 20
#: Bytes and files of a shard, about: enough work to be worth a task, little enough to lose.
SHARD_BYTES, SHARD_FILES = 32 << 20, 64


class Shard(Struct, frozen=True, kw_only=True):
    """Chains of files; those of one chain are parts of one log and read by one reader, in order.

    folder: where the rows go; workers and driver see it under the same path.
    """

    index: int
    chains: tuple[tuple[Path, ...], ...]
    folder: Path
    first: int = 0  # files before it
    masked: bool = True

    def __str__(self) -> str:
        """The inputs, as an error names them."""
        first = self.chains[0][0]
        more = sum(map(len, self.chains)) - 1
        return f"{first} and {more} more" if more else str(first)


class FileRead(Struct, frozen=True, kw_only=True):
    """What one file gave: its account, and its runs' parts by label, the rows in a file beside.

    rows: for each label the name of the file in the shard's folder, "" where there are none.
    """

    source: Source
    parts: dict[str, Parts] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)


class Workers(Struct, frozen=True, kw_only=True):
    """Who reads, and a folder that all of them see (None: a temporary one of this machine).

    least_bytes: inputs below are read here, which is faster than starting processes. ranges:
    whether one large log is read by several workers.
    """

    engine: Engine[Any, Any]
    folder: Path | None = None
    least_bytes: int = 0
    ranges: bool = True

    def worth(self, chains: Sequence[tuple[Path, ...]]) -> bool:
        """Whether the files are more than one shard's work, and enough of it."""
        size = sum(size_of(path) for chain in chains for path in chain)
        several = len(cut(chains, Path())) > 1 or bool(self.large(chains))
        return size >= self.least_bytes and several

    def large(self, chains: Sequence[tuple[Path, ...]]) -> set[Path]:
        """Logs that are read in ranges of bytes, if they are."""
        alone = [chain[0] for chain in chains if len(chain) == 1 and self.ranges]
        return {path for path in alone if worth_ranges(path, size_of(path))}

    def place(self) -> Place:
        """A fresh folder for rows on their way. Raises OutputError."""
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            return Place(Path(tempfile.mkdtemp(dir=self.folder, prefix=".loganalyze-")).absolute())
        except OSError as error:
            raise OutputError(
                f"{self.folder}: cannot be written ({error.strerror})", hint="choose another folder"
            ) from error


class Place:
    """A folder that is gone when it is removed, nothing refers to it, or the program ends."""

    def __init__(self, path: Path) -> None:
        """path: the folder, which exists."""
        self.path = path
        self._end = weakref.finalize(self, shutil.rmtree, path, True)

    def remove(self) -> None:
        """Remove it now; files in it that are mapped stay so."""
        self._end()


def workers_for(
    name: str | None = None, jobs: int | None = None, folder: Path | None = None
) -> Workers:
    """As the command line names them. Without a name and a number: all cores, for large inputs.

    Raises UsageError for an unknown engine, or one that is not installed.
    """
    asked = name is not None or jobs is not None
    engine = engine_for(name or "processes", jobs)
    if asked:
        return Workers(engine=engine, folder=folder)
    # a reader's own threads keep two cores busy with one log
    return Workers(engine=engine, folder=folder, least_bytes=LEAST_BYTES, ranges=cores() > 2)


def here() -> Workers:
    """This process alone."""
    return Workers(engine=serial)


def chains_of(group: Group) -> tuple[tuple[Path, ...], ...]:
    """A group's files; parts of one rotated log together, in their order."""
    by_log: dict[str, list[Path]] = {}
    for path in group.paths:
        by_log.setdefault(log_of(path), []).append(path)
    return (*map(tuple, by_log.values()), *((path,) for path in group.texts))


def cut(chains: Iterable[tuple[Path, ...]], folder: Path) -> tuple[Shard, ...]:
    """Neighbouring chains together until a shard is large enough."""
    shards: list[Shard] = []
    held: list[tuple[Path, ...]] = []
    size = files = first = 0

    def close() -> None:
        shards.append(
            Shard(
                index=len(shards), chains=tuple(held), folder=folder, first=first, masked=is_on()
            )
        )

    for chain in chains:
        held.append(chain)
        size, files = size + sum(map(size_of, chain)), files + len(chain)
        if size >= SHARD_BYTES or files >= SHARD_FILES:
            close()
            held, size, first, files = [], 0, first + files, 0
    if held:
        close()
    return tuple(shards)


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where it cannot be told."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def masking_of(shard: Shard) -> Any:
    """A worker masks secrets unless the user asked its driver not to."""
    return nullcontext() if shard.masked else unmasked()


def read_shard(shard: Shard) -> str:
    """Read a shard's files; the name of the file in its folder that holds what they gave.

    The work of an engine: only the name goes through it.
    """
    made: dict[str, FileRead] = {}
    with masking_of(shard):
        for chain in shard.chains:
            onward: dict[str, Parse] = {}
            for path in chain:
                parts: dict[str, Parts] = {}
                source = read_file(path, 0, parts, lambda done, name: None, onward)
                made[str(path)] = _set_down(source, parts, shard.folder)
    return written(told(made), shard.folder, ".read")


def _set_down(source: Source, parts: dict[str, Parts], folder: Path) -> FileRead:
    rows: dict[str, str] = {}
    for label, part in parts.items():
        if part.frames:
            rows[label] = rows_written(pl.concat(part.frames, how="diagonal"), folder)
            part.frames = []
    return FileRead(source=source, parts=parts, rows=rows)


class ReadAhead:
    """Stands for reading.read_file where an engine has read the files already."""

    def __init__(
        self, chains: Sequence[tuple[Path, ...]], workers: Workers, folder: Path, progress: Progress
    ) -> None:
        """Read all files. progress: hears of the bytes read. Raises ShardFailed."""
        engine = workers.engine
        large = workers.large(chains)
        chains = [chain for chain in chains if chain[0] not in large]
        self._made: dict[Path, FileRead] = {}
        self._parts: dict[Path, tuple[Parts, Source]] = {}
        self._folder = folder
        for path in large:
            if (whole := read_in_ranges(path, engine, folder)) is not None:
                self._parts[path] = (whole[0], _source_of(path, whole[1]))
                progress(size_of(path), path.name)
        shards = cut(chains, folder)
        for index, name in engine(read_shard, shards):
            found = read((self._folder / str(name)).read_bytes())
            self._made.update({Path(path): one for path, one in found.items()})
            for path in _paths(shards[index]):
                progress(size_of(path), path.name)

    def __call__(
        self, path: Path, index: int, by_run: dict[str, Parts], progress: Progress,
        onward: dict[str, Parse],
    ) -> Source:  # fmt: skip
        """As read_file: the parts go into by_run, the rows mapped from their files."""
        if (whole := self._parts.pop(path, None)) is not None:
            part, source = whole
            by_run.setdefault("", Parts()).extend(moved_parts(part, index) if index else part)
            return source
        made = self._made.pop(path, None)
        if made is None:  # named twice, or to be read whole
            return read_file(path, index, by_run, progress, onward)
        for label, part in made.parts.items():
            if name := made.rows.get(label):
                part.frames = [mapped_file(self._folder / name)]
            by_run.setdefault(label, Parts()).extend(moved_parts(part, index) if index else part)
        return made.source


def _source_of(path: Path, account: Account) -> Source:
    digest = digest_of(path)
    return source_of(path, digest, digest.size, TEXT.name, account)


def _paths(shard: Shard) -> Iterator[Path]:
    return (path for chain in shard.chains for path in chain)
