"""Progress tables of notebooks (transformers/utils/notebook.py), as Markdown, text or HTML.

    Step | Training Loss | Validation Loss | reward | kl
    -- | -- | -- | -- | --
    10 | 1.234500 | No Log | 0.512000 | nan

>>> from loganalyze.model import LineRef
>>> reader = TableReader()
>>> def feed(text):
...     return reader.feed(Line(text=text, ref=LineRef(source=0, line=1, offset=0, length=1)))
>>> [feed(t).ignored for t in ("Step | Training Loss | Validation Loss", "-- | -- | --")]
['head of a table', 'head of a table']
>>> feed("10 | 1.2345 | No Log").readings[0].values
{'loss': 1.2345}
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze.model import Reading
from loganalyze_parsers.api import Dialect, Line, Taken
from loganalyze_parsers.huggingface_keys import plain_key, reveal_hidden_nan, values_of
from loganalyze_parsers.numbers import number, whole

_HEAD = "head of a table"
_NAMES = {
    "Training Loss": "loss", "Validation Loss": "eval_loss", "Epoch": "epoch", "Step": "step",
    "Model Preparation Time": "model_preparation_time",
}  # fmt: skip
_HTML = lazy.pattern(r"<t([hd])[^>]{0,400}>([^<]{0,400})</t[hd]>")


class TableReader:
    """The columns of the open table, and an HTML row under construction."""

    def __init__(self) -> None:
        """No table."""
        self._columns: list[str] = []
        self._html: list[str] = []
        self._html_head: list[str] = []
        self._last_loss: float | None = None

    @property
    def open(self) -> bool:
        """Whether rows may follow."""
        return bool(self._columns or self._html_head)

    def feed(self, line: Line) -> Taken | None:
        """A head, a row, or None."""
        if "<t" in line.text or "</t" in line.text:
            return self._html_line(line)
        self._html_head = []
        cells = _cells(line.text)
        if _is_head(cells):
            self._columns = cells
            return Taken(ignored=_HEAD)
        if not self._columns:
            return None
        if cells and all(set(cell) <= set("-: ") for cell in cells):
            return Taken(ignored=_HEAD)
        taken = self._row(line, cells)
        if taken is None:
            self._columns = []
        return taken

    def finish(self) -> Taken:
        """Nothing is ever held back."""
        return Taken()

    def passed(self, step: int) -> None:
        """Never called: there is no bulk way."""

    def _row(self, line: Line, cells: list[str]) -> Taken | None:
        if len(cells) < 2 or len(cells) > len(self._columns):
            return None
        pairs = dict(zip(map(_name, self._columns), cells, strict=False))
        step = whole(number(pairs.get("step", "")))
        if step is None and number(pairs.get("epoch", "")) is None:
            return None
        values = values_of(pairs)
        reveal_hidden_nan(values, self._last_loss)
        self._last_loss = number(pairs.get("loss", ""))
        reading = Reading(
            step=step, ref=line.ref, values=values,
            rank=line.rank, wall_s=line.wall_s,
        )  # fmt: skip
        return Taken(readings=[reading]) if values else None

    def _html_line(self, line: Line) -> Taken | None:
        found = _HTML.findall(line.text)
        for kind, cell in found:
            (self._html_head if kind == "h" else self._html).append(cell.strip())
        if "</thead" in line.text or (self._html_head and not self._columns and self._html):
            self._columns = self._html_head if _is_head(self._html_head) else []
            self._html_head = []
        if not self._columns:
            self._html = []
            return Taken(ignored=_HEAD) if self._html_head else None
        width = len(self._columns)
        readings: list[Reading] = []
        while len(self._html) >= width:
            row, self._html = self._html[:width], self._html[width:]
            taken = self._row(line, row)
            readings.extend(taken.readings if taken else [])
        if "</table" in line.text:
            self._columns = []
        return Taken(readings=readings) if readings else Taken(ignored=_HEAD)


def _cells(text: str) -> list[str]:
    text = text.strip()
    if "|" in text:
        return [cell.strip() for cell in text.strip("|").split("|")]
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else []


def _is_head(cells: list[str]) -> bool:
    return bool({"Training Loss", "Validation Loss"} & set(cells)) and bool(
        {"Step", "Epoch"} & set(cells[:2])
    )


def _name(column: str) -> str:
    return _NAMES.get(column) or plain_key(column)


DIALECT = Dialect(
    name="huggingface",
    markers=("Training Loss", "Validation Loss", "<th>Step", "<th>Epoch"),
    reader=TableReader,
)
