"""The same step in its own number format and in fp32, layer by layer."""

from __future__ import annotations

import math

from loganalyze.replay.measured import Layer, Measured
from loganalyze.replay.result import FormatRow


def compare(own: Measured, wide: Measured) -> tuple[FormatRow, ...]:
    """Outputs of every layer that both saw, in forward order."""
    theirs = {layer.name: layer for layer in wide.layers if layer.activation}
    return tuple(
        _row(layer, theirs[layer.name])
        for layer in own.layers
        if layer.activation and layer.name in theirs
    )


def worst_first(rows: tuple[FormatRow, ...]) -> tuple[FormatRow, ...]:
    """Layers that the format changes most; equal ones in forward order."""
    return tuple(sorted(rows, key=lambda row: -row.apart))


def _row(own: Layer, wide: Layer) -> FormatRow:
    one, two = own.activation, wide.activation
    return FormatRow(
        name=own.name, group=own.group, rms=one["rms"], rms_fp32=two["rms"], absmax=one["absmax"],
        absmax_fp32=two["absmax"], nonfinite=one["nonfinite"],
        near_max_share=one["near_max_share"], subnormal_share=one["subnormal_share"],
        apart=_apart(own, wide),
    )  # fmt: skip


def _apart(own: Layer, wide: Layer) -> float:
    one, two = own.activation, wide.activation
    if bool(one["nonfinite"]) != bool(two["nonfinite"]):
        return math.inf
    if not (one["rms"] > 0 and two["rms"] > 0):
        return 0.0 if one["rms"] == two["rms"] else math.inf
    return abs(math.log(one["rms"] / two["rms"]))
