"""What the fuzzer does to an input: cut, splice, damage, swell; bytes to bytes."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from random import Random

import pyarrow as pa

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
ODD_NUMBERS = (
    b"1e999", b"-1e999", b"-0", b"-0.0", b"1,234.5", b"1.234,5", b"9223372036854775808",
    b"-9223372036854775809", b"99999999999999999999999999", b"9" * 400, b"nan", b"-nan", b"inf",
    b"NaN", b"Infinity", b"null", b"None", b"", b"0x1F", b"1_000", b"1e-400", b"4e-324",
    b"1.7976931348623157e308", b"1e308", b"2147483648", b"-1", b"1e18", "١٢".encode(), b"--5",
    b"1.2.3", b"5%", b"true", b"9007199254740993", b"18446744073709551616",
)  # fmt: skip
BAD_TEXT = (
    b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x1b[31m",
    b"\x1b]0;x\x07",
    "\u202e".encode(), "\u2028".encode(), "\u0085".encode(), b"\x0b", b"\x0c", b"\x1c", b"\ufeff",
    b"\r", b"\r\r\n", b"\t", b"{", b"}", b"[" * 50, b'"', b"'", b"|", b",", b"\\",
    b"\n\n", b"=",
)  # fmt: skip

Mutation = Callable[[bytes, bytes, Random], bytes]


def cut(data: bytes, other: bytes, rng: Random) -> bytes:
    """The beginning up to any byte."""
    return data[: rng.randint(0, len(data))]


def behead(data: bytes, other: bytes, rng: Random) -> bytes:
    """The end from any byte."""
    return data[rng.randint(0, len(data)) :]


def splice(data: bytes, other: bytes, rng: Random) -> bytes:
    """The beginning of one and the end of another."""
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def interleave(data: bytes, other: bytes, rng: Random) -> bytes:
    """Lines of two inputs in turn, some without the newline between them."""
    lines = []
    for first, second in zip(data.split(b"\n"), other.split(b"\n"), strict=False):
        lines += [first, second] if rng.random() < 0.9 else [first + second]
    return b"\n".join(lines)


def duplicate(data: bytes, other: bytes, rng: Random) -> bytes:
    """A stretch of lines again, somewhere else."""
    lines = data.split(b"\n")
    first = rng.randrange(len(lines))
    part = lines[first : first + rng.randint(1, 60)] * rng.choice((1, 1, 2, 40))
    at = rng.randrange(len(lines) + 1)
    return b"\n".join([*lines[:at], *part, *lines[at:]])


def shuffle(data: bytes, other: bytes, rng: Random) -> bytes:
    """Lines in another order."""
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def crlf(data: bytes, other: bytes, rng: Random) -> bytes:
    """Windows' line ends, or those of old Macs."""
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\r\r\n")))


def utf16(data: bytes, other: bytes, rng: Random) -> bytes:
    """The text as UTF-16, with or without a mark, or with a UTF-8 mark."""
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32")))


def bad_text(data: bytes, other: bytes, rng: Random) -> bytes:
    """Odd bytes in a few places."""
    for _ in range(rng.choice((1, 3, 20))):
        at = rng.randint(0, len(data))
        data = data[:at] + rng.choice(BAD_TEXT) * rng.choice((1, 1, 1, 300)) + data[at:]
    return data


def odd_number(data: bytes, other: bytes, rng: Random) -> bytes:
    """Odd numbers in the place of some."""
    share = rng.choice((0.01, 0.1, 0.9))

    def swapped(match: re.Match[bytes]) -> bytes:
        return rng.choice(ODD_NUMBERS) if rng.random() < share else match[0]

    return _NUMBER.sub(swapped, data)


def same_odd_number(data: bytes, other: bytes, rng: Random) -> bytes:
    """One number, wherever it stands, becomes one odd number."""
    found = _NUMBER.findall(data)
    return data.replace(rng.choice(found), rng.choice(ODD_NUMBERS)) if found else data


