"""Files on their way between workers and driver: named by their content, there when whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import polars as pl

from loganalyze.spill import set_down


def rows_written(frame: pl.DataFrame, folder: Path) -> str:
    """A frame in a file of the folder, named by its content."""
    fresh = folder / f".{os.getpid()}-{os.urandom(4).hex()}"
    with fresh.open("wb") as file:
        set_down(frame, file)
    return _settled(fresh, ".arrow")


def written(data: bytes, folder: Path, suffix: str) -> str:
    """Bytes in a file of the folder, named by its content, there only when it is whole."""
    fresh = folder / f".{os.getpid()}-{os.urandom(4).hex()}"
    fresh.write_bytes(data)
    return _settled(fresh, suffix)


def _settled(fresh: Path, suffix: str) -> str:
    with fresh.open("rb") as file:
        name = hashlib.file_digest(file, "sha256").hexdigest()[:32] + suffix
    fresh.rename(fresh.with_name(name))
    return name
