"""History tables as CSV: W&B's API export, Lightning's metrics.csv, Keras, home-made ones.

    W&B         ,_step,_runtime,_timestamp,train/loss,...   sparse rows, empty = not logged
    Lightning   epoch,step,train_loss_step,val_loss,...     train, val and epoch rows apart
    Keras       epoch,accuracy,loss,val_accuracy,val_loss   one row an epoch: it is the step
    others      a column named like a step, and one that is known

A row of the file is a row of the readings; an empty cell is null, `NaN` and `Infinity` (also as
words in quotes) are numbers.

>>> from loganalyze_parsers.samples import rows_of_file
>>> head = "step,loss,grad_norm"
>>> row = "1,4.0,0.5"
>>> step, values = rows_of_file(PARSER, "own.csv", head, row)[-1]
>>> step, values["loss"], values["grad_norm"]
(1, 4.0, 0.5)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from loganalyze.model import Account, Batch, Problem
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.csv_table import (
    Cells,
    Header,
    header_of,
    numbers,
    read_cells,
    sniffed_header,
)
from loganalyze_parsers.history import Table, has_axis, history_batch, knows_any, tells_epochs
from loganalyze_parsers.unpack import broken

_HEAD_BYTES = 1 << 20


def sniff(head: Head) -> float:
    """A header with a column named like a step and a known metric, or an epoch and a loss."""
    header = sniffed_header(head)
    if header is None:
        return 0.0
    names = header.names
    if "_step" in names or (is_lightning(names) and head.path.name == "metrics.csv"):
        return 0.9
    if not knows_any(names):
        return 0.0
    if has_axis(names):
        return 0.7
    return 0.5 if tells_epochs(names) else 0.0


def is_lightning(names: tuple[str, ...]) -> bool:
    """Whether the columns are those of Lightning's CSVLogger."""
    return {"epoch", "step"} <= set(names) and any(
        name.endswith(("_step", "_epoch")) or name.startswith(("train_", "val_")) for name in names
    )


def parse(path: Path, source: int) -> Iterator[Batch]:
    """One batch: the numbers of all columns in memory, the text never."""
    header, table = read_table(path)
    if header is None:
        yield Batch(readings=None, problems=tuple(table.problems))
        return
    framework = ""
    if "_step" in header.names:
        framework = "wandb"
    elif is_lightning(header.names):
        framework = "lightning"
    yield history_batch(table, path, source, framework=framework, epochs=True)


def read_table(path: Path) -> tuple[Header | None, Table]:
    """A CSV file's header and the numbers in it; problems tell where it breaks off."""
    problems: list[Problem] = []
    blocks: list[Cells] = []
    header = None
    try:
        with open_bytes(path) as stream:
            header = header_of(stream.read(_HEAD_BYTES))
        if header is not None:
            blocks.extend(_slim(cells) for cells in read_cells(path, header, numeric=True))
    except (OSError, EOFError, ValueError) as error:
        problems.append(broken(path, error))
    if any(cells.torn for cells in blocks):
        problems.append(
            Problem(
                rule="input_breaks_off",
                message=f"{path}: the last line lacks cells and its line break; it is left out",
            )
        )
    return header, _table(blocks, problems)


def _slim(cells: Cells) -> Cells:
    """Cells as numbers; columns without any are dropped at the end."""
    frame = cells.frame.with_columns(numbers(pl.col(pl.String)))
    return Cells(
        frame=frame, line=cells.line, offset=cells.offset, length=cells.length, lines=cells.lines,
        headers=cells.headers, unknown=cells.unknown, torn=cells.torn,
    )  # fmt: skip


def _table(blocks: list[Cells], problems: list[Problem]) -> Table:
    frame = pl.concat([cells.frame for cells in blocks]) if blocks else pl.DataFrame()
    lines = sum(cells.lines for cells in blocks)
    headers = sum(cells.headers for cells in blocks)
    unknown = sum(cells.unknown for cells in blocks)
    blank = lines - headers - unknown - len(frame)
    return Table(
        columns={name: frame[name] for name in frame.columns},
        line=_joined([cells.line for cells in blocks]),
        offset=_joined([cells.offset for cells in blocks]),
        length=_joined([cells.length for cells in blocks]),
        lines=lines,
        ignored={"header": headers, "blank line": blank},
        unknown=unknown,
        problems=problems,
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def not_a_history(path: Path, table: Table, told: str) -> Batch:
    """A table with one row a run: nothing to draw a curve from, and the user hears of it."""
    problem = Problem(rule="not_a_history", message=f"{path}: {told}")
    rows = {"row of a table of runs": len(table)}
    ignored = {rule: count for rule, count in {**table.ignored, **rows}.items() if count}
    return Batch(
        readings=None,
        problems=(*table.problems, problem),
        account=Account(lines=table.lines, ignored=ignored, unknown=table.unknown),
    )


PARSER = Parser(name="csv_history", sniff=sniff, parse=parse)
