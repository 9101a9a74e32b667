"""Lines of text for a terminal: wrapped by display width, coloured on demand, made inert."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator

from msgspec import Struct, field

from loganalyze.report.wording import Both, both

#: SGR codes. Severity is told by a mark as well, so that colour is never the only sign.
STYLES = {
    "": "", "bold": "1", "dim": "2", "critical": "1;31", "warning": "33", "info": "36",
    "clean": "32", "unreadable": "35",
}  # fmt: skip
LABEL_WIDTH = 16
_CLOSING, _OPENING = frozenset("、，。；：！？）】》”’"), frozenset("（【《“‘")


def inert(text: str) -> str:
    """Control, format and separator characters as ·, so that no log text drives a terminal."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else " " if ch == "\t" else "·" for ch in text)


def display_width(text: str) -> int:
    """Columns a text takes in a terminal: wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in "WF" else 1
        for ch in text
    )


class Paper(Struct, kw_only=True):
    """Collects lines of one language. NO_COLOR beats `color`."""

    lang: str
    width: int
    color: bool
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Obey NO_COLOR (any value but the empty one), and keep a least width."""
        self.color = self.color and not os.environ.get("NO_COLOR")
        self.width = max(40, self.width)

    def say(self, text: Both) -> str:
        """A text in this paper's language."""
        return text.of(self.lang)

    def gap(self) -> None:
        """One empty line, never two."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def heading(self, key: str) -> None:
        """A section title after a gap."""
        self.gap()
        self.line(0, self.say(both(key)), "bold")

    def field(self, key: str, text: Both) -> None:
        """A label and its text; an empty key continues the field above."""
        label = self.say(both(key)) if key else ""
        pad = " " * max(1, LABEL_WIDTH - display_width(label))
        lead = f"  {label}{pad}"
        self._wrap(lead, " " * display_width(lead), inert(self.say(text)), "")

    def line(
        self, indent: int, text: str, style: str = "", *, mark: str = "", tail: str = ""
    ) -> None:
        """A line; `tail` follows after two blanks in plain style, on the next line if too long."""
        lead = " " * indent + (f"{mark} " if mark else "")
        body, tail = inert(text), inert(tail)
        if tail and len(lead) + display_width(f"{body}  {tail}") <= self.width:
            self.lines.append(self._styled(lead + body, style) + "  " + self._styled(tail, "dim"))
            return
        self._wrap(lead, " " * (len(lead) + 2), body, style)
        if tail:
            self._wrap(" " * (len(lead) + 2), " " * (len(lead) + 2), tail, "dim")

    def command(self, lead: str, command: str) -> None:
        """A command to type: never wrapped, so that it can be copied."""
        pad = " " * max(1, 8 - display_width(lead))
        self.lines.append(f"{lead}{pad}{self._styled(inert(command), 'bold')}")

    def text(self) -> str:
        """All lines, with a newline at the end."""
        return "\n".join(line.rstrip() for line in self.lines) + "\n"

    def _styled(self, text: str, style: str) -> str:
        code = STYLES.get(style, "")
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text else text

    def _wrap(self, lead: str, hang: str, text: str, style: str) -> None:
        room = self.width - max(display_width(lead), display_width(hang))
        for index, part in enumerate(wrapped(text, room)):
            self.lines.append(self._styled((lead if index == 0 else hang) + part, style))


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` columns: broken at blanks, and at any wide character."""
    line, used = "", 0
    for piece in _pieces(text):
        size = display_width(piece)
        if line and used + size > width and piece.strip():
            yield line.rstrip()
            line, used = "", 0
            piece = piece.lstrip()
        line, used = line + piece, used + size
    yield line.rstrip()


def _pieces(text: str) -> Iterator[str]:
    """Unbreakable pieces: words, blanks, wide characters with the punctuation that clings to them.

    No line begins with a closing mark or ends with an opening one.
    """
    held = ""
    for ch in text:
        wide = unicodedata.east_asian_width(ch) in "WF"
        if ch in _CLOSING and held and not held.isspace():
            held += ch
            continue
        last = held[-1:]
        breaks = (
            ch == " " or wide or last == " " or unicodedata.east_asian_width(last or "a") in "WF"
        )
        if held and breaks and last not in _OPENING:
            yield held
            held = ""
        held += ch
    if held:
        yield held
