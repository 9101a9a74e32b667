"""Scalars of event records: arrays for the layout that nearly all of them have, one by one else.

    Event   { wall_time 1 double; step 2 int64; file_version 3; graph_def 4; summary 5;
              session_log 7 { status 1: START = 1 } }
    Summary { repeated value 1 { tag 1; simple_value 2 float | tensor 8; metadata 9 } }

torch, tensorboardX, Megatron, DeepSpeed, Hugging Face and Lightning write one simple_value per
event, always as `09 wall 10 step 2a len 0a len 0a len tag 15 value`; step 0 may be left out.
TensorFlow 2, Keras and JAX write scalars as tensors of one element, nearly always a float.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from loganalyze_parsers.protobuf import (
    Value,
    WireError,
    double,
    fields,
    signed,
    single,
    text,
    varint,
)
from loganalyze_parsers.tfevents_records import RecordBlock

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_FLOAT, _DOUBLE, _INT32, _INT64, _BFLOAT16, _HALF = 1, 2, 3, 9, 14, 19
_CONTENT = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}
_SKIPPED_PLUGINS = frozenset({"text", "images", "histograms", "hparams", "pr_curves", "audio"})


class Scalars(Struct, frozen=True):
    """One scalar a row, in the order written; `record` indexes the block's records."""

    record: IntArray
    wall_s: FloatArray
    step: IntArray
    tag: list[str]  # of every distinct tag
    tag_of: IntArray  # index into `tag`
    value: FloatArray


class Odd(Struct, frozen=True):
    """A record that is not of the usual layout: its scalars, or what else it is."""

    record: int
    wall_s: float
    step: int
    scalars: tuple[tuple[str, float], ...]
    rule: str = ""  # why it holds no scalar; `damaged` if it cannot be decoded


def usual(block: RecordBlock) -> tuple[Scalars, BoolArray]:
    """Scalars of all records of the usual layout, and which records those are."""
    data, at = block.data, block.start
    end = at + block.size
    fits = block.good & (block.size >= 20) & (data[at] == 0x09)
    rows = np.flatnonzero(fits)
    at, end = at[rows], end[rows]
    wall = _numbers(data, at + 1, "<f8")
    step, at, fine = _step(data, at + 9)
    for tag in (0x2A, 0x0A):  # the summary, its one value: each up to the end of the record
        size, behind, read = _varint(data, at + 1)
        fine &= (data[at] == tag) & read & (behind + size == end)
        at = np.where(fine, behind, 0)
    size, behind, read = _varint(data, at + 1)
    fine &= (data[at] == 0x0A) & read & (behind + size + 5 <= end)
    at = np.where(fine, behind + size, 0)
    single_value = fine & (data[at] == 0x15) & (at + 5 == end)
    fine = single_value | (fine & _is_tensor(data, at, end))
    rows, behind, size = rows[fine], behind[fine], size[fine]
    tags, tag_of = _tags(data, behind, size)
    value = _numbers(data, np.where(single_value, at + 1, at + 8)[fine], "<f4")
    is_usual = np.zeros(len(block.start), dtype=np.bool_)
    is_usual[rows] = True
    return Scalars(rows, wall[fine], step[fine], tags, tag_of, value), is_usual


def _is_tensor(data: Bytes, at: IntArray, end: IntArray) -> BoolArray:
    """Whether a tensor of one float stands at each place, with nothing but metadata behind it.

    `42 0a 08 01 12 00`, then `22 04` (tensor_content) or `2a 04` (float_val), then the float.
    """
    cells = data[np.minimum(at, len(data) - 16)[:, None] + np.arange(13)]
    right = (cells[:, :6] == (0x42, 0x0A, 0x08, 0x01, 0x12, 0x00)).all(axis=1) & (cells[:, 7] == 4)
    right &= (cells[:, 6] == 0x22) | (cells[:, 6] == 0x2A)
    size, behind, read = _varint(data, np.minimum(at + 13, len(data) - 1))
    metadata = (cells[:, 12] == 0x4A) & read & (behind + size == end)
    tensor: BoolArray = right & ((at + 12 == end) | metadata)
    return tensor


def _numbers(data: Bytes, at: IntArray, kind: str) -> FloatArray:
    width = np.dtype(kind).itemsize
    places = np.ndarray((len(data) - width + 1,), kind, data, 0, (1,))
    numbers: FloatArray = places[at].astype(np.float64)
    return numbers


