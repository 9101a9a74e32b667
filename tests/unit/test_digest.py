"""The hash of an input against hashing its pieces one by one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from loganalyze import digest
from loganalyze.digest import Digest, digest_of


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 35])
def test_equals_the_hashes_of_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Up to one piece SHA-256 of the bytes, beyond that of the digests of the pieces."""
    monkeypatch.setattr(digest, "PIECE", 10)
    data = bytes(range(size))
    pieces = [hashlib.sha256(data[at : at + 10]).digest() for at in range(0, size, 10)]
    want = hashlib.sha256(data if size <= 10 else b"".join(pieces)).hexdigest()
    path = tmp_path / "log"
    path.write_bytes(data)
    made = digest_of(path)
    assert made.hexdigest() == want
    assert made.size == size
    whole = size // 10
    again = Digest(pieces[:whole])
    again.update(data[whole * 10 :])
    assert again.hexdigest() == want
    assert again.told() == tuple(piece.hex() for piece in pieces[:whole])
    assert digest_of(path, size // 2).hexdigest() == digest_of_bytes(data[: size // 2])


def digest_of_bytes(data: bytes) -> str:
    """By one update."""
    made = Digest()
    made.update(data)
    return made.hexdigest()
