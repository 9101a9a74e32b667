"""No number of a step line is dropped, in any folder: crude second readers look for each of them.

The second readers share no code with the parsers: they split text at commas, bars and colons, walk
protobuf messages byte by byte, and take CSV and JSON with the standard library. A number counts as
kept if the row that cites its place holds it, in the log's unit or in one it is converted to.
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from paths import CORPUS, needs_corpus

from loganalyze.ingest import ingest
from loganalyze.model import READING_COLUMNS

pytestmark = [pytest.mark.corpus, needs_corpus]

_GIB = 1024.0**3
#: What a number may be multiplied with: ms, percent, MHz, MB, MiB, GB, GiB, bits, K, M.
_FACTORS = (
    1.0, 1e-3, 1e-2, 1e3, 1e6, 1e9, 1e12, 1024.0**2, _GIB, math.log(2.0), 3600.0,
)  # fmt: skip
#: Longest file that is read a second time, and rows of it that are.
_MOST_BYTES, _ROWS = 600_000, 400


def truths(folder: str) -> list[Mapping[str, Any]]:
    """The judged cases of a folder."""
    file = CORPUS / folder / "TRUTH.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@cache
def frame_of(path: Path) -> pl.DataFrame:
    """All rows behind a path, runs one behind the other."""
    frames = [run.readings for run in ingest([str(path)]).runs if len(run.readings)]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def numbers_of(row: Mapping[str, object]) -> list[float]:
    """The metrics, the step and the time of a row."""
    keys = [n for n in row if n not in READING_COLUMNS] + ["step", "wall_s"]
    return [float(v) for n in keys if isinstance(v := row[n], int | float)]


def is_kept(value: float, kept: Iterable[float]) -> bool:
    """Whether a printed number is among the row's, in one unit or another."""
    return any(_same(value, other) for other in kept)


def _same(value: float, other: float) -> bool:
    if math.isnan(value) or math.isnan(other):  # a 0 beside a NaN gradient hides a NaN
        return math.isnan(value) == math.isnan(other) or value == 0.0
    if value == other or any(math.isclose(value * f, other, rel_tol=1e-6) for f in _FACTORS):
        return True
    return value != 0.0 and math.isclose(1.0 / value, other, rel_tol=1e-6)


# -- lines of text ----------------------------------------------------------------------------

_VALUE = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
#: A name, `:` or `=`, a number, and something that ends a number.
_PAIR = re.compile(
    rf"([A-Za-z][\w/ .()-]*?)['\"]?\s*[:=]\s*['\"]?({_VALUE})(?=['\"]?(?:[\s,|%}}\]]|ms|$))"
)
#: Counters, plans and clocks: they are the row's step, or say nothing of it; MFU and the like of
#: the first steps are placeholders.
_COUNTERS = re.compile(
    r"(?:^|\b)(?:step|iter|iteration|epoch|batch|eta|time|date|total|rank|pid|seed|mfu|loss scale|"
    r"grad norm|num_updates|update|v_num|step_avg|global_step|percentage|it|"
    r"remaining_time|elapsed_time)s?$",
    re.IGNORECASE,
)
#: What stands before the record: the logger's file and line, the node, the place in the grid.
_PREFIXES = re.compile(r"\.py$|\.train$|^node\d+$|^[DPT]P$|^epoch \d+$", re.IGNORECASE)


def naive_pairs(text: str) -> Iterator[tuple[str, float]]:
    """Names and numbers of a line, found the crude way."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for name, raw in _PAIR.findall(text):
        value = raw.replace(",", "") if re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+\.?\d*", raw) else raw
        if "," not in value:
            yield name.strip().split("  ")[-1].strip(), float(value)


def _is_stale(name: str, value: float, text: str) -> bool:
    """NeMo's bar prints a NaN placeholder beside the loss itself, and its lines repeat the last
    validation's loss until there is another."""
    placeholder = name == "loss" and math.isnan(value) and "Loss=" in text
    return placeholder or (name == "val_loss" and "reduced_train_loss" in text)


_TEXTS = [
    (folder, truth["path"])
    for folder in ("megatron", "deepspeed_hf")
    for truth in truths(folder)
    if truth["records"]
    and not truth["path"].endswith((".json", ".ipynb"))
    and (CORPUS / folder / truth["path"]).stat().st_size < _MOST_BYTES
]


@pytest.mark.parametrize(("folder", "path"), _TEXTS, ids=lambda value: str(value))
def test_no_number_of_a_text_line(folder: str, path: str) -> None:
    """Every `name: number` of a cited line is in a row that cites it; losses, rates and gradient
    norms by all means, others but for counters and clocks."""
    data = (CORPUS / folder / path).read_bytes()
    frame = frame_of(CORPUS / folder / path)
    by_place: dict[tuple[int, int], list[float]] = {}
    for row in frame.iter_rows(named=True):
        by_place.setdefault((row["offset"], row["length"]), []).extend(numbers_of(row))
    lost = []
    for (offset, length), kept in list(by_place.items())[:_ROWS]:
        text = data[offset : offset + length].decode("utf-8", "replace")
        for name, value in naive_pairs(text):
            told = _COUNTERS.search(name) or _PREFIXES.search(name)
            if _is_stale(name, value, text):
                continue
            if not told and not is_kept(value, kept):
                lost.append((name, value, text[:160]))
    assert not lost, lost[:5]


# -- JSON, CSV, run files, event files ---------------------------------------------------------

#: Not numbers of the run: counters of the export, clocks, what the system metrics never keep.
_BESIDE = re.compile(r"^_|^$|timestamp|_wandb|^Step$|^step$|^name$|Unnamed", re.IGNORECASE)


