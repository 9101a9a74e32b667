"""Patterns that are compiled when they are first used: most inputs need a few of hundreds."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As re.compile(), later.

    >>> pattern(r"step (\\d+)").search("at step 12")[1]
    '12'
    """
    return cast("re.Pattern[AnyStr]", _Lazy(text, flags))


class _Lazy:
    """Stands for a pattern; its methods are the pattern's own from the first use on."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._made: tuple[Any, int] = (text, flags)

    def __getattr__(self, name: str) -> Any:
        made = getattr(re.compile(*self._made), name)
        setattr(self, name, made)
        return made
