"""The environment of the page's templates; what they compile to lies beside Python's own code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from jinja2 import DictLoader, Environment, FileSystemBytecodeCache, StrictUndefined
from jinja2.bccache import Bucket

from loganalyze import __version__
from loganalyze.kept import cache_folder


class _Compiled(FileSystemBytecodeCache):
    """jinja2's cache; that it cannot be read or written is no error, then templates compile."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if its template was compiled before."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # whatever damage brings forth
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket, where Python may write."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)


def environment_of(sources: Mapping[str, str], finalize: Callable[[Any], Any]) -> Environment:
    """An environment of the templates in `sources`. finalize: what is done to all they print."""
    pattern = f"{__version__}-%s.{sys.implementation.cache_tag}"
    return Environment(
        loader=DictLoader(sources),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=finalize,
        bytecode_cache=_Compiled(str(cache_folder()), pattern),
    )