def numbers_in(value: object, name: str = "") -> Iterator[float]:
    """Every number inside a JSON value, but for lists (histograms, arguments)."""
    if isinstance(value, dict):
        if "_type" not in value:
            for key, inner in value.items():
                yield from numbers_in(inner, str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool | str):
        yield from () if _BESIDE.search(name) else (float(value),)


def golden_numbers(path: Path) -> list[float]:
    """Values of a golden-values file; the string "nan" is padding."""
    return [
        v for series in json.loads(path.read_text()).values() for v in numbers_in(series["values"])
    ]


def table_numbers(path: Path) -> list[float]:
    """Cells of a CSV that are numbers, below a name that is not a counter's."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        for name, cell in row.items():
            if not _BESIDE.search(name or "") and isinstance(cell, str):
                try:
                    found.append(float(cell))
                except ValueError:
                    continue
    return found


def line_numbers(path: Path) -> list[float]:
    """Numbers of a JSON-lines history, of the lines with a loss."""
    made: list[float] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if any("loss" in key for key in entry):  # not a bar's progress, not the end's summary
            made.extend(numbers_in(entry))
    return made


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a protobuf message: number, and an integer or the bytes. Stops at nonsense."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield key >> 3, data[at : at + size]
            at += size
        else:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size


def event_numbers(path: Path) -> list[float]:
    """simple_value of every summary in an event file, but for twins over samples and tokens."""
    data, at, found = path.read_bytes(), 0, []
    while at + 16 <= len(data):
        (size,) = struct.unpack("<Q", data[at : at + 8])
        if size == 0 or size > len(data) - at - 16:
            break
        for number, summary in fields(data[at + 12 : at + 12 + size]):
            for _, value in fields(summary) if number == 5 else ():
                parts = dict(fields(value))
                tag = parts.get(1, b"").decode("utf-8", "replace")
                if isinstance(parts.get(2), bytes) and " vs " not in tag:
                    found.append(struct.unpack("<f", parts[2])[0])
        at += size + 16
    return found


def run_numbers(path: Path) -> list[float]:
    """Numbers of the history records of a `.wandb` file whose blocks are counted from 0."""
    data, at, found, held = path.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            found.extend(_history_numbers(held))
        if kind in (0, 1, 4):
            held = b""
    return found


def _history_numbers(record: bytes) -> Iterator[float]:
    for number, history in fields(record):
        for _, item in fields(history) if number == 2 else ():
            if not isinstance(item, bytes):
                continue
            parts = list(fields(item))
            texts = (v for k, v in parts if k in (1, 2) and isinstance(v, bytes))
            name = b".".join(texts).decode()
            for raw in (v for k, v in parts if k == 16):
                yield from numbers_in(json.loads(raw), name)


#: Damaged on purpose (bit rot, zeroed blocks, blocks counted from 7): read by the parser alone.
_DAMAGED = ("base7", "bitrot", "zero", "badcrc", "truncated", "kill", "torn", "byte")
_READERS = (
    ("megatron", "*.json", golden_numbers),
    ("wandb_tb", "**/*.csv", table_numbers),
    ("wandb_tb", "**/*history*.jsonl", line_numbers),
    ("wandb_tb", "**/events.out.tfevents.*", event_numbers),
    ("wandb_tb", "**/run-*.wandb", run_numbers),
    ("deepspeed_hf", "*.jsonl", line_numbers),
    ("deepspeed_hf", "lightning*.csv", table_numbers),
)
_FILES = [
    (path, reader)
    for folder, pattern, reader in _READERS
    for path in sorted((CORPUS / folder).glob(pattern))
    if path.stat().st_size < _MOST_BYTES
    and path.name not in ("TRUTH.jsonl",)
    and "runs-table" not in str(path)
    and "curves-in-cells" not in str(path)
    and "lucas-metrics" not in str(path)
    and not any(word in str(path) for word in _DAMAGED)
]


@pytest.mark.parametrize(
    ("path", "reader"),
    _FILES,
    ids=lambda v: f"{v.parent.name}/{v.name}"[-70:] if isinstance(v, Path) else "",
)
def test_no_number_of_a_file(path: Path, reader: Any) -> None:
    """Every number that a crude reader finds is among the file's rows or its summary."""
    wanted = np.unique(np.array(reader(path), dtype=np.float64))
    frame, told = frame_of(path), summaries_of(path)
    columns = [n for n in frame.columns if n not in READING_COLUMNS] + ["step"]
    parts = [
        frame[n].drop_nulls().cast(pl.Float64).to_numpy() for n in columns if n in frame.columns
    ]
    kept = np.unique(np.concatenate([*parts, np.array(told, dtype=np.float64)]))
    missing = wanted[np.isfinite(wanted)]
    for factor in _FACTORS:
        at = np.clip(np.searchsorted(kept, missing * factor), 1, max(len(kept) - 1, 1))
        near = np.minimum(
            np.abs(kept[at - 1] - missing * factor), np.abs(kept[at] - missing * factor)
        )
        missing = missing[near > 1e-6 * np.abs(missing * factor) + 1e-12]
        if not len(missing):
            break
    assert not len(missing), missing[:10]


def summaries_of(path: Path) -> list[float]:
    """Numbers of the events (the last row of a run is a summary, no row of a curve)."""
    return [
        float(value)
        for run in ingest([str(path)]).runs
        for detail in run.events["detail"].to_list()
        for value in json.loads(detail).values()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
