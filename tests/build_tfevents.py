"""Writes TensorBoard event files for tests, with the checksums of TFRecord."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from build_wandb import field


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as TFRecord stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(payload: bytes) -> bytes:
    """One framed record."""
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked(length)) + payload + struct.pack("<I", masked(payload))


def single(number: int, value: float) -> bytes:
    """A float field."""
    return bytes([number << 3 | 5]) + struct.pack("<f", value)


def event(wall: float, step: int, *parts: bytes) -> bytes:
    """An Event message; step 0 is left out, as proto3 does."""
    return field(1, float(wall)) + (field(2, step) if step else b"") + b"".join(parts)


def simple(tag: str, value: float) -> bytes:
    """A summary with one simple_value."""
    return field(5, field(1, field(1, tag) + single(2, value)))


def tensor(tag: str, value: float, *, content: bool) -> bytes:
    """A summary with a tensor of one float, as TensorFlow 2 writes scalars."""
    number = field(4, struct.pack("<f", value)) if content else field(5, struct.pack("<f", value))
    body = field(1, 1) + field(2, b"") + number
    plugin = field(9, field(1, field(1, "scalars")))
    return field(5, field(1, field(1, tag) + field(8, body) + plugin))


def text_summary(tag: str, words: str) -> bytes:
    """A summary of the text plugin."""
    body = field(1, 7) + field(2, b"") + field(8, words)
    return field(5, field(1, field(1, tag) + field(8, body) + field(9, field(1, field(1, "text")))))


def session_start() -> bytes:
    """The mark that a writer with purge_step leaves."""
    return field(7, field(1, 1))


def version() -> bytes:
    """The first record of every file."""
    return record(event(1.0, 0, field(3, "brain.Event:2")))


def events_file(events: Iterable[bytes]) -> bytes:
    """A whole file."""
    return version() + b"".join(record(one) for one in events)
