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
_CELLS = 1 << 22  # bytes gathered at a time
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
    lanes = -(-sizes // _LANE)
    for count in np.unique(lanes):
        width = int(count) * _LANE
        where = np.flatnonzero(lanes == count)
        step = max(1, _CELLS // width)
        for at in range(0, len(where), step):
            part = where[at : at + step]
            result[part] = _of_width(data, starts[part], sizes[part], width)
    return result


def _of_width(data: Bytes, starts: IntArray, sizes: IntArray, width: int) -> Crc:
    """Checksums of spans of at most `width` bytes, more than width - _LANE."""
    places = np.arange(width, dtype=np.int64)[:, None]
    first = (width - sizes)[None, :]
    table = np.empty((width, len(starts)), dtype=np.uint8)
    np.take(data, (starts + sizes - width)[None, :] + places, out=table)
    head = min(width, _LANE + 4)  # only here can padding and the first four bytes be
    table[:head][places[:head] < first] = 0
    table[:head][(places[:head] >= first) & (places[:head] < first + 4)] ^= 0xFF
    pairs = _pair_table()
    crc = np.zeros(len(starts), dtype=np.uint32)
    for at in range(0, width, 2):
        word = table[at].astype(np.uint32) | (table[at + 1].astype(np.uint32) << np.uint32(8))
        crc = pairs[(crc ^ word) & np.uint32(0xFFFF)] ^ (crc >> np.uint32(16))
    return _masked(crc)
