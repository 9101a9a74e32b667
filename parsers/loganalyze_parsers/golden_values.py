"""Golden values of Megatron-LM's CI: JSON of one object a metric.

    {"lm loss": {"start_step": 1, "end_step": 10, "step_interval": 5,
                 "values": {"1": 10.2, "5": 9.1, "10": "nan"}},
     "iteration-time": {..., "values": {"1": 12.5, "5": 0.4, "10": 0.4}}}

iteration-time is in seconds; the string "nan" pads steps at which nothing was recorded.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = '{"lm loss": {"start_step": 1, "values": {"1": 10.25}}}'
>>> step, values = rows_of_file(PARSER, "golden.json", line)[-1]
>>> step, values["loss"]
(1, 10.25)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loganalyze import lazy
from loganalyze.model import Account, Batch, LineRef, Problem, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.frames import readings_frame
from loganalyze_parsers.json_spans import plain_number

_STEP = lazy.pattern(r"-?[0-9]{1,15}")
_METRICS = {
    "lm loss": "loss",
    "num-zeros": "num_zeros",
    "iteration-time": "step_time_s",
    "mem-allocated-bytes": "mem_allocated_bytes",
    "mem-max-allocated-bytes": "mem_peak_allocated_bytes",
    "grad-norm": "grad_norm",
    "learning-rate": "lr",
}


def sniff(head: Head) -> float:
    """Certain where the first object has the three step fields."""
    start = head.data[:4096]
    return 1.0 if start.lstrip()[:1] == b"{" and b'"start_step"' in start else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: a reading a step, all metrics of that step together."""
    with open_bytes(path) as stream:
        data = stream.read()
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    try:
        document: Mapping[str, Any] = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        problem = Problem(rule="bad_json", message=f"{path}: not valid JSON ({error})")
        yield Batch(readings=None, problems=(problem,), account=Account(lines=lines, unknown=lines))
        return
    places, used = _places(data, source)
    readings = list(
        _readings(document, places, LineRef(source=source, line=1, offset=0, length=len(data)))
    )
    account = Account(lines=lines, read=len(used), ignored=_rest(lines - len(used)))
    frame = readings_frame(readings)
    yield Batch(readings=frame, account=account, framework="megatron")


def _rest(count: int) -> dict[str, int]:
    return {"structure of the JSON document": count} if count else {}


def _readings(
    document: Mapping[str, Any], places: Mapping[int, LineRef], whole: LineRef
) -> Iterator[Reading]:
    """A reading a step; it is cited at the step's first number, most often the loss."""
    by_step: dict[int, dict[str, float]] = {}
    for name, series in document.items():
        if not isinstance(series, Mapping) or not isinstance(series.get("values"), Mapping):
            continue
        metric = _metric(name)
        for step, value in series["values"].items():
            number = plain_number(value)
            if number is not None and _STEP.fullmatch(step):
                by_step.setdefault(int(step), {})[metric] = number
    for step in sorted(by_step):
        yield Reading(step=step, ref=places.get(step) or whole, values=by_step[step])


def _metric(name: str) -> str:
    name = name.encode("utf-8", "replace").decode()  # half a character: no frame holds one
    if name in _METRICS:
        return _METRICS[name]
    bare = name.removesuffix(" loss")
    return f"aux_loss/{bare.replace(' ', '_')}" if bare != name else f"raw/{name}"


def _places(data: bytes, source: int) -> tuple[dict[int, LineRef], set[int]]:
    """Where the first number of each step stands, and all lines with a number of a step."""
    places: dict[int, LineRef] = {}
    used: set[int] = set()
    line, seen = 1, 0
    for match in re.finditer(rb'"(\d{1,15})"\s*:\s*-?[0-9NI][^,}\n"]*', data):
        line += data.count(b"\n", seen, match.start())
        seen = match.start()
        used.add(line)
        places.setdefault(
            int(match[1]),
            LineRef(source=source, line=line, offset=match.start(), length=len(match[0])),
        )
    return places, used


PARSER = Parser(name="megatron_golden_values", sniff=sniff, parse=parse)
