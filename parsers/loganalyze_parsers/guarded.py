"""Blocks of a file that may be damaged: what goes wrong is told, what was read before it stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loganalyze.model import Problem
from loganalyze_parsers.blocks import MAX_LINE_BYTES, Block, open_bytes, read_blocks
from loganalyze_parsers.unpack import broken

_MOST_TOLD = 20  # lines beyond the limit that are told one by one


def guarded_blocks(
    path: Path, *, redraws: bool = False
) -> tuple[Iterator[Block], list[Problem]]:
    """The blocks of a file, and problems: complete when the last block was taken.

    redraws: as in read_blocks().
    """
    told: list[Problem] = []

    def blocks() -> Iterator[Block]:
        cut: list[int] = []
        try:
            with open_bytes(path) as stream:
                yield from read_blocks(stream, cut=cut, redraws=redraws)
        except (OSError, EOFError, ValueError) as error:
            told.append(broken(path, error))
        told.extend(_too_long(path, line) for line in cut[:_MOST_TOLD])

    return blocks(), told


def _too_long(path: Path, line: int) -> Problem:
    size = f"{MAX_LINE_BYTES >> 20} MiB"
    message = f"{path}:{line}: the line is longer than {size}; the rest of it is left out"
    return Problem(rule="limit_reached", message=message)
