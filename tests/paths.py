"""Where the tests find what lies outside the package: real logs, and the project's samples."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus"
SAMPLES = ROOT / "sample_logs"

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the collection of real logs (../shared/corpus) is not here"
)
