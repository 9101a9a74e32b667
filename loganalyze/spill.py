"""Frames of long inputs moved out of the memory: into unnamed files that are mapped back.

A mapped frame is a frame like any other. Its pages belong to the operating system, which takes
them back when memory is short, and release() gives them back at once.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import IO

import polars as pl

#: Frames stay in memory until so many bytes have come together.
LEAST_BYTES = 48 * 1024 * 1024
_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class Spiller:
    """Watches one growing list of frames, and maps what comes together in a thread of its own."""

    def __init__(
        self, frames: list[pl.DataFrame], first: int = 0, least_bytes: int = LEAST_BYTES
    ) -> None:
        """frames: the list; those before `first` stay. least_bytes: what stays in memory."""
        self._frames = frames
        self._least = least_bytes
        self._done = self._seen = first
        self._bytes = 0
        self._loading: Thread | None = None
        self._under_way: Future[pl.DataFrame] | None = None  # frames [_begun, _done)
        self._begun = first

    def look(self) -> None:
        """Begin to map what has come together since, if that is much; take in what is mapped."""
        if self._under_way is not None and self._under_way.done():
            self.finish()
        frames = self._frames
        self._bytes += sum(int(frame.estimated_size()) for frame in frames[self._seen :])
        if not self._loading and 8 * self._bytes > self._least:
            self._loading = Thread(target=import_module, args=("pyarrow.ipc",), daemon=True)
            self._loading.start()  # it takes a while, beside the reading
        if self._bytes >= self._least:
            self.finish()
            pool = ThreadPoolExecutor(1)
            self._under_way = pool.submit(_in_one_piece, frames[self._done :])
            pool.shutdown(wait=False)  # the thread ends with its work
            self._begun, self._done, self._bytes = self._done, len(frames), 0
        self._seen = len(frames)

    def finish(self) -> None:
        """Wait for what is being mapped, and put it in the place of its frames."""
        if self._under_way is None:
            return
        self._frames[self._begun : self._done] = [self._under_way.result()]
        fewer = self._done - self._begun - 1
        self._done, self._seen = self._done - fewer, self._seen - fewer
        self._under_way = None
        release()


def _in_one_piece(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The frames as one that is mapped, each column in one piece: all that looks at a column
    later goes from chunk to chunk."""
    return mapped(pl.concat(frames, how="diagonal", rechunk=True))


def mapped(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame in a file without a name, mapped; gone when nothing refers to it.

    The frame itself where the folder of temporary files takes no more.
    """
    try:
        with tempfile.TemporaryFile(prefix="loganalyze-") as file:
            set_down(frame, file)
            return _map(file)
    except OSError:
        return frame


def set_down(frame: pl.DataFrame, file: IO[bytes]) -> None:
    """Write a frame as mapped_file() reads it. Raises OSError."""
    import pyarrow as pa

    table = frame.to_arrow()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    file.flush()


def mapped_file(path: Path) -> pl.DataFrame:
    """The frame of a file that set_down() wrote; the file may be removed. Raises OSError."""
    with path.open("rb") as file:
        return _map(file)


def _map(file: IO[bytes]) -> pl.DataFrame:
    import pyarrow as pa

    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPS.add(pages)
    again = pl.from_arrow(pa.ipc.open_file(pa.py_buffer(pages)).read_all(), rechunk=False)
    assert isinstance(again, pl.DataFrame)
    return again


def release() -> None:
    """Give all pages of mapped frames back; they are read again where they are needed."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for pages in list(_MAPS):
            pages.madvise(mmap.MADV_DONTNEED)


def trim() -> None:
    """Give memory that arrays had back to the system, where its library would keep it (glibc)."""
    release()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def slices(frame: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """The frame in pieces of `rows` rows, each piece's pages given back when the next is asked."""
    for piece in frame.iter_slices(rows):
        yield piece
        release()
