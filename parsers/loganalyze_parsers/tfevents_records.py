"""Framing of event files (TFRecord): blocks of whole records, bounded in memory.

    uint64 length | uint32 masked CRC-32C of the length | payload | uint32 masked CRC of the payload

The checksum of every length is checked, and that of every payload. A bad payload costs its record
only; after a bad length the next place whose eight bytes carry their own checksum is looked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BufferedReader
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze_parsers.tfevents_crc import MARGIN, masked_of_lengths, masked_of_spans

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

HEAD, TAIL = 12, 4
_LENGTH = struct.Struct("<Q")
_BLOCK = 8 * 1024 * 1024
#: A longer record is taken for a damaged length: event files hold no such thing.
_MAX_RECORD = 1 << 30
#: Records that are followed one by one before the next are guessed.
_STRETCH = 256
_SLACK = 64  # bytes behind the data, so that a torn varint can be gathered


class RecordBlock(Struct, frozen=True):
    """Whole records: payloads are data[start : start + size]; `offset` counts in the file.

    good: whether the payload's checksum is right.
    """

    data: Bytes
    start: IntArray
    size: IntArray
    offset: IntArray
    good: BoolArray


class Gap(Struct, frozen=True):
    """Bytes that hold no record. kind: length (damaged, read on behind it), torn (the end)."""

    kind: str
    offset: int
    size: int


def record_blocks(stream: IO[bytes] | BufferedReader) -> Iterator[RecordBlock | Gap]:
    """Records and gaps of an event file in order; the last gap is what the end cut off."""
    rest, offset, lost, ended = b"", 0, -1, False
    while not ended:
        chunk = _read(stream, max(_BLOCK, len(rest)))
        ended = not chunk
        data = rest + chunk
        places, used = _walk(data)
        if len(places):
            yield _block(data, places, offset)
        rest, offset = data[used:], offset + used
        while len(rest) >= HEAD and not _length_is_good(rest):
            jump = _next_record(rest)
            lost = offset if lost < 0 else lost
            step = len(rest) - HEAD + 1 if jump is None else jump
            rest, offset = rest[step:], offset + step
            if jump is not None:
                yield Gap("length", lost, offset - lost)
                lost = -1
    if rest or lost >= 0:
        begin = lost if lost >= 0 else offset
        yield Gap("torn", begin, offset + len(rest) - begin)


def _read(stream: IO[bytes] | BufferedReader, size: int) -> bytes:
    try:
        return stream.read(size)
    except (OSError, EOFError, ValueError):
        return b""


def _walk(data: bytes) -> tuple[IntArray, int]:
    """Places of whole records from the start, and the place behind the last one.

    A trainer writes the same tags at every step, so lengths recur: after some records the next
    ones are guessed, all at once, and hold as far as their own lengths agree.
    """
    found: list[IntArray] = []
    at, stretch = 0, _STRETCH
    while True:
        places, sizes, behind = _one_by_one(data, at, stretch)
        found.append(np.array(places, dtype=np.int64))
        at = behind
        if len(places) < stretch:
            break
        guessed = _guessed(data, at, _recurring(sizes))
        stretch = _STRETCH if len(guessed) > stretch else 2 * stretch
        if len(guessed):
            found.append(guessed[:-1])
            at = int(guessed[-1])
    whole = np.concatenate(found)
    good = _first_good(data, whole)
    if good < len(whole):
        return whole[:good], int(whole[good])
    return whole, at


def _one_by_one(data: bytes, at: int, most: int) -> tuple[list[int], list[int], int]:
    """Places and payload sizes of the next whole records, and the place behind them."""
    places: list[int] = []
    sizes: list[int] = []
    end, read = len(data), _LENGTH.unpack_from
    while at + HEAD <= end and len(places) < most:
        size = read(data, at)[0]
        if size > _MAX_RECORD or at + HEAD + size + TAIL > end:
            break
        places.append(at)
        sizes.append(size)
        at += HEAD + size + TAIL
    return places, sizes, at


def _recurring(sizes: list[int]) -> list[int]:
    """The sizes that come again and again in the second half of the list; empty where none do.

    >>> _recurring([9, 3, 3, 5, 3, 3, 5, 3])
    [3, 5, 3]
    """
    half, count = len(sizes) // 2, len(sizes)
    last = sizes[count - half :]
    for period in range(1, half + 1):
        if last == sizes[count - half - period : count - period]:
            return sizes[-period:]
    return []


def _guessed(data: bytes, at: int, pattern: list[int]) -> IntArray:
    """Places of the records that follow the pattern, and the place behind the last of them."""
    if not pattern:
        return np.zeros(0, dtype=np.int64)
    steps = np.array(pattern, dtype=np.int64) + (HEAD + TAIL)
    turns = (len(data) - at) // int(steps.sum()) + 1
    bounds = np.concatenate(([at], at + np.cumsum(np.tile(steps, turns))))
    bounds = bounds[: max(int(np.searchsorted(bounds, len(data), side="right")), 1)]
    array = np.frombuffer(data, dtype=np.uint8)
    sizes = _gathered(array, bounds[:-1], "<u8").astype(np.int64)
    wrong = np.flatnonzero(sizes != np.diff(bounds) - (HEAD + TAIL))
    return bounds[: int(wrong[0]) + 1] if len(wrong) else bounds


def _first_good(data: bytes, at: IntArray) -> int:
    """How many records, from the first, have a length with the right checksum."""
    if not len(at):
        return 0
    array = np.frombuffer(data, dtype=np.uint8)
    sizes = _gathered(array, at, "<u8")
    distinct, back = np.unique(sizes, return_inverse=True)
    right = masked_of_lengths(distinct)[back] == _gathered(array, at + 8, "<u4")
    wrong = np.flatnonzero(~right)
    return int(wrong[0]) if len(wrong) else len(at)


def _gathered(data: Bytes, at: IntArray, kind: str) -> npt.NDArray[Any]:
    """Little-endian numbers at the given places."""
    width = np.dtype(kind).itemsize
    places = np.ndarray((max(len(data) - width + 1, 0),), kind, data, 0, (1,))
    numbers: npt.NDArray[Any] = places[at]
    return numbers


def _length_is_good(data: bytes) -> bool:
    size = np.frombuffer(data[:8], dtype="<u8")
    crc = int(np.frombuffer(data[8:HEAD], dtype="<u4")[0])
    return int(size[0]) <= _MAX_RECORD and int(masked_of_lengths(size)[0]) == crc


def _next_record(data: bytes) -> int | None:
    """The next place, not the first, that begins with a length and its checksum."""
    array = np.frombuffer(data, dtype=np.uint8)
    count = len(array) - HEAD
    for first in range(1, count, 1 << 18):
        at = np.arange(first, min(count, first + (1 << 18)), dtype=np.int64)
        sizes = _gathered(array, at, "<u8")
        at, sizes = at[sizes <= _MAX_RECORD], sizes[sizes <= _MAX_RECORD]
        hit = np.flatnonzero(masked_of_lengths(sizes) == _gathered(array, at + 8, "<u4"))
        if len(hit):
            return int(at[hit[0]])
    return None


def _block(data: bytes, at: IntArray, offset: int) -> RecordBlock:
    padded = np.zeros(MARGIN + len(data) + _SLACK, dtype=np.uint8)
    padded[MARGIN : MARGIN + len(data)] = np.frombuffer(data, dtype=np.uint8)
    size = np.diff(np.append(at, 0))
    size[-1] = _LENGTH.unpack_from(data, int(at[-1]))[0] + HEAD + TAIL
    size -= HEAD + TAIL
    start = at + MARGIN + HEAD
    told = _gathered(padded, start + size, "<u4")
    good = np.zeros(len(at), dtype=np.bool_)
    sure = size >= 4
    good[sure] = masked_of_spans(padded, start[sure], size[sure]) == told[sure]
    return RecordBlock(padded, start, size, at + offset, good)
