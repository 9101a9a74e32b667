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


def test_begun_early_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash that begin() started is the file's; small files, folders and several are left."""
    monkeypatch.setattr(digest, "PIECE", 10)
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(range(35)))
    small.write_bytes(bytes(range(10)))
    want = digest_of(large).hexdigest()
    digest.begin([str(large)])
    assert len(digest._begun) == 1
    assert digest_of(large).hexdigest() == want
    for other in ([str(small)], [str(tmp_path)], [str(large), str(small)], [], ["none"], ["a\0b"]):
        digest.begin(other)
    assert not digest._begun


def test_a_file_that_cannot_be_read_early_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed in the thread is said by digest_of() itself."""
    monkeypatch.setattr(digest, "PIECE", 10)
    path = tmp_path / "log"
    path.write_bytes(bytes(35))
    hashed = digest._hashed
    monkeypatch.setattr(digest, "_hashed", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    digest.begin([str(path)])
    next(iter(digest._begun.values())).join()
    monkeypatch.setattr(digest, "_hashed", hashed)
    assert digest_of(path).size == 35
