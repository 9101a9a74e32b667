"""W&B's own log of a run, `run-<id>.wandb`, read without the wandb package.

A protobuf message `wandb_internal.Record` per record: num = 1, then one of history 2, summary 3,
output 4, config 5, stats 7, alert 9-10, telemetry 11, metric 12, output_raw 13, run 17, exit 18,
final 20, header 21, ... Its numbers are the history (one row a log() call) and the system metrics;
the console text in it is left to the text parsers, see console_text(). Personal data (environment,
e-mail, host, program) is never read. A log without an exit record was killed, is still running,
or was copied live; wandb flushes in blocks, so up to 32 KiB of rows are then missing.

>>> sniff(Head(path=Path("run-x.wandb"), data=MAGIC, size=7))
1.0
>>> sniff(Head(path=Path("run-x.wandb"), data=b"", size=0))  # created, never flushed
0.9
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loganalyze.model import Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.protobuf import WireError, fields, text, varint
from loganalyze_parsers.wandb_chunks import BLOCK, MAGIC, Damage, block_base, records
from loganalyze_parsers.wandb_console import Console, console_of
from loganalyze_parsers.wandb_files import empty_log
from loganalyze_parsers.wandb_log import RunLogBuilder

_HISTORY, _OUTPUT, _OUTPUT_RAW = 2, 4, 13
_BODIES = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 20, 21, 22, 23, 25, 26, 27})
_PROBE_BYTES = 16 * BLOCK


def sniff(head: Head) -> float:
    """The seven bytes of the header; an empty file by its name (created, never flushed)."""
    if head.data.startswith(MAGIC):
        return 1.0
    named = head.path.suffix == ".wandb" and not head.data.strip(b"\x00")
    return 0.9 if named else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: history and system rows in the order written, events, the account of records."""
    built = RunLogBuilder(path, source)
    try:
        for line, found in enumerate(_records(path), start=1):
            if isinstance(found, Damage):
                built.damage(found)
                continue
            offset, length, payload = found
            try:
                kind, body = body_of(payload)
                built.add(kind, body, line, offset, length)
            except WireError:
                built.damage(Damage("record", offset))
    except OSError as error:
        yield _unreadable(path, error)
        return
    yield empty_log(path, source) if built.is_empty else built.batch()


def _records(path: Path) -> Iterator[tuple[int, int, bytes] | Damage]:
    with open_bytes(path) as stream:
        try:
            base = block_base(stream.read(_PROBE_BYTES))
        except (OSError, EOFError, ValueError):
            return
    with open_bytes(path) as stream:
        yield from records(stream, base)


def _unreadable(path: Path, error: OSError) -> Batch:
    message = f"{path}: cannot be read ({error.strerror or error})"
    return Batch(
        readings=None,
        problems=(Problem(rule="unreadable", message=message),),
        framework="wandb",
    )


def body_of(payload: bytes) -> tuple[int, bytes]:
    """Field number and bytes of what a Record holds; (0, b"") for a kind nobody knows.

    Raises WireError where the bytes are no message.
    """
    at = 0
    if payload[:1] == b"\x08":  # num comes first
        at = 1
        while at < len(payload) and payload[at] > 0x7F:
            at += 1
        at += 1
    if at < len(payload) and payload[at] < 0x80 and payload[at] & 7 == 2:
        size, start = varint(payload, at + 1)
        kind = payload[at] >> 3
        if kind in _BODIES and start + size <= len(payload):
            return kind, payload[start : start + size]
    for number, value in fields(payload):
        if number in _BODIES and isinstance(value, bytes):
            return number, value
    return 0, b""


def console(path: Path) -> Console:
    """What the run printed (standard output and error as they came), for the text parsers.

    Empty where the log holds none. Raises OSError where the log cannot be read.
    """
    return console_of(_printed(path))


def console_text(path: Path) -> bytes:
    """The text of console(), without the places."""
    return console(path).text


def _printed(path: Path) -> Iterator[tuple[tuple[int, int, int], str]]:
    for line, found in enumerate(_records(path), start=1):
        if isinstance(found, Damage):
            continue
        offset, length, payload = found
        try:
            kind, body = body_of(payload)
            if kind in (_OUTPUT, _OUTPUT_RAW):
                for number, value in fields(body):
                    if number == 3:
                        yield (line, offset, length), text(value)
        except WireError:
            continue


PARSER = Parser(name="wandb", sniff=sniff, parse=parse)
