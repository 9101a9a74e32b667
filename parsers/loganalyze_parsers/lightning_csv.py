"""Lightning's CSVLogger: lightning_logs/version_N/metrics.csv, and hparams.yaml beside it.

The table itself is read by `tables`; here is what only Lightning has: the hyper-parameters (the
flat part of the YAML), and what steps a version covers, to see whether it goes on with another.

>>> from loganalyze_parsers.samples import rows_of_file
>>> head = "epoch,step,train_loss,val_loss"
>>> row = "0,49,2.5,"
>>> step, values = rows_of_file(PARSER, "metrics.csv", head, row)[-1]
>>> step, values["loss"]
(49, 2.5)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from loganalyze import lazy
from loganalyze.model import Batch, Event, LineRef
from loganalyze_parsers.api import Head, Parser
from loganalyze_parsers.csv_table import sniffed_header
from loganalyze_parsers.tables import is_lightning, read_table
from loganalyze_parsers.tables import parse as parse_table
from loganalyze_parsers.tracker_events import Extent, extent_of_steps

_SETTING = lazy.pattern(r"([A-Za-z_][\w./-]*):\s+(\S.*)$")
_MOST_BYTES = 1024 * 1024


def sniff(head: Head) -> float:
    """metrics.csv with Lightning's columns."""
    header = sniffed_header(head) if head.path.name == "metrics.csv" else None
    return 0.95 if header is not None and is_lightning(header.names) else 0.0


def parse(path: Path, source: int) -> Iterator[Batch]:
    """The rows of the table, and the hyper-parameters as an event."""
    event = hparams_event(path, source)
    for batch in parse_table(path, source):
        yield batch if event is None else replace(batch, events=(event, *batch.events))
        event = None


def hparams_event(table: Path, source: int) -> Event | None:
    """The configuration of hparams.yaml beside a table; None without one."""
    path = table.with_name("hparams.yaml")
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = [match for line in text.splitlines() if (match := _SETTING.match(line))]
    config = {match[1]: match[2].strip().strip("'\"")[:200] for match in found}
    if not config:
        return None
    ref = LineRef(source=source, line=1, offset=0, length=0)
    return Event(kind="config", ref=ref, text="", detail=config)


def extent_of_table(path: Path) -> Extent | None:
    """Steps and columns of a metrics.csv; None without rows. The table has no clock."""
    header, table = read_table(path)
    if header is None or "step" not in table.columns:
        return None
    return extent_of_steps(table.columns["step"], frozenset(header.names) - {"step", "epoch"})


PARSER = Parser(name="lightning_csv", sniff=sniff, parse=parse)
