"""DeepSpeed's csv_monitor: a folder with one file per metric, written by rank 0.

    ds_logs/MyJob/Train_Samples_train_loss.csv
    step,train_loss
    512,2.875
    1024,2.641

The column called `step` counts samples (monitor/csv_monitor.py is given global_samples), and so
does the step axis of these rows: optimizer steps cannot be had from the files alone, which is told
as a problem. A resumed process writes the header again.

>>> from loganalyze_parsers.samples import rows_of_file
>>> head = "step,lr"
>>> row = "64,0.0001"
>>> step, values = rows_of_file(PARSER, "Train_Samples_lr.csv", head, row)[-1]
>>> step, values["lr"]
(64, 0.0001)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loganalyze import lazy
from loganalyze.model import Account, Batch, LineRef, Problem, Reading
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes, read_blocks
from loganalyze_parsers.frames import readings_frame
from loganalyze_parsers.numbers import number, whole

_NAME = lazy.pattern(r"(Train|Eval|Validation)_(Samples|Eigenvalues|\w+?)_(\w+)\.csv(?:\.gz)?$")
_HEADER = lazy.pattern(rb"\xef?\xbb?\xbf?step,([\w.-]+)\r?\n")
_NAMES = {
    "train_loss": ("loss", 1.0),
    "eval_loss": ("val_loss", 1.0),
    "lr": ("lr", 1.0),
    "loss_scale": ("loss_scale", 1.0),
    "elapsed_time_ms_forward": ("forward_time_s", 1e-3),
    "elapsed_time_ms_backward": ("backward_time_s", 1e-3),
    "elapsed_time_ms_backward_allreduce": ("comm_time_s", 1e-3),
    "elapsed_time_ms_step": ("optimizer_time_s", 1e-3),
}


def sniff(head: Head) -> float:
    """A two-column CSV `step,<name>` in a file of the monitor's naming."""
    return 0.95 if _HEADER.match(head.data) and _NAME.search(head.path.name) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch a block of lines; a last one with what there is to say about the axis."""
    name, factor = "", 1.0
    with open_bytes(path) as stream:
        for block in read_blocks(stream):
            readings: list[Reading] = []
            headers = unknown = 0
            offset, line = block.offset, block.first_line
            for raw in block.data.splitlines(keepends=True):
                cells = raw.decode("utf-8", "replace").strip("\ufeff \r\n").split(",")
                ref = LineRef(source=source, line=line, offset=offset, length=len(raw.rstrip()))
                offset, line = offset + len(raw), line + 1
                if len(cells) == 2 and cells[0] == "step":
                    name, factor = _NAMES.get(cells[1], (f"raw/{cells[1]}", 1.0))
                    headers += 1
                    continue
                row = _row(cells, ref, name, factor)
                if row is None:
                    unknown += 1
                else:
                    readings.append(row)
            yield Batch(
                readings=readings_frame(readings),
                account=Account(
                    lines=headers + unknown + len(readings), read=len(readings),
                    ignored={"header": headers} if headers else {}, unknown=unknown,
                ),
                framework="deepspeed",
            )  # fmt: skip
    note = Problem(
        rule="steps_are_samples",
        message=f"{path}: the column `step` counts samples; divide by train_batch_size for steps",
    )
    yield Batch(readings=None, problems=(note,), framework="deepspeed")


def _row(cells: list[str], ref: LineRef, name: str, factor: float) -> Reading | None:
    if len(cells) != 2 or not name:
        return None
    samples, value = number(cells[0]), number(cells[1])
    step = whole(samples)
    if step is None or value is None:
        return None
    return Reading(step=step, ref=ref, values={name: value * factor})


PARSER = Parser(name="deepspeed_csv", sniff=sniff, parse=parse)
