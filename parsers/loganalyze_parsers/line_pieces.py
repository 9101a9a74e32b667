"""The parts of a line between carriage returns: a progress bar redraws itself on one line."""

from __future__ import annotations

from collections.abc import Iterator

from loganalyze.model import LineRef, Problem
from loganalyze_parsers.api import Taken

#: Pieces of one line that no reader takes, beyond which the rest of it is left out (and told).
MAX_UNREAD = 200_000
#: A piece longer than this is looked at only as far (verl prints lines of 30 kB).
_MAX_CHARS = 1_000_000


def pieces(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The parts between carriage returns, with where each starts; one empty part if none.

    >>> list(pieces(b"  1%|#\\r  2%|##\\r\\r"))
    [(b'  1%|#', 0), (b'  2%|##', 7)]
    """
    if b"\r" not in raw:
        yield raw, 0
        return
    start = 0
    some = False
    for piece in raw.split(b"\r"):
        if piece.strip():
            some = True
            yield piece, start
        start += len(piece) + 1
    if not some:
        yield b"", 0


def text_of(piece: bytes) -> str:
    """A piece as text, whatever bytes it holds."""
    return piece[: 4 * _MAX_CHARS].decode("utf-8", "replace")[:_MAX_CHARS]


def rest_left_out(ref: LineRef) -> Taken:
    """Told of a line of which too much is of no known kind. ref: the first piece left out."""
    message = (
        f"line {ref.line}: {MAX_UNREAD:,} parts between carriage returns are of no known kind; "
        f"the rest of it, from byte {ref.offset} of the file on, is left out"
    )
    return Taken(problems=[Problem(rule="limit_reached", message=message, ref=ref)])
