"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow  # it looks at the checkout, not at the wheel
def test_every_test_that_is_named_exists() -> None:
    """Each law of SECURITY.md names functions and files of this suite."""
    text = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
    sources = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 15
    assert [name for name in sorted(named) if f"def {name}(" not in sources] == []
    files = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", text)
    assert [name for name in files if not (TESTS.parent / name).is_file()] == []
