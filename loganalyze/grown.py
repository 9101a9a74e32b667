"""A log that has grown since it was ingested: only its new bytes are read.

Beside the run lies what its reader knew after the last whole line, and the hash of what it had
read. If the beginning and the end of that are unchanged, the reader goes on there; in every other
case (another file, other parsers, a log that ends in the middle of a message) the log is read
whole. Either way the run is the same, to the byte.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from loganalyze_parsers import TEXT, head_of, parser_for, text_log
from loganalyze_parsers.blocks import Block, compression, read_blocks
from loganalyze_parsers.text_files import parse_part
from loganalyze_parsers.textlog import TextLog
from msgspec import Struct, field

from loganalyze.digest import PIECE, Digest
from loganalyze.errors import StoreError
from loganalyze.grouping import plan
from loganalyze.inputs import log_of, rank_of
from loganalyze.masking import is_on, mask
from loganalyze.model import Account, Batch, Problem, RunLog
from loganalyze.parser_state import code_digest, restored, saved
from loganalyze.parts import Parts, safe_name
from loganalyze.plain_data import as_dict
from loganalyze.reading import Parse, source_of, total_of
from loganalyze.regrown import appended, assembled
from loganalyze.store import is_run, read_head
from loganalyze.store_parts import PART_ROWS

_MARK, _STATE = "growth.json", "growth.state"
_HEAD_BYTES = 64 << 10
#: Logs below are read whole: that is as fast, and nothing needs to be kept.
LEAST_BYTES = 4 << 20


class Memory(Struct):
    """Reads one log as ingest does and notes what was known after its last whole line."""

    path: Path
    accounts: list[Account] = field(default_factory=list)
    frameworks: Counter[str] = field(default_factory=Counter)
    told: int = 0  # problems before the last whole line
    offset: int = -1
    line: int = 0
    account: Account = field(default_factory=Account)
    state: bytes | None = None

    def begun(self) -> dict[str, Parse]:
        """The reader of the log, for ingest."""
        return {log_of(self.path): self.parse}

    def parse(self, path: Path, source: int) -> Iterator[Batch]:
        """As the text parser's."""
        log = text_log(source)
        log.whole = lambda offset, line: self._whole(log, offset, line)
        for batch in parse_part(log, path, source):
            self.add(batch)
            yield batch

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.accounts.append(batch.account)
        self.told += len(batch.problems) if self.offset < 0 else 0
        if self.offset < 0 and batch.readings is not None:
            self.frameworks[batch.framework] += len(batch.readings)

    def _whole(self, log: TextLog, offset: int, line: int) -> None:
        self.offset, self.line = offset, line
        self.account = total_of(self.accounts)
        self.state = saved(log)

    def keep(self, run: RunLog, place: Path, digest: Digest | None = None) -> None:
        """Put beside a run what the next reader needs; nothing where it could not go on.

        digest: of the log, where it was just made.
        """
        if self.state is None or self.told or run.problems or len(run.sources) != 1:
            return
        (source,) = run.sources
        events = run.events["offset"]
        if source.parser != TEXT.name or bool((events >= self.offset).any()):
            return
        pieces = [bytes.fromhex(piece) for piece in source.pieces[: self.offset // PIECE]]
        known = digest is not None and digest.size == self.offset
        with suppress(OSError):
            mark = {
                "code": code_digest(), "part_rows": PART_ROWS, "masked": is_on(),
                "path": self.path.as_posix(), "offset": self.offset, "line": self.line,
                "account": as_dict(self.account),
                "frameworks": dict(self.frameworks), "pieces": [piece.hex() for piece in pieces],
                "head": _hash(self.path, 0, min(_HEAD_BYTES, self.offset)),
                "tail": digest.tail() if digest is not None and known
                else _hash(self.path, len(pieces) * PIECE, self.offset),
                "state": hashlib.sha256(self.state).hexdigest(),
                "run": _run_digest(place),
            }  # fmt: skip
            (place / _STATE).write_bytes(self.state)
            (place / _MARK).write_text(json.dumps(mark, default=dict) + "\n", encoding="utf-8")


def _hash(path: Path, first: int, end: int) -> str:
    with path.open("rb") as file:
        file.seek(first)
        return hashlib.sha256(file.read(end - first)).hexdigest()


def _run_digest(place: Path) -> str:
    return hashlib.sha256((place / "run.json").read_bytes()).hexdigest()


def memory_for(arguments: tuple[str, ...]) -> Memory | None:
    """What to read a single large text log with; None for all other inputs."""
    path = Path(arguments[0])
    with suppress(OSError):
        if len(arguments) == 1 and path.is_file() and path.stat().st_size >= LEAST_BYTES:
            with path.open("rb") as file:
                packed = compression(file.read(6))
            if not packed and parser_for(head_of(path)) is TEXT:
                return Memory(path=path)
    return None


def read_on(memory: Memory, store: Path) -> tuple[RunLog, Path, int] | None:
    """The run of a grown log, its directory and its rows; None where it must be read whole.

    The run's rows are not held. Raises OutputError.
    """
    groups = plan([str(memory.path)]).groups
    place = store / safe_name(mask(groups[0].name)) if len(groups) == 1 else store
    if len(groups) != 1 or groups[0].paths != (memory.path,) or not is_run(place):
        return None
    mark = _mark(memory, place)
    if mark is None:
        return None
    log, digest = restored((place / _STATE).read_bytes()), _digest(memory, mark)
    try:
        old, document = read_head(place)
    except StoreError:
        return None
    if log is None or digest is None:
        return None
    new = Parts()
    _read_news(memory, mark, log, digest, new)
    if new.problems:
        return None
    source = source_of(
        memory.path, digest, digest.size, TEXT.name, total_of(memory.accounts)
    )
    run = appended(old, document, new, source, mark["offset"], place) or assembled(
        place, new, source, mark["offset"]
    )
    if run is None:
        return None
    written, rows = run.write(store)
    memory.keep(written, place, digest)
    return written, place, rows


def _digest(memory: Memory, mark: Mapping[str, Any]) -> Digest | None:
    """The digest of what was read before; None where the end of that has changed since."""
    digest = Digest([bytes.fromhex(piece) for piece in mark["pieces"]])
    with suppress(OSError), memory.path.open("rb") as file:
        file.seek(digest.size)
        digest.update(file.read(int(mark["offset"]) - digest.size))
        if digest.tail() == mark["tail"]:
            return digest
    return None


def _account(mark: Mapping[str, Any]) -> Account:
    entry = mark["account"]
    return Account(**{**entry, "unknown_samples": tuple(entry["unknown_samples"])})


def _mark(memory: Memory, place: Path) -> dict[str, Any] | None:
    """What the last reader left, if it may be gone on from there."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        mark: dict[str, Any] = json.loads((place / _MARK).read_text(encoding="utf-8"))
        same = (
            mark["code"] == code_digest()
            and mark["part_rows"] == PART_ROWS
            and mark["masked"] == is_on()
            and mark["path"] == memory.path.as_posix()
            and mark["run"] == _run_digest(place)
            and mark["state"] == hashlib.sha256((place / _STATE).read_bytes()).hexdigest()
        )
        offset = int(mark["offset"])
        if same and memory.path.stat().st_size >= offset:
            head = _hash(memory.path, 0, min(_HEAD_BYTES, offset)) == mark["head"]
            return mark if head else None
    return None


def _read_news(
    memory: Memory, mark: Mapping[str, Any], log: TextLog, digest: Digest, new: Parts
) -> None:
    """Everything behind the last whole line that was read."""
    memory.frameworks, memory.accounts = Counter(mark["frameworks"]), [_account(mark)]
    log.whole = lambda offset, line: memory._whole(log, offset, line)
    rank = rank_of(memory.path)
    with memory.path.open("rb") as file:
        file.seek(int(mark["offset"]))
        cut: list[int] = []
        for batch in log.batches(_blocks_on(file, mark, digest, cut)):
            memory.add(batch)
            new.add(batch, rank)
    if cut:
        new.problems.append(Problem(rule="limit_reached", message=f"{memory.path}: long lines"))
    new.problems.extend(log.names.problems(str(memory.path)))


def _blocks_on(
    file: BinaryIO, mark: Mapping[str, Any], digest: Digest, cut: list[int]
) -> Iterator[Block]:
    offset, line = int(mark["offset"]), int(mark["line"])
    for block in read_blocks(file, cut=cut, redraws=True):
        digest.update(block.data)
        yield Block(
            block.data, block.offset + offset, block.first_line + line - 1, goes_on=block.goes_on
        )
