"""Writes `.wandb` logs for tests: protobuf fields, LevelDB-style chunks, any damage wanted."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping

BLOCK = 32768
HEADER = b":W&B\xe1\xbe\x00"


def varint(value: int) -> bytes:
    """An unsigned number in groups of seven bits; negative ones as 64 bits."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | int | float) -> bytes:
    """One field: text and bytes by length, an int as varint, a float as double."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def time_of(seconds: float) -> bytes:
    """A google.protobuf.Timestamp."""
    return field(1, int(seconds)) + field(2, round(seconds % 1 * 1e9))


def item(key: str, value: object, *, nested: bool = True) -> bytes:
    """A history, config or summary item with value_json; bare NaN as W&B writes it."""
    keys = b"".join(field(2, part) for part in [key]) if nested else field(1, key)
    return keys + field(16, json.dumps(value))


def history(values: Mapping[str, object], *, nested: bool = True, step: int | None = None) -> bytes:
    """A record with one history row."""
    body = b"".join(field(1, item(key, value, nested=nested)) for key, value in values.items())
    if step is not None:
        body += field(2, field(1, step))
    return field(2, body)


def stats(seconds: float, values: Mapping[str, object]) -> bytes:
    """A record of system metrics."""
    items = [field(3, field(1, key) + field(16, json.dumps(v))) for key, v in values.items()]
    return field(7, field(2, time_of(seconds)) + b"".join(items))


def config(values: Mapping[str, object]) -> bytes:
    """A record that updates the configuration."""
    return field(5, b"".join(field(1, item(key, value)) for key, value in values.items()))


def metric(name: str, step_metric: str) -> bytes:
    """A define_metric() record."""
    return field(12, field(2, name) + field(4, step_metric))


def exit_record(code: int, runtime: int = 10) -> bytes:
    """The record of a regular end."""
    return field(18, field(1, code) + field(2, runtime))


def printed(line: str) -> bytes:
    """A piece of console output."""
    return field(13, field(1, 1) + field(3, line))


def wandb_log(bodies: list[bytes], *, base: int = 0, header: bytes = HEADER) -> bytes:
    """A whole log; blocks are counted from `base` (0, or 7 as wandb-core did before 0.17.6)."""
    out = bytearray(header)
    for number, body in enumerate(bodies, start=1):
        _chunks(out, field(1, number) + body, base)
    return bytes(out)


def _chunks(out: bytearray, payload: bytes, base: int) -> None:
    first = True
    while True:
        left = BLOCK - (len(out) - base) % BLOCK
        if left < 7:
            out.extend(bytes(left))
            left = BLOCK
        size = min(left - 7, len(payload))
        last = size == len(payload)
        kind = 1 if first and last else 2 if first else 4 if last else 3
        part, payload = payload[:size], payload[size:]
        crc = zlib.crc32(part, zlib.crc32(bytes([kind])))
        out.extend(struct.pack("<IHB", crc, size, kind) + part)
        first = False
        if last:
            return
