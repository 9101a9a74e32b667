"""Memory prints of home-made loops: which are read, which are not, and which step they get."""

from __future__ import annotations

from pathlib import Path

import pytest
from loganalyze_parsers.memory_lines import DIALECT
from loganalyze_parsers.samples import rows_of
from textlogs import run_of

GIB = 1024.0**3
MIB = 1024.0**2


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "GPU memory allocated: 10.25 GB, reserved: 12.50 GB, max allocated: 11.75 GB",
            {"mem_allocated_bytes": 10.25 * GIB, "mem_reserved_bytes": 12.5 * GIB,
             "mem_peak_allocated_bytes": 11.75 * GIB},
        ),
        ("GPU 0 memory: 12345MiB / 81920MiB",
         {"mem_used_bytes": 12345 * MIB, "mem_total_bytes": 81920 * MIB}),
        ("cuda:1 Memory Usage: 3.5GB", {"mem_used_bytes": 3.5 * GIB}),
        ("peak memory = 71.5 GiB", {"mem_peak_allocated_bytes": 71.5 * GIB}),
        ("Max memory cached: 20480 MB", {"mem_peak_reserved_bytes": 20 * GIB}),
        (
            "Memory info of CPU: total:201.37Gb, available: 190.25Gb, percent: 5.5%",
            {"host_mem_used_bytes": pytest.approx(11.12 * GIB), "host_mem_share": 0.055},
        ),
        ("CPU memory usage: 63.5 GB, percent: 25.0%",
         {"host_mem_used_bytes": 63.5 * GIB, "host_mem_share": 0.25}),
        ("Process RSS: 4.25 GB", {"host_rss_bytes": 4.25 * GIB}),
        (
            "svmem(total=540000000000, available=500000000000, percent=7.5, used=38000000000)",
            {"host_mem_used_bytes": 4e10, "host_mem_share": 0.075},
        ),
    ],
)  # fmt: skip
def test_sizes_with_units_are_read(line: str, values: dict[str, float]) -> None:
    """Each under its canonical name, in bytes or as a share."""
    ((step, read),) = rows_of(DIALECT, line)
    assert step is None
    assert read == values


@pytest.mark.parametrize(
    "line",
    [
        "Memory info of GPU:0: current: 0.18, peak: 2.55",  # no unit
        "Theoretical memory footprints: weight and optimizer=293.07 MB, total=433.91 MB",
        "Estimated memory needed for params: 18.00GB per GPU",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Model loading took 13.5 GB memory and 7.2 seconds",
        "Saved 3 shards of 4.5 GB from memory",
        "memory pool: 12.5 GB reserved for the KV cache",
        "allocated 12 workers in 3.5 GB of 80 pieces",
    ],
)
def test_other_sizes_are_left_alone(line: str) -> None:
    """Plans, failures, sizes of things, other numbers: no reading of the memory in use."""
    assert rows_of(DIALECT, line) == []


def test_a_print_belongs_to_the_record_above_it(tmp_path: Path) -> None:
    """It gets the step of that record, and none where no record came before."""
    lines = ["GPU memory allocated: 1.0 GB"]
    for step in range(10, 40, 10):
        lines += [f"step={step} loss={3 - step / 100:.2f}", f"GPU memory allocated: {step} GB"]
    rows = run_of("\n".join(lines), tmp_path).readings.drop_nulls("mem_allocated_bytes")
    assert rows["step"].to_list() == [None, 10, 20, 30]
    assert rows["mem_allocated_bytes"].to_list() == [GIB, 10 * GIB, 20 * GIB, 30 * GIB]
