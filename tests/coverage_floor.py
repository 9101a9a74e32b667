"""Fails where the tests reach a smaller share of the lines than pyproject.toml asks for.

    python tests/coverage_floor.py coverage.json pyproject.toml

(slipcover's own --fail-under prints an empty table when the tests run in several processes.)
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path


def main(coverage: Path, settings: Path) -> int:
    """1 where the floor is not reached."""
    reached = json.loads(coverage.read_text("utf-8"))["summary"]["percent_covered"]
    floor = tomllib.loads(settings.read_text("utf-8"))["tool"]["loganalyze"]["coverage-floor"]
    print(f"coverage: {reached:.2f} % of the lines, the floor is {floor} %")
    return int(reached < floor)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
