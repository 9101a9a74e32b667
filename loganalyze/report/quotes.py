"""Reads the quoted log lines back from the inputs, where they are still there and unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from loganalyze.masking import mask
from loganalyze.model import LineRef, Source

MOST_CHARACTERS = 480
MOST_QUOTES = 240


class Quote(Struct, frozen=True, kw_only=True):
    """A cited line: where it stands, and its text, or the key of the reason why not."""

    path: str
    line: int
    text: str = ""
    note: str = ""


class Quoter(Struct, kw_only=True):
    """Reads lines of a run's inputs; opens each input once, reads only what is cited."""

    sources: tuple[Source, ...]
    _files: dict[int, BinaryIO | None] = field(default_factory=dict)
    _read: int = 0

    def quote(self, ref: LineRef | None) -> Quote | None:
        """The line of a reference; None where there is no reference."""
        if ref is None or not 0 <= ref.source < len(self.sources):
            return None
        source = self.sources[ref.source]
        if ref.length <= 0 or source.parser in ("tfevents", "wandb"):
            return Quote(path=source.path, line=ref.line)
        if self._read >= MOST_QUOTES:
            return Quote(path=source.path, line=ref.line, note="ui_quote_limit")
        text = self._line(ref)
        if text is None:
            return Quote(path=source.path, line=ref.line, note="ui_quote_gone")
        self._read += 1
        return Quote(path=source.path, line=ref.line, text=text)

    def close(self) -> None:
        """Closes what was opened."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()

    def _line(self, ref: LineRef) -> str | None:
        file = self._file(ref.source)
        if file is None:
            return None
        try:
            file.seek(ref.offset)
            data = file.read(min(ref.length, 16 * MOST_CHARACTERS))
        except OSError:
            return None
        return shortened(data, self.sources[ref.source].encoding) if data else None

    def _file(self, index: int) -> BinaryIO | None:
        if index not in self._files:
            self._files[index] = self._open(self.sources[index])
        return self._files[index]

    def _open(self, source: Source) -> BinaryIO | None:
        """The input, if it is a plain file of the size that was read (so not compressed)."""
        path = Path(source.path)
        try:
            if not path.is_file() or path.stat().st_size != source.bytes:
                return None
            if path.suffix in (".gz", ".zst", ".xz", ".bz2", ".zip"):
                return None
            return path.open("rb")
        except (OSError, ValueError):
            return None


def shortened(data: bytes, encoding: str) -> str:
    """A line as one line of text: bad bytes as �, secrets masked, middle of long ones left out."""
    try:
        text = data.decode(encoding or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    text = mask("".join(ch if ch.isprintable() else " " for ch in text).strip())
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[: half + 60]} … {text[-(half - 60) :]}"
