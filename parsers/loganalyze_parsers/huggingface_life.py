"""What the Trainer says besides its rows: headers, banners, checkpoints, end blocks.

***** Running training *****
  Num examples = 1,234
  Total train batch size (w. parallel, distributed & accumulation) = 64
  Total optimization steps = 57
[INFO|trainer.py:1] 2031-04-02 10:11:12,345 >> Saving model checkpoint to out/checkpoint-500
***** train metrics *****
  train_runtime            = 0:15:19.02
\\\\   /|    Num examples = 295 | Num Epochs = 3 | Total steps = 111       (Unsloth)
"""

from __future__ import annotations

from collections.abc import Mapping

from loganalyze import lazy
from loganalyze.model import Event
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.huggingface_keys import number_of
from loganalyze_parsers.huggingface_steps import StepClock
from loganalyze_parsers.numbers import NUMBER, whole
from loganalyze_parsers.tqdm_bar import clock_seconds

LIFE_MARKERS = (
    "***** ", "Num examples", "Num Epochs", "Num batches", "Instantaneous batch size",
    "Total train batch size", "Gradient Accumulation steps", "Gradient accumulation steps",
    "Total optimization steps", "rainable parameters", "Saving model checkpoint",
    "from checkpoint", "skip to saved global_step", "from global step", "logging_steps",
    "Training completed", "[INFO|", "[WARNING|", "saved in ", "missing keys in the checkpoint",
    "Total batch size", "Unsloth",
)  # fmt: skip

_BLOCK = lazy.pattern(r"\*{3,9} ?([^*]{1,60}?) ?\*{3,9}")
_SETTING = lazy.pattern(rf"([A-Z][\w .,&()/-]{{0,80}}?)\s*=\s*({NUMBER})(?![\w.])")
_SETTINGS: Mapping[str, str] = {
    "Num examples": "num_examples",
    "Num Epochs": "num_train_epochs",
    "Instantaneous batch size per device": "per_device_train_batch_size",
    "Batch size per device": "per_device_train_batch_size",
    "Total train batch size": "global_batch_size",
    "Total batch size": "global_batch_size",
    "Gradient Accumulation steps": "gradient_accumulation_steps",
    "Gradient accumulation steps": "gradient_accumulation_steps",
    "Total optimization steps": "max_steps",
    "Total steps": "max_steps",
    "Number of trainable parameters": "trainable_parameters",
    "Trainable parameters": "trainable_parameters",
    "Data Parallel GPUs": "data_parallel_size",
    "Num GPUs used": "num_gpus",
}
_LOGGING_STEPS = lazy.pattern(r"\blogging_steps['\"]?\s*[=:]\s*(\d{1,15})(?![\d.])")
_METRIC = lazy.pattern(r"([a-z]\w{0,120}(?:/\w{1,120}){0,9})\s{1,99}=\s{1,99}(\S.*)$")
_CHECKPOINT = lazy.pattern(r"checkpoint-(\d{1,15})")
_SAVING = lazy.pattern(r"Saving model checkpoint to (\S+)")
_LOADING = lazy.pattern(
    r"(?:Resuming training from checkpoint|Loading model from|Resuming from checkpoint)"
    r"(?: (?:at|with))? *:? *(\S*)|skip to saved global_step"
    r"|Continuing training from global step (\d{1,15})"
)
#: The tokenizer is written last (Trainer._save).
_SAVED_LAST = ("Special tokens file saved in", "tokenizer config file saved in")
_ENDLESS = 1e6  # an endless data set prints sys.maxsize epochs
_ENVELOPE = lazy.pattern(r"\[(INFO|WARNING|ERROR)\|[\w.]+:\d+\]")


def _plain_label(label: str) -> str:
    """The name of a size, without a logger's words before it and an explanation behind it.

    >>> _plain_label("INFO - __main__ -   Num examples"), _plain_label("Total batch size (2 x 4)")
    ('Num examples', 'Total batch size')
    """
    return label.rsplit(" - ", 1)[-1].split(" (")[0].strip()


def steps_per_epoch(sizes: Mapping[str, float]) -> float | None:
    """Steps per epoch by the header's sizes; None if they do not give it.

    The total over the epochs is exact, unless the run was limited by max_steps: then "Num Epochs"
    is rounded up, and examples over batch size tell.

    >>> steps_per_epoch({"max_steps": 111, "num_train_epochs": 3})
    37.0
    >>> steps_per_epoch({"max_steps": 60, "num_train_epochs": 1, "num_examples": 8000,
    ...                  "global_batch_size": 8})
    1000.0
    """
    total, epochs = sizes.get("max_steps"), sizes.get("num_train_epochs")
    whole = total / epochs if total and epochs and epochs < _ENDLESS else None
    batch = sizes.get("global_batch_size")
    if batch is None and "per_device_train_batch_size" in sizes:
        batch = sizes["per_device_train_batch_size"] * sizes.get("gradient_accumulation_steps", 1)
        batch *= sizes.get("data_parallel_size", sizes.get("num_gpus", 1))
    examples = sizes.get("num_examples")
    if not batch or not examples:
        return whole
    counted = examples / batch
    agree = whole is not None and abs(counted - whole) <= max(1.0, 0.02 * whole)
    return whole if agree else counted


