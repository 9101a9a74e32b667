"""README.md says what the code does."""

from __future__ import annotations

import pytest
from paths import ROOT
from readme_tables import TABLES, filled

README = ROOT / "README.md"


def test_tables_equal_the_code() -> None:
    """Formats, findings, seed rules, trees and the command reference are the code's own."""
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text, "run: python tests/readme_tables.py"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_there(name: str) -> None:
    """No table of the code is left out of the README."""
    assert f"<!-- table: {name} -->" in README.read_text(encoding="utf-8")
