"""Writes that are whole or not there; what a killed writer left is known by a lock nobody holds."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: leftovers are known by their age alone
    fcntl = None  # type: ignore[assignment]

_LOCK = "lock"
_WORKSHOP = re.compile(r"\..+\.[a-z0-9_]{8}")
#: Where there are no locks, what is so many seconds old is held for left behind.
_OLD_S = 3600.0
_TRIES = 20
_CANNOT_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)


@contextmanager
def workshop(store: Path, name: str) -> Iterator[Path]:
    """A fresh hidden folder `.<name>.<random>` in the store, gone at the end. Raises OSError.

    While its writer lives, it holds a lock in it, so that `abandoned` passes it by.
    """
    made, lock = _made(store, name)
    try:
        with lock:
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _made(store: Path, name: str) -> tuple[Path, IO[bytes]]:
    """The folder, and its open, locked file."""
    for _ in range(_TRIES):
        made = Path(tempfile.mkdtemp(dir=store, prefix=f".{name}."))
        with suppress(FileNotFoundError):  # another writer took it for a dead one's: once more
            lock = (made / _LOCK).open("wb")
            _hold(lock)
            if (made / _LOCK).exists():
                return made, lock
    raise OSError(errno.EBUSY, "other writers clear it away again and again")


def abandoned(store: Path) -> tuple[Path, ...]:
    """The folders of `workshop` whose writers are dead, in the order of their names."""
    named = sorted(path for path in store.glob(".*") if _WORKSHOP.fullmatch(path.name))
    return tuple(path for path in named if path.is_dir() and _dead(path / _LOCK, path))


def write_whole(path: Path, data: bytes) -> None:
    """Write the whole file or nothing: a hidden neighbour, then a rename. Raises OSError.

    The umask decides who may read it, as for any new file.
    """
    start = f".{path.name[:20]}."
    for left in path.parent.glob(f"{glob_literal(start)}*.tmp"):
        if _dead(left, left):
            with suppress(OSError):
                left.unlink()
    temporary = path.with_name(f"{start}{os.getpid()}.tmp")
    try:
        for turn in range(_TRIES):
            with suppress(FileNotFoundError) if turn < _TRIES - 1 else nullcontext():
                _written(temporary, path, data)
                return
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _written(temporary: Path, path: Path, data: bytes) -> None:
    """FileNotFoundError where another writer took the file for a dead one's before its lock."""
    with temporary.open("wb") as file:
        _hold(file)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if fcntl is not None:  # still locked, so that nobody clears it away before
            os.replace(temporary, path)
    if fcntl is None:
        os.replace(temporary, path)
    flush(path.parent)


def flush(*paths: Path) -> None:
    """Have files and folders on the disk: a power cut after this leaves them. Raises OSError.

    A rename may reach the disk before the bytes of what it names: flush those first, then rename,
    then flush the folder, whose entries they are. Where a system flushes no folders, nothing.
    """
    for path in paths:
        try:
            opened = os.open(path, os.O_RDONLY)
        except PermissionError:  # Windows opens no folder
            continue
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH:
                raise
        finally:
            os.close(opened)


def glob_literal(name: str) -> str:
    """A pattern that fits the name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _hold(file: IO[bytes]) -> None:
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _dead(lock: Path, whole: Path) -> bool:
    """Whether nobody holds the lock of the folder or file: its writer is gone."""
    with suppress(OSError):
        if fcntl is None:
            return time.time() - whole.stat().st_mtime > _OLD_S
        if not lock.exists():  # killed before the first file, or while the last were taken away
            return True
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
