"""What decides the last bits beside code and data: threads, flags, versions, the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from loganalyze.replay.state import cuda_in_use

#: Entries that a replay can set; the others can only be compared.
SETTINGS = ("threads", "deterministic", "matmul_tf32", "cudnn_tf32", "cudnn_benchmark")


def capture() -> dict[str, Any]:
    """The present environment as plain JSON."""
    return {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if cuda_in_use() else "cpu",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_tf32": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


@contextmanager
def as_recorded(wanted: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Settings as recorded inside the block; gives the names of entries that still differ."""
    before = capture()
    _apply({key: wanted.get(key, before[key]) for key in SETTINGS})
    try:
        now = capture()
        yield tuple(key for key in now if key in wanted and wanted[key] != now[key])
    finally:
        _apply(before)


@contextmanager
def full_fp32() -> Iterator[None]:
    """Products in true fp32 inside the block: no TF32."""
    with as_recorded(capture() | {"matmul_tf32": "highest", "cudnn_tf32": False}):
        yield


def _apply(values: Mapping[str, Any]) -> None:
    torch.set_num_threads(values["threads"])
    torch.use_deterministic_algorithms(values["deterministic"], warn_only=True)
    torch.set_float32_matmul_precision(values["matmul_tf32"])
    torch.backends.cudnn.allow_tf32 = values["cudnn_tf32"]
    torch.backends.cudnn.benchmark = values["cudnn_benchmark"]
