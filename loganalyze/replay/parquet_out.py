"""A replay's statistics as one long Parquet table, a row per number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from loganalyze.replay.measured import Measured
from loganalyze.replay.result import Result

SCHEMA = pa.schema([
    ("step", pa.int64()), ("kind", pa.string()), ("name", pa.string()), ("group", pa.string()),
    ("what", pa.string()), ("statistic", pa.string()), ("value", pa.float64()),
])  # fmt: skip
Row = tuple[int, str, str, str, str, str, float]


def render(result: Result) -> bytes:
    """Statistics of the suspect step and of the healthy one beside it, and the map of layers.

    kind: layer, parameter, embedding, head, sample, position, format, map; name: of the layer or
    sample (a head or position is numbered); what: activation, gradient, ...; value may be NaN.
    """
    rows = list(_rows(result))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in SCHEMA]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    sink = BytesIO()
    named = SCHEMA.with_metadata({"loganalyze": "replay/1", "run": result.run})
    pq.write_table(pa.Table.from_arrays(arrays, schema=named), sink)
    return sink.getvalue()


def _rows(result: Result) -> Iterator[Row]:
    yield from _measured(result.step, result.measured)
    if result.healthy is not None and len(result.steps) > 1:
        yield from _measured(result.steps[-2], result.healthy)
    for sample in result.samples:
        for key in ("loss", "z", "share", "grad_norm"):
            value = getattr(sample, key)
            if value is not None:
                yield (result.step, "sample", sample.id, "", "loss", key, float(value))
    for row in result.formats:
        for key in ("rms", "rms_fp32", "absmax", "absmax_fp32", "near_max_share", "apart"):
            yield (result.step, "format", row.name, row.group, "activation", key, getattr(row, key))
    for line in result.heat:
        for step, forward, backward in zip(result.steps, line.forward, line.backward, strict=True):
            yield (step, "map", line.name, line.group, "activation", "rms", forward)
            yield (step, "map", line.name, line.group, "output_gradient", "rms", backward)


def _measured(step: int, seen: Measured) -> Iterator[Row]:
    for layer in seen.layers:
        parts = {"activation": layer.activation, "output_gradient": layer.output_gradient,
                 "attention": layer.attention, "cost": layer.cost}  # fmt: skip
        yield from _parts(step, "layer", layer.name, layer.group, parts)
        for number, (entropy, logit) in enumerate(
            zip(layer.head_entropy, layer.head_logit, strict=True)
        ):
            heads = {"attention": {"entropy": entropy, "largest_logit": logit}}
            yield from _parts(step, "head", f"{layer.name}/{number}", layer.group, heads)
    for parameter in seen.parameters:
        update = {"l2": parameter.update_l2, "ratio": parameter.update_ratio}
        known = {key: value for key, value in update.items() if value is not None}
        parts = {"weight": parameter.weight, "gradient": parameter.gradient, "update": known}
        yield from _parts(step, "parameter", parameter.name, parameter.group, parts)
    for table in seen.embeddings:
        yield from _parts(step, "embedding", table.name, "embedding", {"weight": table.numbers})
    for place, loss in enumerate(seen.samples.positions if seen.samples else ()):
        yield (step, "position", str(place), "", "loss", "mean", loss)


def _parts(
    step: int, kind: str, name: str, group: str, parts: Mapping[str, Mapping[str, float]]
) -> Iterator[Row]:
    for what, numbers in parts.items():
        for statistic, value in numbers.items():
            yield (step, kind, name, group, what, statistic, float(value))
