"""Makes the sample logs again: `python sample_logs/make.py [CASE ...]` (needs torch).

Every case is a tiny language model that is really trained on the CPU, with a fault injected into
the training where there is one; the log is printed in Megatron-LM's layout on a modelled clock.
The bytes are the same on every run of one machine; another processor may round differently.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from lab.cases import CASES  # noqa: E402


def main(names: list[str]) -> None:
    """Train the cases named, or all, and write their logs."""
    for name in names or list(CASES):
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.log").write_text(CASES[name](), encoding="utf-8")
        print(f"{name}: {folder.name}/{name}.log")


if __name__ == "__main__":
    main(sys.argv[1:])