class Life:
    """Which block is open, and whether a checkpoint is being written."""

    def __init__(self, clock: StepClock) -> None:
        """clock: told of headers and interruptions."""
        self._clock = clock
        self._block = ""
        self._sizes: dict[str, float] = {}
        self._saving: str | None = None

    @property
    def open(self) -> bool:
        """Whether a block of end metrics is open: its rows have no mark of their own."""
        return self._block.endswith("metrics")

    def feed(self, line: Line) -> Taken | None:
        """Events, an ignored line, or None."""
        if self.open:
            taken = self._metric(line)
            if taken is not None:
                return taken
            self._block = ""
        return (
            self._header(line) or self._settings(line) or self._checkpoint(line) or self._rest(line)
        )

    def _metric(self, line: Line) -> Taken | None:
        match = _METRIC.match(line.text.strip())
        if match is None:
            return None
        raw = match[2].strip()
        value = number_of(raw)
        if value is None and ":" in raw:
            value = clock_seconds(raw)
        detail: dict[str, str | float] = {match[1]: raw if value is None else value}
        return Taken(events=[self._event(line, "note", detail)])

    def _header(self, line: Line) -> Taken | None:
        match = _BLOCK.search(line.text)
        if match is None:
            return None
        title = match[1].strip().lower()
        if title.endswith("metrics"):
            self._block = title
            return Taken(events=[self._event(line, "note", {"block": title})])
        if title == "running training":
            self._block = title
            self._sizes = {}
            self._clock.begin(None, None)
            return Taken(events=[self._event(line, "config", {})])
        if title.startswith(("running evaluation", "running prediction")):
            self._block = title
            self._clock.interrupt()
            return Taken(events=[self._event(line, "evaluation", {})])
        return None

    def _settings(self, line: Line) -> Taken | None:
        detail: dict[str, str | float] = {}
        match = _LOGGING_STEPS.search(line.text)
        if match is not None and int(match[1]) > 0:
            self._clock.logging_steps = int(match[1])
            detail["logging_steps"] = match[1]
        found = {
            name: value
            for label, value in _SETTING.findall(line.text)
            if (name := _SETTINGS.get(_plain_label(label))) is not None
        }
        if found and self._block.startswith(("running evaluation", "running prediction")):
            return Taken(ignored="size of an evaluation")
        detail.update({name: value.replace(",", "") for name, value in found.items()})
        self._learn(found)
        return Taken(events=[self._event(line, "config", detail)]) if detail else None

    def _learn(self, found: Mapping[str, str]) -> None:
        """Sizes may stand on one line (a banner) or on several (a header), in any order."""
        sizes = {name: size for name, raw in found.items() if (size := number_of(raw)) is not None}
        new = {name: size for name, size in sizes.items() if self._sizes.get(name) != size}
        if not new:
            return
        self._sizes.update(new)
        total = self._sizes.get("max_steps")
        if total is not None and "num_gpus" not in new:
            self._clock.begin(whole(total), steps_per_epoch(self._sizes))

    def _checkpoint(self, line: Line) -> Taken | None:
        text = line.text
        match = _SAVING.search(text)
        if match is not None:
            self._clock.interrupt()
            self._saving = match[1]
            return Taken(events=[self._saved(line, "checkpoint_save_begin", match[1])])
        if self._saving is not None and any(words in text for words in _SAVED_LAST):
            path, self._saving = self._saving, None
            return Taken(events=[self._saved(line, "checkpoint_save_end", path)])
        match = _LOADING.search(text)
        if match is None:
            return None
        found = _CHECKPOINT.search(match[1] or "")
        step = int(found[1]) if found else (int(match[2]) if match[2] else None)
        if step is not None and self._clock.last_step is None:
            self._clock.base = step
        if step is None and not match[1]:
            return Taken(ignored="talk of resuming")
        return Taken(events=[self._event(line, "checkpoint_load", {"path": match[1] or ""}, step)])

    def _saved(self, line: Line, kind: str, path: str) -> Event:
        found = _CHECKPOINT.search(path)
        return self._event(line, kind, {"path": path}, int(found[1]) if found else None)

    def _rest(self, line: Line) -> Taken | None:
        text = line.text
        if "Training completed" in text:
            return Taken(events=[self._event(line, "exit", {"completed": 1.0})])
        if "missing keys in the checkpoint" in text:
            return Taken(events=[self._event(line, "warning", {})])
        match = _ENVELOPE.search(text)
        if match is not None and match[1] != "ERROR":
            return Taken(ignored=f"transformers log line ({match[1].lower()})")
        return None

    def _event(
        self, line: Line, kind: str, detail: Mapping[str, str | float], step: int | None = None
    ) -> Event:
        return Event(
            kind=kind,
            ref=line.ref,
            text=line.text[:400],
            step=self._clock.last_step if step is None else step,
            rank=line.rank,
            wall_s=line.wall_s,
            detail=detail,
        )
