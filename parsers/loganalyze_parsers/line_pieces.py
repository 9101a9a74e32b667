"""The parts of a line between carriage returns: a progress bar redraws itself on one line."""

from __future__ import annotations

from collections.abc import Iterator

#: Pieces of one line beyond this number are not looked at: a progress bar redraws itself so often.
MAX_PIECES = 200_000


def pieces(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The parts between carriage returns, with where each starts; one empty part if none.

    >>> list(pieces(b"  1%|#\\r  2%|##\\r\\r"))
    [(b'  1%|#', 0), (b'  2%|##', 7)]
    """
    if b"\r" not in raw:
        yield raw, 0
        return
    start = 0
    yielded = 0
    for piece in raw.split(b"\r"):
        if piece.strip() and yielded < MAX_PIECES:
            yield piece, start
            yielded += 1
        start += len(piece) + 1
    if not yielded:
        yield b"", 0
