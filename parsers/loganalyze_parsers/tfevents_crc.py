"""CRC-32C (Castagnoli), masked as TFRecord files have it, for many records at once.

The records of a block stand side by side in one array; numpy takes two bytes of all of them per
step. Records of different lengths are aligned at their ends: leading zeros do not change a CRC
that starts from 0, and starting from 0xFFFFFFFF is the same as inverting the first four bytes.
Mask (TFRecord): rotate right by 15 bits, add 0xA282EAD8.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Crc = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = np.uint32(0xA282EAD8)
_LANE = 32  # records are padded to a multiple of this many bytes, to be handled together
_LONG = 1024  # a longer record is cut into pieces that stand side by side
_PIECE = 256
_CELLS = 1 << 18  # bytes gathered at a time: they stay in a core's own cache
#: What becomes of a byte before a span, of its first four, of those behind them.
_KEPT = np.array([0, 255, 255, 255, 255, 255], dtype=np.uint8)
_INVERTED = np.array([0, 255, 255, 255, 255, 0], dtype=np.uint8)
#: Bytes that must stand before the first record, so that a padded record can be gathered.
MARGIN = _LANE


@cache
def _byte_table() -> Crc:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


@cache
def _pair_table() -> Crc:
    """CRC of two bytes, little-endian, starting from 0."""
    one = _byte_table()
    low = one[np.arange(65536) & 255]
    pairs: Crc = one[(low ^ (np.arange(65536, dtype=np.uint32) >> 8)) & 255] ^ (low >> 8)
    return pairs


def _masked(crc: Crc) -> Crc:
    crc = ~crc
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def masked_of_lengths(lengths: npt.NDArray[np.uint64]) -> Crc:
    """The masked checksum of each length's eight bytes (little-endian)."""
    table = _pair_table()
    crc = np.full(len(lengths), 0xFFFFFFFF, dtype=np.uint32)
    words = lengths.astype("<u8").view("<u2").reshape(-1, 4)
    for place in range(4):
        crc = table[(crc ^ words[:, place]) & np.uint32(0xFFFF)] ^ (crc >> np.uint32(16))
    return _masked(crc)


def masked_of_spans(data: Bytes, starts: IntArray, sizes: IntArray) -> Crc:
    """The masked checksum of data[start : start + size] for every span.

    Every start is at least MARGIN; sizes are at least 4.
    """
    result = np.zeros(len(starts), dtype=np.uint32)
    for at in np.flatnonzero(sizes > _LONG).tolist():
        span = data[starts[at] : starts[at] + sizes[at]]
        result[at] = _of_long(span)
    lanes = -(-sizes // _LANE)
    for count in np.unique(lanes[sizes <= _LONG]):
        width = int(count) * _LANE
        where = np.flatnonzero((lanes == count) & (sizes <= _LONG))
        step = max(1, _CELLS // width)
        for at in range(0, len(where), step):
            part = where[at : at + step]
            result[part] = _of_width(data, starts[part], sizes[part], width)
    return result


def _of_width(data: Bytes, starts: IntArray, sizes: IntArray, width: int) -> Crc:
    """Checksums of spans of at most `width` bytes, more than width - _LANE."""
    rows = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    table = rows[starts + sizes - width].view(np.uint8).reshape(len(starts), width)
    head = min(width, _LANE + 4)  # only here can padding and the first four bytes be
    behind = np.arange(head) - (width - sizes)[:, None]  # the first byte of a span
    table[:, :head] &= _KEPT[behind.clip(-1, 4) + 1]
    table[:, :head] ^= _INVERTED[behind.clip(-1, 4) + 1]
    return _masked(_of_rows(table))


def _of_rows(table: Bytes) -> Crc:
    """CRC from 0 of every row, from left to right; an even number of contiguous columns."""
    pairs = _pair_table()
    crc = np.zeros(len(table), dtype=np.uint32)
    for word in table.view("<u2").T:
        crc = pairs[(crc ^ word) & np.uint32(0xFFFF)] ^ (crc >> np.uint32(16))
    return crc


@cache
def _shift_tables() -> tuple[list[int], ...]:
    """What each byte of a CRC becomes when _PIECE bytes of zeros follow (a CRC is linear)."""
    table = _byte_table()
    made = []
    for place in range(4):
        crc = np.arange(256, dtype=np.uint32) << np.uint32(8 * place)
        for _ in range(_PIECE):
            crc = table[crc & np.uint32(255)] ^ (crc >> np.uint32(8))
        made.append(crc.tolist())
    return tuple(made)


def _of_long(span: Bytes) -> np.uint32:
    """Checksum of one long span: its pieces side by side, then one after the other."""
    pieces = -(-len(span) // _PIECE)
    padded = np.zeros(pieces * _PIECE, dtype=np.uint8)
    padded[len(padded) - len(span) :] = span
    first = len(padded) - len(span)
    padded[first : first + 4] ^= 0xFF
    a, b, c, d = _shift_tables()
    crc = 0
    for part in _of_rows(padded.reshape(pieces, _PIECE)).tolist():
        crc = a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24] ^ part
    masked: np.uint32 = _masked(np.array([crc], dtype=np.uint32))[0]
    return masked
