"""Ordinary words of real logs are not taken for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from paths import CORPUS, needs_corpus

from loganalyze.masking import mask

_MOST_BYTES = 400_000


def _lines() -> Iterator[str]:
    for path in sorted(CORPUS.rglob("*")):
        if path.is_file() and path.stat().st_size < _MOST_BYTES:
            data = path.read_bytes()
            if b"\0" not in data[:4096]:
                yield from (line[:4000] for line in data.decode("utf-8", "replace").split("\n"))


@pytest.mark.corpus
@needs_corpus
def test_at_most_one_ordinary_word_in_ten_thousand_is_masked() -> None:
    """Of the words of the collection (published logs: secrets are a handful), so few are masked."""
    words = masked = 0
    for line in _lines():
        words += len(line.split())
        masked += len(re.findall(r"\[masked:", mask(line)))
    assert words > 100_000
    assert masked <= words / 10_000
