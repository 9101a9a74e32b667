"""Reads inputs in blocks of whole lines, so that memory does not grow with the file.

Compressed inputs (.gz, .zst, .xz, .bz2) are read in place; offsets then count decompressed bytes.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Iterator
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze_parsers.kernel import kernel
from loganalyze_parsers.unpack import Unpacked

BLOCK_BYTES = 8 * 1024 * 1024  # larger ones are no faster and cost memory
_SCAN_BYTES = 256 * 1024  # a piece that stays in the cache
#: Where a line's end is looked for behind a block.
_LOOK_BYTES = 16 * 1024
#: Of a longer line only the beginning is read: no trainer prints one, and it would fill the memory.
MAX_LINE_BYTES = 16 * 1024 * 1024

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bz2"}


class Block(Struct, frozen=True, dict=True):
    """Whole lines: `data` starts at byte `offset` with line `first_line` (from 1).

    goes_on: it is a part of one long line, and the next block goes on with that line.
    """

    data: bytes
    offset: int
    first_line: int
    goes_on: bool = False

    @cached_property
    def bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Start and end (without the LF) of every line."""
        return line_bounds(self.data)


def compression(head: bytes) -> str:
    """Name of the compression by magic bytes, or an empty string."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def open_bytes(path: Path) -> IO[bytes]:
    """The decompressed bytes of a file, as a stream that can only be read on.

    Raises OSError, and so does reading where a compressed input is damaged or unpacks too far.
    """
    with path.open("rb") as raw:
        kind = compression(raw.read(6))
    if not kind:
        return path.open("rb")
    unpacked: Any = Unpacked(_decompressor(path, kind), path.stat().st_size)
    return unpacked  # type: ignore[no-any-return]


def _decompressor(path: Path, kind: str) -> Any:
    if kind == "gzip":
        return gzip.open(path, "rb")
    if kind == "xz":
        return lzma.open(path, "rb")
    if kind == "bz2":
        return bz2.open(path, "rb")
    import pyarrow as pa  # loaded where it is needed: it takes a while

    return pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd")


def read_blocks(
    stream: IO[bytes] | BufferedReader,
    size: int = BLOCK_BYTES,
    cut: list[int] | None = None,
    *,
    redraws: bool = False,
) -> Iterator[Block]:
    """Blocks of whole lines of about `size` bytes; only the last may lack its newline.

    Of a line beyond MAX_LINE_BYTES only the beginning is given; its number is put into `cut`.
    redraws: a line longer than `size` that is redrawn (carriage returns) is given part by part.
    Raises OSError where the input breaks; what came before is yielded.
    """
    rest = b""
    offset, line = 0, 1
    inside = False  # of a line whose beginning was given
    while chunk := stream.read(_to_line_end(stream, size)):
        if inside:
            end = chunk.find(b"\n") + 1
            inside = not end
            offset += end or len(chunk)
            chunk = chunk[end:] if end else b""
        whole = chunk.rfind(b"\n") + 1
        if whole:
            complete = not rest and whole == len(chunk)
            data = chunk if complete else b"".join((rest, memoryview(chunk)[:whole]))
            block = Block(data, offset, line)
            rest = chunk[whole:]
            line += len(block.bounds[0])
            yield block
            offset += len(block.data)
            continue
        rest += chunk
        drawn = rest.rfind(b"\r") + 1 if redraws and len(rest) >= size else 0
        if drawn:
            yield Block(rest[:drawn], offset, line, goes_on=True)
            offset, rest = offset + drawn, rest[drawn:]
        if len(rest) > MAX_LINE_BYTES:
            yield Block(rest[:MAX_LINE_BYTES], offset, line)
            if cut is not None:
                cut.append(line)
            offset, line, rest, inside = offset + len(rest), line + 1, b"", True
    if rest:
        yield Block(rest, offset, line)


def _to_line_end(stream: IO[bytes] | BufferedReader, size: int) -> int:
    """Bytes to read next: `size` and the rest of a line, where a plain file shows its end.

    A block that ends with its last line need not be copied to be put together.
    """
    if not isinstance(stream, BufferedReader):
        return size
    try:
        return size + os.pread(stream.fileno(), _LOOK_BYTES, stream.tell() + size).find(b"\n") + 1
    except (OSError, AttributeError):  # a pipe; a system without pread
        return size


def line_bounds(data: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Start and end (without the LF) of every line; a last line may lack its LF."""
    compiled = kernel()
    breaks = compiled.breaks(data) if compiled else _breaks(data)
    if data and not data.endswith(b"\n"):
        breaks = np.append(breaks, len(data))
    starts = np.concatenate(([0], breaks[:-1] + 1)) if len(breaks) else breaks
    return starts.astype(np.int64), breaks.astype(np.int64)


def _breaks(data: bytes) -> npt.NDArray[np.int64]:
    """Where the line feeds are, by numpy."""
    view = np.frombuffer(data, dtype=np.uint8)
    parts = [
        np.flatnonzero(view[first : first + _SCAN_BYTES] == 10) + first
        for first in range(0, len(view), _SCAN_BYTES)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