def bit_flips(data: bytes, other: bytes, rng: Random) -> bytes:
    """Some bits turned."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 5, 50)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def zeroed(data: bytes, other: bytes, rng: Random) -> bytes:
    """A stretch of zeros or ones, as a broken disk leaves it."""
    at, size = rng.randint(0, len(data)), rng.choice((1, 8, 512, 4096))
    return data[:at] + rng.choice((b"\x00", b"\xff")) * size + data[at + size :]


def many_keys(data: bytes, other: bytes, rng: Random) -> bytes:
    """Thousands of distinct keys on the lines after the first ones."""
    count = rng.choice((100, 3000))
    lines = data.split(b"\n")
    made = [b"step: %d - metric_%d: %d.5 loss: 1.5" % (n, n, n) for n in range(count)]
    wide = b"step: 1 " + b" ".join(b"- k%d: 1.5" % n for n in range(count))
    dicts = b"{" + b", ".join(b"'key%d': 1.5" % n for n in range(count)) + b"}"
    return b"\n".join([*lines[:5], *rng.choice((made, [wide], [dicts])), *lines[5:]])


def deep_json(data: bytes, other: bytes, rng: Random) -> bytes:
    """JSON ten thousand levels deep, alone, as a value, or on a line."""
    depth = rng.choice((900, 10_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"loss":', b"}"), (b'{"a":[', b"]}")))
    deep = opening * depth + b"1" + closing * rng.choice((depth, 0))
    at = rng.randint(0, len(data))
    return rng.choice((deep, data.replace(b"1.", deep, 1), data[:at] + b"\n" + deep + data[at:]))


def wide_csv(data: bytes, other: bytes, rng: Random) -> bytes:
    """A table of very many columns."""
    count = rng.choice((3000, 100_000)) if rng.random() < 0.2 else 3000
    head = b"_step,train/loss," + b",".join(b"c%d" % n for n in range(count))
    rows = [b"%d,2.5" % n + b",1" * count for n in range(3)]
    return b"\n".join([head, *rows, data[:200]])


def long_line(data: bytes, other: bytes, rng: Random) -> bytes:
    """One line of a megabyte or two."""
    filler = rng.choice((b"a", b" ", b"1", b"|", b":", b"loss: 1 ", b"{'a': ", b"[rank0]:", b"=,"))
    size = rng.choice((100_000, 1_000_000)) // len(filler)
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((lines[at] + filler * size, filler * size + lines[at]))
    return b"\n".join(lines)


def carriage_returns(data: bytes, other: bytes, rng: Random) -> bytes:
    """A progress bar that redraws itself very often."""
    bar = rng.choice((b"\r", b"\r  5%|#   | 5/99 [00:01<00:20, 1.2s/it]", b"\rloss 1.5 step 3"))
    return data[:2000] + bar * rng.choice((1000, 20_000)) + data[2000:]


def joined_lines(data: bytes, other: bytes, rng: Random) -> bytes:
    """Line ends lost here and there, or everywhere."""
    share = rng.choice((0.1, 1.0))
    parts = data.split(b"\n")
    return b"".join(part + (b"" if rng.random() < share else b"\n") for part in parts)


def gz(data: bytes, other: bytes, rng: Random) -> bytes:
    """Compressed, perhaps cut or damaged."""
    packed = gzip.compress(data) if rng.random() < 0.5 else pa.compress(data, "zstd", asbytes=True)
    return rng.choice((packed, cut(packed, other, rng), bit_flips(packed, other, rng)))


def bomb(data: bytes, other: bytes, rng: Random) -> bytes:
    """A few kilobytes that unpack to megabytes of nothing."""
    filler = rng.choice((b"\x00", b"\n", b" ", b"loss: 1 step: 2\n"))
    swollen = data + filler * (4_000_000 // len(filler))
    return gzip.compress(swollen, 1) if rng.random() < 0.5 else pa.compress(
        swollen, "zstd", asbytes=True)  # fmt: skip


def json_values(data: bytes, other: bytes, rng: Random) -> bytes:
    """Values of a JSON document, or of its lines, exchanged for values of another type."""
    odd = (
        None,
        True,
        [],
        {},
        "",
        "NaN",
        "1e999",
        [1, [2]],
        {"a": {"b": 1}},
        10**400,
        -1,
        "x" * 999,
    )

    def changed(value: object) -> object:
        if rng.random() < 0.03:
            return rng.choice(odd)
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        return [changed(item) for item in value] if isinstance(value, list) else value

    try:
        return json.dumps(changed(json.loads(data))).encode()
    except (ValueError, RecursionError):
        pass
    try:
        lines = [json.dumps(changed(json.loads(line))) for line in data.split(b"\n") if line]
        return "\n".join(lines).encode()
    except (ValueError, RecursionError):
        return bit_flips(data, other, rng)


TEXT: tuple[Mutation, ...] = (
    cut, behead, splice, interleave, duplicate, shuffle, crlf, utf16, bad_text, odd_number,
    same_odd_number, bit_flips, zeroed, joined_lines, gz, json_values,
)  # fmt: skip
BINARY: tuple[Mutation, ...] = (
    cut, behead, splice, bit_flips, bit_flips, bit_flips, zeroed, duplicate, same_odd_number,
    odd_number, gz, bad_text,
)  # fmt: skip
#: Those that make an input large; used seldom.
HEAVY: tuple[Mutation, ...] = (
    many_keys, deep_json, deep_json, wide_csv, long_line, carriage_returns, bomb,
)  # fmt: skip
