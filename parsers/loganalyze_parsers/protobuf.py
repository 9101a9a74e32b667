"""The protobuf wire format, as far as trackers' files need it: no schema, no generated code.

A message is a list of fields: a varint tag (number << 3 | wire type), then a varint (type 0),
8 bytes (1), a length and that many bytes (2), or 4 bytes (5). Unknown fields are stepped over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_VARINT_BYTES = 10  # 64 bits in groups of seven

Value = int | bytes


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at data[at] and the place after it. Raises WireError where it is torn.

    >>> varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise WireError("a number breaks off")


def fields(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[int, Value]]:
    """Field number and value of every field; 4 and 8 byte values come as bytes.

    Raises WireError where the bytes are no message.
    """
    end = len(data) if end is None else end
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise WireError(f"wire type {kind}")
        if at + length > end:
            raise WireError("a field is longer than its message")
        yield tag >> 3, data[at : at + length]
        at += length


def signed(value: int) -> int:
    """An int64 from its unsigned varint."""
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """A sint64 from its varint.

    >>> zigzag(3), zigzag(4)
    (-2, 2)
    """
    return (value >> 1) ^ -(value & 1)


def double(value: Value) -> float:
    """The number of an 8 byte field. Raises WireError for another field."""
    if not isinstance(value, bytes) or len(value) != 8:
        raise WireError("not a double")
    return float(_DOUBLE.unpack(value)[0])


def single(value: Value) -> float:
    """The number of a 4 byte field. Raises WireError for another field."""
    if not isinstance(value, bytes) or len(value) != 4:
        raise WireError("not a float")
    return float(_FLOAT.unpack(value)[0])


def text(value: Value) -> str:
    """A string field; an empty string for a field of another kind."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def timestamp(value: Value) -> float | None:
    """Seconds since the epoch of a google.protobuf.Timestamp {seconds 1, nanos 2}."""
    if not isinstance(value, bytes):
        return None
    parts = {number: part for number, part in fields(value) if isinstance(part, int)}
    return signed(parts[1]) + parts.get(2, 0) * 1e-9 if 1 in parts else None
