"""The hash of an input, made so that it can be carried on when the input grows.

SHA-256 of the bytes; of an input beyond PIECE bytes, SHA-256 of the digests of its pieces:

    split -b 16M LOG --filter='sha256sum | cut -c1-64 | xxd -r -p' | sha256sum
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

PIECE = 16 << 20
_CHUNK = 1 << 20


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

    def update(self, data: bytes) -> None:
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


def digest_of(path: Path, size: int | None = None) -> Digest:
    """Digest of a file, or of its first `size` bytes. Raises OSError."""
    digest = Digest()
    with path.open("rb", buffering=0) as file:
        while data := file.read(_CHUNK if size is None else min(_CHUNK, size - digest.size)):
            digest.update(data)
    return digest
