"""Program text inside a log: some trainers print their own source before they start.

What it quotes (`raise RuntimeError("CUDA out of memory")`, a docstring about NCCL errors) is no
failure. It begins with import statements and ends with a rule of `=`, with a line that only a
running trainer prints, or where lines stop to look like a program.
"""

from __future__ import annotations

from loganalyze import lazy

_IMPORT = lazy.pattern(
    r"^(?:import [\w.]+(?:(?: as \w{1,99})?(?:, ?[\w.]{1,99})*)?|from [\w.]+ import [\w*., ()]+)"
    r"(?: {0,9}#.*)?$"
)
_RULE = lazy.pattern(r"^[=]{20,}$")
_RUNNING = lazy.pattern(
    r"^(?:step|iter(?:ation)?|epoch|s|it)[: ]*\d+(?:/\d+)?\b|^\{'|^\[INFO"
    r"|^Traceback \(most recent call last\):$|^(?:slurmstepd|srun): |^Running \w+ \d"
)
_CODE = lazy.pattern(
    r"^(?:import |from \S+ import|(?:async )?def |class |return\b|if |elif |else:|for |while |"
    r"with |try:|except\b|finally:|raise\b|assert |yield\b|pass$|break$|continue$|del |global |"
    r"nonlocal |"
    r"lambda |print ?\(|@\w|#|[\"'\[\](){}.*]|self\.|or |and |not |[-+*/] |[rfb]\"|[rfb]'|\w+,$"
    r"|\*{0,2}[A-Za-z_][\w.]*(?:\[.{0,80}\])?(?:, [\w.]+)* ?(?:: ?[\w.\[\], |]+)?"
    r"(?:[-+*/%|&@]?=) ?\S"
    r"|[A-Za-z_][\w.]*\()"
)
_QUOTES = ('"""', "'''")
_IMPORTS_TO_OPEN = 2
#: Lines in a row that look like no program: prose between, or the end of it.
_MAX_OTHER = 6
_MAX_DOCSTRING = 200
_SCAN_CHARS = 500


class ProgramText:
    """Whether the line at hand is program text; lines come in order."""

    def __init__(self) -> None:
        """Outside."""
        self.open = False
        self._imports = 0
        self._other = 0
        self._docstring = 0

    def feed(self, text: str, *, labelled: bool = False) -> bool:
        """Whether the line belongs to embedded program text.

        labelled: the line had a rank or a time before it, so a logger printed it.
        """
        text = text[:_SCAN_CHARS]
        if not self.open:
            return not labelled and self._begin(text)
        if labelled or _RULE.match(text) or _RUNNING.match(text):
            self.open = False
            return False
        return self._inside(text)

    def _begin(self, text: str) -> bool:
        self._imports = self._imports + 1 if _IMPORT.match(text) else 0
        if self._imports < _IMPORTS_TO_OPEN:
            return self._imports > 0
        self.open, self._imports, self._other, self._docstring = True, 0, 0, 0
        return True

    def _inside(self, text: str) -> bool:
        quotes = sum(text.count(mark) for mark in _QUOTES)
        if self._docstring:
            self._docstring = 0 if quotes % 2 else self._docstring + 1
            self.open = self._docstring <= _MAX_DOCSTRING
            return self.open
        if quotes % 2:
            self._docstring = 1
            return True
        if not text or _CODE.match(text):
            self._other = 0
            return True
        self._other += 1
        self.open = self._other < _MAX_OTHER
        return self.open
