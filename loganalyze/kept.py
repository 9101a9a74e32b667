"""What is made of the package's own files once (parsed tables, compiled templates), kept on disk.

It lies where Python keeps the package's compiled modules, and by their rules: made again where its
source, this program or Python changed, not written where Python may write none, never needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_MAGIC = b"loganalyze kept 1\n" + importlib.util.MAGIC_NUMBER


def kept(name: str, source: bytes, make: Callable[[], Any]) -> Any:
    """make(), or what it gave for the same source before.

    name: of the file. source: all that the result depends on. What is made consists of plain
    numbers, texts, lists, dicts and code; anything else is made at each start.
    """
    stamp = hashlib.sha256(_MAGIC + source).digest()
    path = _place(name)
    with suppress(OSError, EOFError, ValueError, TypeError):
        data = path.read_bytes()
        if data[: len(stamp)] == stamp:
            return marshal.loads(memoryview(data)[len(stamp) :])
    made = make()
    if not sys.dont_write_bytecode:
        with suppress(OSError, ValueError):
            _write(path, stamp + marshal.dumps(made))
    return made


def _place(name: str) -> Path:
    module = Path(__file__).with_name(f"{name.replace('.', '-').replace('/', '-')}.py")
    return Path(importlib.util.cache_from_source(str(module))).with_suffix(".kept")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
