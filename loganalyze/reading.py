"""Reads one input into the parts of the runs that are in it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
from loganalyze_parsers import head_of, parser_for
from loganalyze_parsers.api import Parser
from loganalyze_parsers.blocks import BLOCK_BYTES

from loganalyze.digest import Digest, digest_of
from loganalyze.inputs import log_of, rank_of
from loganalyze.masking import masked_source
from loganalyze.model import Account, Batch, Problem, Source
from loganalyze.parts import Parts
from loganalyze.spill import Spiller

#: What reading damaged content can raise in spite of every check; it ends that input alone.
_DAMAGE = (
    ValueError, ArithmeticError, LookupError, RecursionError, struct.error,
    pl.exceptions.PolarsError,
)  # fmt: skip
#: Bytes of an input that is worth a thread for its hash.
_HASHED_BESIDE = 1 << 20
Progress = Callable[[int, str], None]
Parse = Callable[[Path, int], Iterator[Batch]]
#: read_file, or what stands for it.
ReadFile = Callable[[Path, int, dict[str, Parts], Progress, dict[str, Parse]], Source]


def read_file(
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
            beside = head.size >= _HASHED_BESIDE
            digest = pool.submit(digest_of, path) if beside else None
            account = Account()
            if parser is not None:
                parse = _onward(parser, path, onward)
                account = _parse(path, index, parse, by_run, progress)
            hashed = digest.result() if digest else digest_of(path)
    except OSError as error:
        by_run.setdefault("", Parts()).problems.append(_unreadable(path, error))
        return source_of(path, None, 0, "", Account())
    return source_of(path, hashed, head.size, parser.name if parser else "", account)


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(rule="unreadable", message=f"{path}: {error.strerror or error}")


def _onward(parser: Parser, path: Path, begun: dict[str, Parse]) -> Parse:
    """How to read a file: by a reader of its own, or the one that read the log's earlier parts."""
    if parser.onward is None:
        return parser.parse
    return begun.setdefault(log_of(path), parser.onward())


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
        if spiller is not None:
            spiller.finish()
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


def source_of(
    path: Path, digest: Digest | None, size: int, parser: str, account: Account
) -> Source:
    """An input as a run tells of it, secrets masked. size: bytes on disk."""
    return masked_source(
        Source(
            path=path.as_posix(),
            sha256=digest.hexdigest() if digest else "",
            bytes=size,
            parser=parser,
            encoding="utf-8",
            account=account,
            pieces=digest.told() if digest else (),
        )
    )
