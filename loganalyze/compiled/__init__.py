"""Inner loops in C, where the installation could build them; everything has a second way.

kernel.c reads text logs and lines.c finds words and lines in them (the parsers' kernel.py asks for
both), medians.c takes running medians (running.py). The environment variable LOGANALYZE_PURE, set
to anything, leaves them aside.
"""

from __future__ import annotations

import ctypes
import os
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PURE = "LOGANALYZE_PURE"
_HERE = Path(__file__).parent
SOURCES = tuple(_HERE / name for name in ("kernel.c", "lines.c", "medians.c", "loops.h"))
#: Built by hatch_build.py; one name on all systems.
LIBRARY = _HERE / "kernel.native"
#: Points of the widest window that medians() takes; as in medians.c.
MOST_WIDTH = 4096


def load(path: Path) -> ctypes.CDLL | None:
    """A library; None if there is none, or one built of other sources."""
    try:
        library = ctypes.CDLL(str(path))
        library.loganalyze_source.restype = ctypes.c_uint32
        fits = library.loganalyze_source() == zlib.crc32(_sources())
    except (OSError, AttributeError):
        return None
    if not fits:
        return None
    for function in (library.loganalyze_medians, library.loganalyze_past_medians):
        function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        function.restype = None
    return library


def _sources() -> bytes:
    return b"".join(source.read_bytes() for source in SOURCES)


@cache
def _installed() -> ctypes.CDLL | None:
    return load(LIBRARY) if LIBRARY.is_file() else None


def library() -> ctypes.CDLL | None:
    """That of this installation; None where there is none or the user wants none."""
    return None if os.environ.get(PURE) else _installed()


def medians(x: Floats, width: int, out: Floats | None = None) -> Floats | None:
    """Median of each `width` (odd, at most len(x)) neighbours: len(x) - width + 1 of them.

    out: where they go, in one piece. None where there is no library, or for what it does not take:
    NaN, windows beyond MOST_WIDTH. Other threads run meanwhile.
    """
    native = _for(x, width)
    if native is None:
        return None
    x = np.ascontiguousarray(x, dtype=np.float64)
    made = np.empty(len(x) - width + 1) if out is None else out
    native.loganalyze_medians(x.ctypes.data, len(x), width, made.ctypes.data)
    return made


def past_medians(x: Floats, width: int) -> Floats | None:
    """Median of the up to `width` (odd) points before each point; NaN at the first. None as above.

    Of an even number of points the mean of the middle two.
    """
    native = _for(x, width)
    if native is None:
        return None
    x = np.ascontiguousarray(x, dtype=np.float64)
    made = np.empty(len(x))
    native.loganalyze_past_medians(x.ctypes.data, len(x), width, made.ctypes.data)
    return made


def _for(x: Floats, width: int) -> ctypes.CDLL | None:
    native = library() if width <= MOST_WIDTH else None
    if native is None or (len(x) and np.isnan(x.max())):  # NaN where there is one
        return None
    return native
