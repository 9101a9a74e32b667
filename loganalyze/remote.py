"""Inputs and stores behind URLs (s3://, gs://, hdfs://, ...), where the user has fsspec.

What is read is copied to a folder of this machine first, once, under the URL's own path: lines are
cited from there. What is written is made here and then put in its place, `run.json` last, so that
a reader never sees half a run. No connection is made unless a URL is named.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from loganalyze.errors import LoganalyzeError, OutputError, UnreadableInput, UsageError
from loganalyze.store import META

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(path: str) -> bool:
    """Whether a path names a place behind a driver.

    >>> is_url("s3://logs/job-7"), is_url("logs/job-7"), is_url("C:/logs")
    (True, False, False)
    """
    return _URL.match(path) is not None


def localised(argument: str) -> str:
    """The argument, or the local copy of what its URL names. Raises LoganalyzeError."""
    return str(fetched(argument)) if is_url(argument) else argument


@lru_cache(maxsize=1024)
def fetched(url: str) -> Path:
    """A local copy of a file, a folder or all files of a glob.

    Raises UsageError without fsspec or the driver, UnreadableInput where it cannot be read.
    """
    system, path = _opened(url)
    try:
        found = system.glob(path) if any(sign in path for sign in "*?[") else [path]
        files = sorted({file for one in found for file in system.find(one)})
        if not files:
            raise UnreadableInput(f"{url}: no such file or folder", hint="check the URL")
        folder = _folder() / url.partition("://")[0]
        for file in files:
            target = folder / _relative(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(file, str(target))
    except LoganalyzeError:
        raise
    except Exception as error:  # every driver has errors of its own
        raise UnreadableInput(
            f"{url}: cannot be read ({error})", hint="check the URL and your access"
        ) from error
    return folder / _relative(_common(path))


def _common(path: str) -> str:
    """The part of a path before its first wild card, to the last whole folder."""
    at = min((path.index(sign) for sign in "*?[" if sign in path), default=-1)
    return path if at < 0 else path[:at].rpartition("/")[0]


def _relative(file: str) -> PurePosixPath:
    """The path below the copies' folder; never outside it."""
    return PurePosixPath(*(part for part in PurePosixPath(file).parts if part not in ("/", "..")))


@lru_cache(maxsize=1)
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="loganalyze-"))
    atexit.register(shutil.rmtree, made, True)
    return made


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    scheme = url.partition("://")[0]
    try:
        fsspec = import_module("fsspec")
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        hint = f"pip install 'loganalyze[remote]' and the driver of {scheme}://"
        raise UsageError(f"{url}: {error}", hint=hint) from error
    except Exception as error:  # an unknown scheme, no credentials, ...
        raise UsageError(f"{url}: {error}", hint="check the URL and your access") from error
    return system, str(path)


def put_run(place: Path, url: str) -> str:
    """Put a run directory below the store behind a URL; returns its URL. Raises OutputError.

    First the rows, then `run.json`, then what the old run had beside.
    """
    system, root = _opened(url)
    target = f"{root.rstrip('/')}/{place.name}"
    files = [path for path in place.rglob("*") if path.is_file()]
    files.sort(key=lambda path: (path.name == META, path))
    try:
        before = set(system.find(target)) if system.exists(target) else set()
        kept = set()
        for path in files:
            name = f"{target}/{path.relative_to(place).as_posix()}"
            system.makedirs(name.rpartition("/")[0], exist_ok=True)
            system.put_file(str(path), name)
            kept.add(system._strip_protocol(name))
        for name in sorted(before - kept):
            system.rm_file(name)
    except Exception as error:
        raise OutputError(
            f"{url}: cannot be written ({error})", hint="choose another place with --store"
        ) from error
    return f"{url.rstrip('/')}/{place.name}"


def scratch_store() -> Path:
    """A local store for what is then put behind a URL; gone when the program ends."""
    return Path(tempfile.mkdtemp(dir=_folder(), prefix="runs-"))
