"""Makes the sample logs again: `python sample_logs/make.py [CASE ...]` (needs torch).

Every case is a tiny language model that is really trained on the CPU, with a fault injected into
the training where there is one. `lab/` holds the longer cases in Megatron-LM's layout; the others
are short runs of the fault lab in `benchmarks/faultlab`, in the layouts of other trainers.
The bytes are the same on every run of one machine, but for measured times of `slow_rank` and
`data_stall`; another processor may round differently.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from lab.cases import CASES  # noqa: E402

#: Case: fault, trainer, seed and settings of a run of the fault lab.
FROM_LAB: dict[str, tuple[str, str, int, dict[str, object]]] = {
    "data_stall": ("data_stall", "plain", 11, {"total": 240}),
    "disk_full": ("disk_full", "megatron", 12, {"total": 200, "save": 50}),
    "entropy_collapse": ("entropy_collapse", "hf", 13, {"total": 200}),
    "lr_reset": ("lr_reset_on_resume", "plain", 14, {"total": 300}),
    "masked_labels": ("labels_all_masked", "plain", 16, {"total": 240}),
    "memory_leak": ("retained_graph", "deepspeed", 17, {"total": 240}),
    "slow_rank": ("slow_rank", "plain", 18, {"total": 160}),
}


def from_lab(case: str) -> str:
    """The log of a run of the fault lab."""
    from benchmarks.faultlab.catalogue import BY_NAME
    from benchmarks.faultlab.driver import run

    name, trainer, seed, settings = FROM_LAB[case]
    fault = BY_NAME[name]
    fault = replace(fault, recipe={**fault.recipe, **settings})
    with tempfile.TemporaryDirectory() as folder:
        made = run(fault, seed, trainer, Path(folder))
        return (made / "log" / "train.log").read_bytes().decode()


def main(names: list[str]) -> None:
    """Train the cases named, or all, and write their logs."""
    for name in names or [*CASES, *FROM_LAB]:
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        text = CASES[name]() if name in CASES else from_lab(name)
        (folder / f"{name}.log").write_text(text, encoding="utf-8", newline="")
        print(f"{name}: {folder.name}/{name}.log")


if __name__ == "__main__":
    main(sys.argv[1:])
