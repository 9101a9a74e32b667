"""The new whole lines of a growing file, through rotation by rename and by truncation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from loganalyze_parsers.blocks import BLOCK_BYTES, MAX_LINE_BYTES, Block
from msgspec import Struct

#: The file's beginning, by which a new file of the same name and length is told from the old one.
_HEAD_BYTES = 256


class Piece(Struct, frozen=True, kw_only=True):
    """Whole lines of one part of the log; `last` where nothing of that part will follow.

    part: 0 for the file as it was found, one more after each rotation.
    """

    part: int
    block: Block
    last: bool = False


class Tail:
    """Reads on where it stopped. A line counts once its newline is on disk (or its file is gone);
    of one that is redrawn, each redraw but the last.

    Raises nothing for a file that is away for a while: rotation leaves such a moment.
    """

    def __init__(self, path: Path) -> None:
        """path: the log; it need not exist yet."""
        self._path = path
        self._file: BinaryIO | None = None
        self._inode = -1
        self._head = b""
        self._rest = b""
        self._offset, self._line = 0, 1
        self.part = 0

    def read(self) -> list[Piece]:
        """What came since the last call, at most BLOCK_BYTES of it; [] where nothing did."""
        if self._file is None and not self._open():
            return []
        made = self._grown()
        if not made and self._replaced():
            made = self._closed()
        return made

    def _open(self) -> bool:
        try:
            self._file = self._path.open("rb")
        except OSError:
            return False
        self._inode = os.fstat(self._file.fileno()).st_ino
        return True

    def _grown(self) -> list[Piece]:
        assert self._file is not None
        chunk = self._file.read(BLOCK_BYTES)
        if len(self._head) < _HEAD_BYTES:
            self._head = (self._head + chunk)[:_HEAD_BYTES]
        data = self._rest + chunk
        cut = data.rfind(b"\n") + 1
        drawn = 0 if cut else data.rfind(b"\r") + 1
        if not cut and not drawn and len(data) >= MAX_LINE_BYTES:
            cut = len(data)
        if not chunk or not (cut or drawn):
            self._rest = data
            return []
        self._rest = data[cut or drawn :]
        return [self._piece(data[: cut or drawn], goes_on=not cut)]

    def _piece(self, data: bytes, *, last: bool = False, goes_on: bool = False) -> Piece:
        block = Block(data, self._offset, self._line, goes_on=goes_on)
        self._offset += len(data)
        self._line += 0 if goes_on else len(block.bounds[0])
        return Piece(part=self.part, block=block, last=last)

    def _replaced(self) -> bool:
        """Whether the name now leads to another file, or to the same one begun anew."""
        assert self._file is not None
        try:
            now = self._path.stat()
        except OSError:
            return False  # renamed; the new one is yet to come
        if now.st_ino != self._inode or now.st_size < self._offset + len(self._rest):
            return True
        return os.pread(self._file.fileno(), len(self._head), 0) != self._head

    def _closed(self) -> list[Piece]:
        """The end of the old part; the next call opens the new one."""
        assert self._file is not None
        self._file.close()
        made = [self._piece(self._rest, last=True)]
        self._file, self._head, self._rest = None, b"", b""
        self._offset, self._line = 0, 1
        self.part += 1
        return made

    def end(self) -> Piece:
        """What is left when the watch ends: a last line may lack its newline. Closes the file."""
        if self._file is not None:
            self._file.close()
        return self._piece(self._rest, last=True)
