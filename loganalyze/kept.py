"""What is made of the package's own files once (parsed tables, packed scripts), kept on disk.

It lies where Python keeps the package's compiled modules, and by their rules: made again where its
source or this program changed, not written where Python may write none, never needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_FORMAT = b"loganalyze kept 1\n"


def kept(name: str, source: bytes, make: Callable[[], Any]) -> Any:
    """make(), or what it gave for the same source before.

    name: of the file. source: all that the result depends on. What is made is what JSON can hold;
    anything else is made at each start.
    """
    stamp = hashlib.sha256(_FORMAT + source).hexdigest().encode() + b"\n"
    path = cache_folder() / f"{name.replace('/', '-')}.kept"
    with suppress(OSError, ValueError):
        data = path.read_bytes()
        if data.startswith(stamp):
            return json.loads(data[len(stamp) :])
    made = make()
    if not sys.dont_write_bytecode:
        with suppress(OSError, ValueError, TypeError):
            _write(path, stamp + json.dumps(made).encode())
    return made


def cache_folder() -> Path:
    """Where Python keeps the compiled modules of this package."""
    return Path(importlib.util.cache_from_source(__file__)).parent


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
