"""Opens the SQLite files of trackers for reading, and leaves no trace beside them.

A database in WAL mode keeps its newest rows in `<name>-wal`; opening it in place would write
`-shm` and `-wal` files, so it is read from a copy then. Nothing else is ever copied.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its library is loaded for the few inputs that need it
    import sqlite3

MAGIC = b"SQLite format 3\x00"


def failures() -> tuple[type[Exception], ...]:
    """What reading a database may raise; the last where the message itself holds damaged text."""
    import sqlite3

    return (sqlite3.Error, OSError, UnicodeDecodeError)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write. Raises sqlite3.Error or OSError where it cannot be opened."""
    import sqlite3

    wal = path.with_name(path.name + "-wal")
    if wal.is_file() and wal.stat().st_size:
        with tempfile.TemporaryDirectory(prefix="loganalyze-") as folder:
            copy = Path(folder) / path.name
            shutil.copyfile(path, copy)
            shutil.copyfile(wal, copy.with_name(wal.name))
            with closing(sqlite3.connect(copy)) as connection:
                connection.text_factory = _text
                yield connection
        return
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.text_factory = _text
        yield connection


def _text(data: bytes) -> str:
    """Text of a cell, whatever damage did to it."""
    return data.decode("utf-8", "replace")


def columns_of(path: Path) -> dict[str, frozenset[str]]:
    """Tables of a database and the names of their columns; empty where it cannot be read."""
    try:
        with opened(path) as connection:
            names = [
                str(row[0])
                for row in connection.execute("select name from sqlite_master where type='table'")
            ]
            return {name: _columns(connection, name) for name in names}
    except failures():
        return {}


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    rows = connection.execute("select name from pragma_table_info(?)", (table,))
    return frozenset(str(row[0]) for row in rows)
