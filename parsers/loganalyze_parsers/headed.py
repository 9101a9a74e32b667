"""Records of several lines under a heading: Composer / llm-foundry, OLMo, OLMo-core, torchforge.

    [epoch=1][batch=40/4800]:
         Train loss/train/total: 7.1234
         Train memory/allocated_mem: 6.8051
    2031-04-02 10:11:12.345 node01:0  olmo.train:908  INFO    [step=40/739328,epoch=0]
        optim/total_grad_norm=231.7
        train/CrossEntropyLoss=12.18
    === [global_reduce] - METRICS STEP 40 ===
      grpo_loss/total_loss: 0.0123

Composer counts memory in GB of 1e9 bytes and time in hours; OLMo-core's mfu is a percentage.

>>> from loganalyze_parsers.samples import rows_of
>>> head = "[epoch=1][batch=40/4800]:"
>>> units = "  Train loss/train/total: 7.1234"
>>> row = "  Train memory/allocated_mem: 6.5"
>>> step, values = rows_of(DIALECT, head, units, row)[-1]
>>> step, values["loss"], values["mem_allocated_bytes"]
(40, 7.1234, 6500000000.0)
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze.model import LineRef, Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.pairs import scaled

_HEADING = lazy.pattern(
    r"\[(?:epoch=\d+\]\[)?(?:batch|step)=(?P<step>[\d,]{1,20})(?:/[\d,]{1,20})?[^\]]{0,200}\]:?$"
    r"|^=== \[\w{1,40}\] - METRICS STEP (?P<reduced>\d{1,15}) ===$"
)
_ROW = lazy.pattern(r"^(?:- )?(?P<key>[A-Za-z][\w /().%-]*?)(?:: +|=)(?P<value>[-+\w.,]+%?)$")
_GIB = 1024.0**3
_NAMES = {
    "loss/train/total": ("loss", 1.0),
    "train/CrossEntropyLoss": ("loss", 1.0),
    "train/CE loss": ("loss", 1.0),
    "grpo_loss/total_loss": ("loss", 1.0),
    "rl_trainer/avg_grpo_loss": ("loss", 1.0),
    "grpo_loss/kl_divergence_mean": ("kl", 1.0),
    "grpo_loss/entropy_mean": ("entropy", 1.0),
    "reward/evaluate_response/avg_total_reward": ("reward", 1.0),
    "episode/avg_response_tokens": ("response_length", 1.0),
    "rl_trainer/learning_rate": ("lr", 1.0),
    "train/Perplexity": ("perplexity", 1.0),
    "train/PPL": ("perplexity", 1.0),
    "metrics/train/LanguagePerplexity": ("perplexity", 1.0),
    "metrics/eval/LanguageCrossEntropy": ("val_loss", 1.0),
    "eval/CrossEntropyLoss": ("val_loss", 1.0),
    "optim/total_grad_norm": ("grad_norm", 1.0),
    "optim/total grad norm": ("grad_norm", 1.0),
    "l2_norm/grad/global": ("grad_norm", 1.0),
    "optim/learning_rate_group0": ("lr", 1.0),
    "optim/LR (group 0)": ("lr", 1.0),
    "lr-DecoupledAdamW/group0": ("lr", 1.0),
    "optim/step skipped": ("skipped_steps", 1.0),
    "memory/allocated_mem": ("mem_allocated_bytes", 1e9),
    "memory/current_allocated_mem": ("mem_allocated_bytes", 1e9),
    "memory/current_reserved_mem": ("mem_reserved_bytes", 1e9),
    "memory/current_active_mem": ("mem_active_bytes", 1e9),
    "memory/peak_allocated_mem": ("mem_peak_allocated_bytes", 1e9),
    "memory/reserved_mem": ("mem_reserved_bytes", 1e9),
    "memory/peak_reserved_mem": ("mem_peak_reserved_bytes", 1e9),
    "memory/active_mem": ("mem_active_bytes", 1e9),
    "memory/alloc_retries": ("alloc_retries", 1.0),
    "System/Peak GPU Memory (MB)": ("mem_peak_allocated_bytes", 1e6),
    "system/GPU active mem (GiB)": ("mem_active_bytes", _GIB),
    "system/GPU reserved mem (GiB)": ("mem_reserved_bytes", _GIB),
    "throughput/total_tokens": ("tokens_seen", 1.0),
    "throughput/total tokens": ("tokens_seen", 1.0),
    "throughput/device/MFU": ("mfu", 0.01),
    "throughput/device/TPS": ("tokens_per_s_per_gpu", 1.0),
    "throughput/device/tokens_per_second": ("tokens_per_s_per_gpu", 1.0),
    "throughput/device/tokens_per_sec": ("tokens_per_s_per_gpu", 1.0),
    "throughput/tokens_per_sec": ("tokens_per_s", 1.0),
    "throughput/samples_per_sec": ("samples_per_s", 1.0),
    "throughput/device/mfu": ("mfu", 1.0),
    "throughput/batches_per_sec": ("raw/batches_per_sec", 1.0),
}
_MAX_ROWS = 2000


class HeadedReader:
    """Collects the rows under a heading until something else comes."""

    def __init__(self) -> None:
        """Nothing open."""
        self._step: int | None = None
        self._first: Line | None = None
        self._end = 0
        self._values: dict[str, float] = {}

    @property
    def open(self) -> bool:
        """Whether rows of a heading are awaited."""
        return self._first is not None

    def feed(self, line: Line) -> Taken | None:
        """A heading opens a record, rows extend it, anything else closes it."""
        heading = _HEADING.search(line.text)
        if heading is not None:
            taken = self._close()
            self._first, self._step = line, _step_of(heading)
            self._end = line.ref.offset + line.ref.length
            taken.ignored = "heading of a record"
            return taken
        row = _ROW.match(line.text)
        if row is not None and self._takes(row):
            return self._row(line, row)
        if self._values:
            return self._close()
        self._first = None
        return None

    def _takes(self, row: re.Match[str]) -> bool:
        inside = self._first is not None and len(self._values) < _MAX_ROWS
        return inside or _bare(row["key"]) in _NAMES

    def _row(self, line: Line, row: re.Match[str]) -> Taken:
        if self._first is None:
            self._first = line
        name, factor = _NAMES.get(_bare(row["key"]), (f"raw/{_bare(row['key'])}", 1.0))
        value = scaled(row["value"])
        if value is not None:
            self._values[name] = value * factor
        self._end = line.ref.offset + line.ref.length
        return Taken(ignored="row of a record")

    def _close(self) -> Taken:
        taken = Taken()
        if self._first is not None and self._values:
            ref = self._first.ref
            span = LineRef(
                source=ref.source, line=ref.line, offset=ref.offset, length=self._end - ref.offset
            )
            reading = Reading(
                step=self._step, ref=span, values=self._values, rank=self._first.rank,
                wall_s=self._first.wall_s,
            )  # fmt: skip
            taken.readings.append(reading)
        self._step, self._first, self._values = None, None, {}
        return taken

    def finish(self) -> Taken:
        """The record that the end of the input closes."""
        return self._close()

    def passed(self, step: int) -> None:
        """No bulk way."""


def _step_of(heading: re.Match[str]) -> int:
    return int((heading["step"] or heading["reduced"]).replace(",", ""))


def _bare(key: str) -> str:
    return key.removeprefix("Train ").removeprefix("Eval ").strip()


DIALECT = Dialect(
    name="composer_olmo",
    markers=(
        "batch=",
        "[step=",
        "loss/train/total",
        "memory/",
        "metrics/",
        "train/",
        "System/",
        "METRICS STEP",
    ),
    reader=HeadedReader,
    commas="thousands",
)
