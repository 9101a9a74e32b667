"""trainer_state.json of the Hugging Face Trainer, and its flat result files.

    {"global_step": 20, "log_history": [
        {"epoch": 0.1, "grad_norm": 0.8, "learning_rate": 4e-05, "loss": 1.9, "step": 10}, ...],
     "logging_steps": 10, "max_steps": 100}

log_history mixes training rows, evaluations and, at the end of a finished run, a summary (an
event). Bare NaN is legal here. checkpoint-N/trainer_state.json is a prefix of the later file of
the same run, unless its folder was used twice. all_results.json holds no curve at all.

>>> from loganalyze_parsers.samples import rows_of_file
>>> line = '{"global_step": 10, "log_history": [{"loss": 0.0, "grad_norm": NaN, "step": 10}]}'
>>> step, values = rows_of_file(PARSER, "trainer_state.json", line)[-1]
>>> step, values["loss"], values["raw/nan_hidden"]
(10, nan, 1.0)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.model import Account, Batch, Event, LineRef, Problem, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import line_bounds, open_bytes
from loganalyze_parsers.frames import readings_frame
from loganalyze_parsers.huggingface_keys import (
    is_summary,
    json_text,
    plain_key,
    reveal_hidden_nan,
    step_of,
    values_of,
)
from loganalyze_parsers.json_spans import Span, count_lines, list_spans
from loganalyze_parsers.spans import Floats
from loganalyze_parsers.trainer_entries import Entries, entries_frame, entries_of
from loganalyze_parsers.unpack import broken

_START = lazy.pattern(
    rb'\s*\{\s*"(?:best_global_step|best_metric|best_model_checkpoint|epoch|eval_steps|'
    rb'global_step|is_hyper_param_search|log_history)"'
)
_HISTORY = lazy.pattern(r'"log_history"\s*:\s*\[')
_SETTINGS = (
    "eval_steps", "logging_steps", "max_steps", "num_train_epochs", "save_steps",
    "train_batch_size", "best_metric", "best_model_checkpoint", "global_step",
)  # fmt: skip
_RESULT_KEYS = (b'"train_runtime"', b'"eval_runtime"', b'"predict_runtime"')


def sniff_state(head: Head) -> float:
    """A JSON object that holds a log_history."""
    if _START.match(head.data) and b'"log_history"' in head.data:
        return 0.97
    return 0.9 if head.path.name == "trainer_state.json" and head.data[:1] == b"{" else 0.0


def sniff_results(head: Head) -> float:
    """A small flat JSON object with a run time."""
    if b'"log_history"' in head.data or head.size > len(head.data) or b"[" in head.data:
        return 0.0
    flat = head.data.strip().startswith(b"{") and head.data.count(b"{") == 1
    return 0.95 if flat and any(key in head.data for key in _RESULT_KEYS) else 0.0


def parse_state(path: Path, source: int) -> Iterator[Batch]:
    """One batch: a row per entry of log_history, at the line where the entry begins."""
    data, problems = _read(path)
    text = data.decode("utf-8", "replace")
    found = _HISTORY.search(text)
    history = _History(path, source)
    start = 0 if found is None else found.end() - 1
    entries = entries_of(data, start) if found is not None and data.isascii() else None
    alike = None if entries is None else _add_alike(history, data, entries)
    count = 0
    if entries is not None and alike is not None:
        count = len(entries.starts)
        text = text[: int(entries.starts[0])] + text[entries.next :]
    for span in [] if found is None else list_spans(text, start):
        history.add(alike.moved(span) if alike else span)
        count += 1
    whole = _settings(text)
    if whole is None:
        problems.append(
            Problem(
                rule="input_breaks_off",
                message=f"{path}: the JSON breaks off after {count} entries of log_history; "
                "they are used",
            )
        )
    elif whole:
        history.events.insert(0, _event(_first_line(source), "config", None, whole))
    yield Batch(
        readings=_together(None if alike is None else alike.frame, history.readings),
        events=tuple(history.events),
        problems=(*problems, *history.problems),
        account=_account(data, history.lines, torn=whole is None),
        framework="huggingface",
    )


def parse_results(path: Path, source: int) -> Iterator[Batch]:
    """One event with the final numbers: there is no series in such a file."""
    data, problems = _read(path)
    try:
        content = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        problems.append(
            Problem(rule="not_json", message=f"{path}: not a JSON object; copy the file again")
        )
        yield Batch(
            readings=None,
            problems=tuple(problems),
            account=Account(lines=count_lines(data), unknown=count_lines(data)),
        )
        return
    summary = _summary(content)
    lines = count_lines(data)
    yield Batch(
        readings=None,
        events=(_event(_first_line(source), "note", None, summary),),
        problems=tuple(problems),
        account=Account(lines=lines, read=lines),
        framework="huggingface",
    )


class _Alike(Struct, frozen=True):
    """Entries read by templates; lines and size: what they take up, up to the next entry."""

    frame: pl.DataFrame | None
    lines: int
    size: int

    def moved(self, span: Span) -> Span:
        """The place of what stands behind them, given that in a text without them."""
        return replace(span, line=span.line + self.lines, offset=span.offset + self.size)


def _add_alike(history: _History, data: bytes, entries: Entries) -> _Alike | None:
    """What templates read of entries that are alike, the others one by one; None if one is torn."""
    starts, _ = line_bounds(data)
    first = np.searchsorted(starts, entries.starts, side="right")
    lines = np.searchsorted(starts, entries.ends - 1, side="right") - first + 1
    spans: list[tuple[int, Span]] = []
    for at in entries.rest.tolist():
        begin, end = int(entries.starts[at]), int(entries.ends[at])
        try:
            value = json.loads(data[begin:end])
        except (ValueError, RecursionError):
            return None
        spans.append((at, Span(value, int(first[at]), int(lines[at]), begin, end - begin)))
    losses = entries.losses()
    for at, span in spans:
        history.passed(losses, at)
        history.add(span)
    history.passed(losses, len(losses))
    history.lines += int(lines.sum()) - sum(span.lines for _, span in spans)
    begin = int(entries.starts[0])
    size = entries.next - begin
    frame = entries_frame(entries, first, history.source)
    return _Alike(frame, data.count(b"\n", begin, entries.next), size)


def _together(frame: pl.DataFrame | None, readings: list[Reading]) -> pl.DataFrame | None:
    """Rows read by templates and one by one, in the order of the file."""
    other = readings_frame(readings)
    if frame is None or other is None:
        return other if frame is None else frame
    return pl.concat([frame, other], how="diagonal").sort("offset")


class _History:
    """Rows, events and problems of one log_history."""

    def __init__(self, path: Path, source: int) -> None:
        self.readings: list[Reading] = []
        self.events: list[Event] = []
        self.problems: list[Problem] = []
        self.lines = 0
        self.source = source
        self._path = path
        self._loss: float | None = None
        self._told = 0  # entries that `passed` has told

    def passed(self, losses: Floats, end: int) -> None:
        """Entries before that index were read by templates; NaN: not so, or without a loss."""
        said = losses[self._told : end]
        said = said[~np.isnan(said)]
        self._loss = float(said[-1]) if len(said) else self._loss
        self._told = end

    def add(self, span: Span) -> None:
        """One entry; one that is no object, or has no number, stays unread."""
        if not isinstance(span.value, dict):
            return
        entry = {plain_key(str(key)): value for key, value in span.value.items()}
        step = step_of(entry)
        ref = LineRef(source=self.source, line=span.line, offset=span.offset, length=span.length)
        flos_alone = "total_flos" in entry and not {"loss", "eval_loss"} & set(entry)
        if is_summary(entry) or flos_alone:
            self.events.append(_event(ref, "note", step, _summary(entry)))
        else:
            values = values_of(entry)
            if not values:
                return
            loss = values.get("loss")
            if reveal_hidden_nan(values, self._loss) and not self.problems:
                self.problems.append(self._hidden(step, ref))
            self._loss = self._loss if loss is None else loss
            self.readings.append(Reading(step=step, ref=ref, values=values))
        self.lines += span.lines

    def _hidden(self, step: int | None, ref: LineRef) -> Problem:
        return Problem(
            rule="nan_hidden_by_trainer",
            message=(
                f"{self._path}:{ref.line}: step {step}: grad_norm is NaN beside a loss of 0 or "
                "one repeated from the row before: the Trainer's logging_nan_inf_filter hides a "
                "NaN loss; a 0 is read as NaN. Set logging_nan_inf_filter=False to see the loss"
            ),
            ref=ref,
        )


def _read(path: Path) -> tuple[bytes, list[Problem]]:
    try:
        with open_bytes(path) as stream:
            return stream.read(), []
    except (OSError, EOFError, ValueError) as error:
        return b"", [broken(path, error)]


def _settings(text: str) -> dict[str, str] | None:
    """The Trainer's settings as printed; None where the JSON is torn."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    known = {name: content[name] for name in _SETTINGS if content.get(name) is not None}
    return {name: json_text(value)[:200] for name, value in known.items()}


def _summary(entry: Mapping[str, object]) -> dict[str, str | float]:
    """Means over the whole run: not a row of any curve."""
    values = {name.removeprefix("raw/"): value for name, value in values_of(entry).items()}
    return {"summary": "end of training", **values}


def _account(data: bytes, read: int, *, torn: bool) -> Account:
    """Lines of entries are read; the file's frame is ignored by name, or unknown where torn."""
    lines = count_lines(data)
    read = min(read, lines)
    rest = lines - read
    if torn:
        return Account(lines=lines, read=read, unknown=rest)
    return Account(lines=lines, read=read, ignored={"frame of the JSON": rest} if rest else {})


def _first_line(source: int) -> LineRef:
    return LineRef(source=source, line=1, offset=0, length=1)


def _event(ref: LineRef, kind: str, step: int | None, detail: Mapping[str, str | float]) -> Event:
    return Event(kind=kind, ref=ref, text="", step=step, detail=detail)


PARSER = Parser(name="huggingface", sniff=sniff_state, parse=parse_state)
RESULTS_PARSER = Parser(name="huggingface_results", sniff=sniff_results, parse=parse_results)
