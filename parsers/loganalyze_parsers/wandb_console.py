"""What a run printed, as its tracker kept it: text, and the record that each byte came from.

W&B and SwanLab keep console output in pieces (a fragment, a line, or several; `\\r` of progress
bars included). The text parsers read the joined text; what they cite is found again by place().
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Struct


class Console(Struct, frozen=True):
    """text: all pieces joined. start: where each piece begins in it. record: number, byte offset
    and length of each piece's record in the log."""

    text: bytes
    start: tuple[int, ...]
    record: tuple[tuple[int, int, int], ...]

    def place(self, at: int) -> tuple[int, int, int]:
        """Number, offset and length of the record that holds byte `at` of the text.

        >>> console_of([((4, 100, 20), "one "), ((7, 180, 25), "two")]).place(5)
        (7, 180, 25)
        """
        return self.record[max(0, bisect_right(self.start, at) - 1)]


def console_of(pieces: Iterable[tuple[tuple[int, int, int], str]]) -> Console:
    """Pieces of text with their records, joined."""
    start: list[int] = []
    record: list[tuple[int, int, int]] = []
    parts: list[bytes] = []
    size = 0
    for place, words in pieces:
        data = words.encode("utf-8", "replace")
        if data:
            start.append(size)
            record.append(place)
            parts.append(data)
            size += len(data)
    return Console(b"".join(parts), tuple(start), tuple(record))
