"""The hash of an input, made so that it can be carried on when the input grows.

SHA-256 of the bytes; of an input beyond PIECE bytes, SHA-256 of the digests of its pieces:

    split -b 16M LOG --filter='sha256sum | cut -c1-64 | xxd -r -p' | sha256sum
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

PIECE = 16 << 20
#: Read and hashed at once; between two chunks the thread waits for its turn in the interpreter,
#: which takes longer than to hash a small one.
_CHUNK = PIECE
_LEAST_CHUNK = 64 << 10  # what has no size yet, or grows


class Digest:
    """Takes bytes in, in order."""

    def __init__(self, pieces: Sequence[bytes] = ()) -> None:
        """pieces: digests of whole pieces that went before."""
        self.pieces = list(pieces)
        self._now = hashlib.sha256()
        self._held = 0

    @property
    def size(self) -> int:
        """Bytes taken in, those of the pieces before counted."""
        return len(self.pieces) * PIECE + self._held

    def update(self, data: bytes | memoryview) -> None:
        """Take bytes in."""
        view = memoryview(data)
        while len(view):
            part = view[: PIECE - self._held]
            self._now.update(part)
            self._held += len(part)
            view = view[len(part) :]
            if self._held == PIECE:
                self.pieces.append(self._now.digest())
                self._now, self._held = hashlib.sha256(), 0

    def told(self) -> tuple[str, ...]:
        """The digests of whole pieces, as hex."""
        return tuple(piece.hex() for piece in self.pieces)

    def tail(self) -> str:
        """The hash of what came behind the whole pieces, as hex."""
        return self._now.hexdigest()

    def hexdigest(self) -> str:
        """The hash of all bytes so far."""
        if not self.pieces:
            return self._now.hexdigest()
        if len(self.pieces) == 1 and not self._held:
            return self.pieces[0].hex()
        last = [self._now.digest()] if self._held else []
        return hashlib.sha256(b"".join([*self.pieces, *last])).hexdigest()


class _Begun(Thread):
    """Hashes a file beside whatever else is done."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._digest: Digest | None = None

    def run(self) -> None:
        with suppress(OSError):
            self._digest = _hashed(self._path)

    def result(self) -> Digest | None:
        """The digest when it is there; None where the file could not be read."""
        self.join()
        return self._digest


_begun: dict[tuple[int, int], _Begun] = {}


def begin(named: Sequence[str]) -> None:
    """Start to hash a single large file; digest_of() then waits for it.

    For a command that knows its input before its modules are loaded: that takes half a second,
    which one core spends on the hash of half a gigabyte. named: the command's arguments.
    """
    with suppress(OSError, ValueError):
        found = os.stat(named[0]) if len(named) == 1 else None
        if found and stat.S_ISREG(found.st_mode) and found.st_size > PIECE:
            begun = _begun[found.st_dev, found.st_ino] = _Begun(Path(named[0]))
            begun.start()


def digest_of(path: Path, size: int | None = None) -> Digest:
    """Digest of a file, or of its first `size` bytes. Raises OSError."""
    found = path.stat()
    begun = _begun.pop((found.st_dev, found.st_ino), None) if size is None else None
    return (begun.result() if begun else None) or _hashed(path, size)


def _hashed(path: Path, size: int | None = None) -> Digest:
    digest = Digest()
    with path.open("rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size if size is None else size
        # Pages of its own: into memory that begins a few bytes behind one, as malloc's does, some
        # systems copy a file five times as slowly.
        room = memoryview(mmap.mmap(-1, min(_CHUNK, max(left, _LEAST_CHUNK))))
        while count := file.readinto(room if size is None else room[: size - digest.size]):
            digest.update(room[:count])
    return digest