def _step(data: Bytes, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """The step at each place (0 where it is left out), the place behind, whether it is sound."""
    said = data[at] == 0x10
    value, behind, read = _varint(data, at + 1)
    return np.where(said, value, 0), np.where(said, behind, at), read | ~said


def _varint(data: Bytes, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Numbers at the given places, the places behind them, and whether they end in time."""
    value = np.zeros(len(at), dtype=np.uint64)
    behind = at.copy()
    open_ = np.ones(len(at), dtype=np.bool_)
    for turn in range(10):
        byte = data[np.minimum(behind, len(data) - 1)]
        part = (byte & 0x7F).astype(np.uint64) << np.uint64(7 * turn)
        value = np.where(open_, value | part, value)
        behind = np.where(open_, behind + 1, behind)
        open_ = open_ & (byte >= 0x80)
        if not open_.any():
            break
    return value.view(np.int64), behind, ~open_


def _tags(data: Bytes, at: IntArray, size: IntArray) -> tuple[list[str], IntArray]:
    """Distinct tags and the index of each row's: a hash groups them, the bytes confirm it."""
    names: dict[bytes, int] = {}
    index = np.zeros(len(at), dtype=np.int64)
    for width in np.unique(size):
        rows = np.flatnonzero(size == width)
        cells = data[at[rows][:, None] + np.arange(int(width))]
        for members in _alike(cells):
            name = cells[members[0]].tobytes()
            index[rows[members]] = names.setdefault(name, len(names))
    return [name.decode("utf-8", "replace") for name in names], index


def _alike(cells: Bytes) -> Iterator[IntArray]:
    """Groups of equal rows."""
    odd = np.random.default_rng(0).integers(1, 2**63, cells.shape[1], dtype=np.uint64) | np.uint64(
        1
    )
    key = (cells.astype(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    for members in np.split(order, edges):
        left = members
        while len(left):
            same = (cells[left] == cells[left[0]]).all(axis=1)
            yield left[same]
            left = left[~same]


def odd(block: RecordBlock, record: int) -> Odd:
    """One record of another layout, decoded field by field."""
    start = int(block.start[record])
    payload = block.data[start : start + int(block.size[record])].tobytes()
    wall, step, rule = 0.0, 0, "record of another kind"
    found: list[tuple[str, float]] = []
    try:
        for number, value in fields(payload):
            if number == 1:
                wall = double(value)
            elif number == 2 and isinstance(value, int):
                step = signed(value)
            elif number == 3:
                rule = "file header"
            elif number == 5 and isinstance(value, bytes):
                rule = "text, image, histogram or hparams"
                found.extend(_values(value))
            elif number == 7:
                rule = "session mark"
    except WireError:
        return Odd(record, wall, step, (), "damaged")
    return Odd(record, wall, step, tuple(found), "" if found else rule)


def _values(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, value in fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag, found, plugin = "", None, ""
        for inner, part in fields(value):
            if inner == 1:
                tag = text(part)
            elif inner == 2:
                found = single(part)
            elif inner == 8 and isinstance(part, bytes):
                found = tensor_number(part)
            elif inner == 9 and isinstance(part, bytes):
                plugin = _plugin(part)
        if found is not None and tag and plugin not in _SKIPPED_PLUGINS:
            yield tag, found


def _plugin(metadata: bytes) -> str:
    for number, value in fields(metadata):
        if number == 1 and isinstance(value, bytes):
            return next((text(name) for inner, name in fields(value) if inner == 1), "")
    return ""


def tensor_number(tensor: bytes) -> float | None:
    """The number of a TensorProto of one element; None for strings and larger tensors."""
    kind, value, count = 0, None, 0
    for number, part in fields(tensor):
        if number == 1 and isinstance(part, int):
            kind = part
        elif number == 4 and isinstance(part, bytes):
            value, count = _content(kind, part), count + 1
        elif number in (5, 6, 7, 10, 13):
            value, count = _listed(number, part, kind), count + 1
    return value if count == 1 else None


def _content(kind: int, content: bytes) -> float | None:
    if kind == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\x00\x00" + content)[0])
    layout = _CONTENT.get(kind)
    if layout is None or struct.calcsize(layout) != len(content):
        return None
    return float(struct.unpack(layout, content)[0])


def _listed(number: int, part: Value, kind: int) -> float | None:
    """float_val 5, double_val 6, int_val 7, int64_val 10, half_val 13: packed or single."""
    if number == 5:
        return single(part) if len(_bytes(part)) == 4 else None
    if number == 6:
        return double(part) if len(_bytes(part)) == 8 else None
    if isinstance(part, bytes):
        packed = list(_packed(part))
        if len(packed) != 1:
            return None
        part = packed[0]
    if number == 13:
        return _content(kind, part.to_bytes(2, "little")) if part < 65536 else None
    return float(signed(part))


def _bytes(part: Value) -> bytes:
    return part if isinstance(part, bytes) else b""


def _packed(part: bytes) -> Iterator[int]:
    at = 0
    while at < len(part):
        value, at = varint(part, at)
        yield value
