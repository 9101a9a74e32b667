"""Where the tests find what lies outside the package: real logs, and the project's samples."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus"
SAMPLES = ROOT / "sample_logs"

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the collection of real logs (../shared/corpus) is not here"
)


def loopback_is_up() -> bool:
    """Whether this machine can speak to itself: not in a namespace without any interface."""
    with socket.socket() as listening, socket.socket() as calling:
        try:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            calling.settimeout(5)
            calling.connect(listening.getsockname())
        except OSError:
            return False
    return True
