"""Framing of W&B's transaction log `run-<id>.wandb` (and of SwanLab's `run-<id>.swanlab`).

    7 bytes   ":W&B", uint16 0xBEE1, uint8 version 0       (":SWL", 0xE1D6, 2 for SwanLab)
    then chunks: uint32 CRC-32 of type and payload | uint16 length | uint8 type | payload
    type 1 whole record, 2 its first part, 3 a middle part, 4 the last part

A chunk never crosses a block of 32768 bytes; less than 7 bytes at its end are padding. Blocks
count from the start of the file; wandb-core before 0.17.6 counted them from behind the header.
The checksum is the CRC-32 of zlib, without LevelDB's mask. After damage the reader goes to the
next block and waits for the start of a record; what is lost is told, never raised.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import IO

from msgspec import Struct

BLOCK = 32768
HEADER = 7
MAGIC = b":W&B\xe1\xbe\x00"
SWANLAB_MAGIC = b":SWL\xd6\xe1\x02"
_CHUNK = struct.Struct("<IHB")
_CRC_OF_TYPE = tuple(zlib.crc32(bytes([kind])) for kind in range(256))
_PROBED_BLOCKS = 16
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Damage(Struct, frozen=True):
    """Bytes that could not be read. kind: checksum, lost_page, orphan, torn."""

    kind: str
    offset: int


Record = tuple[int, int, bytes]  # offset of the first chunk, bytes to the end of the last, payload
Stream = IO[bytes] | BufferedReader


def block_base(head: bytes) -> int:
    """Where blocks are counted from, 0 or 7, by which way of counting more chunks are whole.

    head: the first bytes of the file, half a megabyte for a sure answer.
    """
    head = head[: BLOCK * _PROBED_BLOCKS]
    whole = {base: sum(1 for _ in _probe(head, base)) for base in (0, HEADER)}
    return HEADER if whole[HEADER] > whole[0] else 0


def _probe(head: bytes, base: int) -> Iterator[int]:
    for start in range(base, len(head), BLOCK):
        block = head[max(start, HEADER) : start + BLOCK]
        yield from (at for at, kind, _ in _chunks(block) if kind > 0)


def records(stream: Stream, base: int) -> Iterator[Record | Damage]:
    """Records and damages of a log in order; the stream stands at the start of the file."""
    state = _Joiner()
    stream.read(HEADER)
    offset = HEADER
    first = BLOCK - HEADER if base == 0 else BLOCK
    size = first
    while block := _read_whole(stream, size):
        for at, kind, payload in _chunks(block):
            yield from state.chunk(offset + at, kind, payload)
        offset += len(block)
        size = BLOCK
    yield from state.end()


def _read_whole(stream: Stream, size: int) -> bytes:
    """`size` bytes, fewer only at the end; damaged compression ends the input."""
    parts = b""
    try:
        while len(parts) < size:
            part = stream.read(size - len(parts))
            if not part:
                break
            parts += part
    except (OSError, EOFError, ValueError):
        return parts
    return parts


def _chunks(block: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Place, type and payload of every chunk; type 0 for lost pages, -1 bad, -2 torn at the end."""
    at, end = 0, len(block)
    while at + HEADER <= end:
        crc, length, kind = _CHUNK.unpack_from(block, at)
        start = at + HEADER
        payload = block[start : start + length]
        if len(payload) < length:
            yield at, -2, b""
            return
        if kind == 0 and crc == 0 and length == 0:
            yield at, 0, b""
            return
        if not 1 <= kind <= 4 or zlib.crc32(payload, _CRC_OF_TYPE[kind]) != crc:
            yield at, -1, b""
            return
        yield at, kind, payload
        at = start + length
    if at < end and any(block[at:]):
        yield at, -2, b""


class _Joiner:
    """Puts the parts of a record together."""

    def __init__(self) -> None:
        self._start = -1
        self._parts: list[bytes] = []
        self._torn: int | None = None

    def chunk(self, offset: int, kind: int, payload: bytes) -> Iterator[Record | Damage]:
        """What one chunk completes."""
        yield from self._passed_tear()
        if kind == _WHOLE:
            yield from self._dropped()
            yield offset, HEADER + len(payload), payload
        elif kind == _FIRST:
            yield from self._dropped()
            self._start, self._parts = offset, [payload]
        elif kind in (_MIDDLE, _LAST):
            if self._start < 0:
                if kind == _LAST:
                    yield Damage("orphan", offset)
                return
            self._parts.append(payload)
            if kind == _LAST:
                whole, start = b"".join(self._parts), self._start
                self._start = -1
                yield start, offset + HEADER + len(payload) - start, whole
        elif kind == -2:
            self._torn = offset
        else:
            self._start = -1
            yield Damage("lost_page" if kind == 0 else "checksum", offset)

    def _passed_tear(self) -> Iterator[Damage]:
        """A chunk that was longer than its block, with more blocks behind it, is damage."""
        if self._torn is not None:
            yield Damage("checksum", self._torn)
            self._torn, self._start = None, -1

    def _dropped(self) -> Iterator[Damage]:
        """The start of a record whose rest never came."""
        if self._start >= 0:
            yield Damage("orphan", self._start)
            self._start = -1

    def end(self) -> Iterator[Damage]:
        """What the end of the file cut off."""
        if self._start >= 0 or self._torn is not None:
            yield Damage("torn", self._start if self._start >= 0 else self._torn or 0)
