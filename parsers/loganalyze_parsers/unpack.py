"""Decompressed bytes with limits: damage and bombs end a stream, what came before is kept."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from loganalyze.model import Problem

#: A stream that unpacks to more than both is no log: real ones shrink 5 to 60 times.
MOST_RATIO, FREE_BYTES = 200, 64 * 1024 * 1024
#: A compressed document that is read whole may unpack to so many bytes.
MOST_WHOLE_BYTES = 2 * 1024**3
_PIECE = 256 * 1024


class LimitReached(OSError):
    """A compressed input unpacks to more than a log would."""


class Unpacked:
    """A decompressing stream whose every failure is an OSError, raised after the bytes before it.

    packed: bytes of the compressed file.
    """

    def __init__(self, stream: IO[bytes] | Any, packed: int) -> None:
        """Wrap a stream of gzip, bz2, lzma or pyarrow."""
        self._stream = stream
        self._read = getattr(stream, "read1", stream.read)  # read() would drop what it had
        self._limit = max(FREE_BYTES, MOST_RATIO * packed)
        self._done = 0
        self._failed: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, all of them if negative. Raises OSError where the input breaks."""
        parts: list[bytes] = []
        left = size if size >= 0 else MOST_WHOLE_BYTES
        while left > 0:
            part = self._part(min(left, _PIECE))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        if self._failed is not None and (size < 0 or not parts):
            raise self._failed
        if size < 0 and left <= 0:
            raise LimitReached(f"unpacks to more than {MOST_WHOLE_BYTES >> 30} GiB")
        return b"".join(parts)

    def _part(self, size: int) -> bytes:
        if self._failed is not None:
            return b""
        try:
            part: bytes = self._read(size)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            self._failed = error if isinstance(error, OSError) else OSError(str(error))
            return b""
        self._done += len(part)
        if self._done > self._limit:
            self._failed = LimitReached(
                f"unpacks to more than {MOST_RATIO} times its size and {FREE_BYTES >> 20} MiB"
            )
        return part

    def close(self) -> None:
        """Close the stream below."""
        self._stream.close()

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def broken(path: Path, error: Exception, rule: str = "input_breaks_off") -> Problem:
    """What is told of an input that ends before its end: damage, or a limit."""
    if isinstance(error, LimitReached):
        return Problem(
            rule="limit_reached",
            message=f"{path}: {error}; what came before is used. Unpack it to read the rest",
        )
    message = f"{path}: the file breaks off ({error}); what came before is used"
    return Problem(rule=rule, message=message)
