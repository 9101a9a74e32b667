"""The fast way through DeepSpeed logs: progress and throughput lines of one engine, by the column.

Only lines that it is certain of: the envelope of rank 0, plain numbers, steps that grow. At the
first progress line that is not so (two engines, glued or cut lines), and where Megatron, the chat
example or a progress bar change what a line means, it gives up for good and leaves the rest to
the reader; a test holds the numbers of both ways equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze_parsers.blocks import Block
from loganalyze_parsers.bulk_lines import PLAIN, Lines, framed, lines_of
from loganalyze_parsers.deepspeed_progress import first_skipped
from loganalyze_parsers.deepspeed_state import GIB

_CHANGES_MEANING = [
    "egatron", "ppo_ep", "E2E latency", "Total Generation", "%|", "\r", "\x1b",
]  # fmt: skip
#: All there is between stamp and fields.
_ORIGIN = (
    r"^\] \[INFO\] \[[A-Za-z_.]+:[0-9]+:[A-Za-z_]+\] (?:(?:\[Rank 0\] )?epoch|\[Rank 0\] step)$"
)
_BETAS = rf"^\[\(({PLAIN}), ({PLAIN})\)(?:, \({PLAIN}, {PLAIN}\))*\]\n?$"
_PROGRESS_ENDS = (", skipped", ", lr", "], mom")
_THROUGHPUT_ENDS = (
    "/micro_step", "/global_step", ", RunningAvgSamplesPerSec", ", CurrSamplesPerSec",
    ", MemAllocated", "GB, MaxMemAllocated",
)  # fmt: skip
Ints = npt.NDArray[np.int64]


class DeepSpeedBulk:
    """Reads blocks of one input; keeps the last step and the count of skipped steps."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._on = True
        self._step = -1
        self._skipped = 0

    def __call__(self, block: Block, source: int, ranks_per_node: int) -> pl.DataFrame | None:
        """The frame of all lines taken, or None from some block on."""
        if self._step < 0 and b"skipped=" not in block.data:
            self._on = False  # another sort of log: not worth a look at every line
        lines = lines_of(block) if self._on else None
        frames = None if lines is None else self._frames(lines, source)
        self._on = frames is not None
        if not frames:
            return None
        return pl.concat(frames, how="diagonal").sort("offset")

    def _frames(self, lines: Lines, source: int) -> list[pl.DataFrame] | None:
        told = lines.text.str.contains("skipped=", literal=True)
        timed = lines.text.str.contains("/global_step=", literal=True)
        rest = lines.text.filter(~(told | timed))
        if bool(rest.str.contains_any(_CHANGES_MEANING).any()):
            return None
        frames: list[pl.DataFrame] = []
        rows = np.flatnonzero(told.to_numpy())
        if len(rows):
            columns = self._progress(lines.text.gather(rows))
            if columns is None:
                return None
            frames.append(framed(lines, rows, source, columns))
        rows = np.flatnonzero(timed.to_numpy())
        if len(rows):
            columns = _throughput(lines.text.gather(rows))
            frame = framed(lines, rows, source, columns)
            frames.append(frame.filter(pl.all_horizontal(pl.col(*columns).is_not_null())))
        return frames

    def _progress(self, text: pl.Series) -> dict[str, pl.Series] | None:
        """Columns of progress lines; None where one is not plain or the steps do not grow."""
        cells, first, last = _cells(text, _PROGRESS_ENDS)
        steps = cells[0].cast(pl.Int64, strict=False)
        skipped = cells[1].cast(pl.Int64, strict=False)
        wall_s = _wall_s(first)
        rates = _rates(cells[2])
        betas = _betas(last)
        if betas is None or any(c.null_count() for c in (steps, skipped, wall_s, rates["lr"])):
            return None
        chain = np.concatenate(([self._step], steps.to_numpy()))
        if not bool((np.diff(chain) > 0).all()):
            return None
        columns = {"step": steps, "wall_s": wall_s, "raw/skipped": skipped, **rates, **betas}
        new = self._newly_skipped(steps.to_numpy(), skipped.to_numpy())
        columns["skipped_steps"] = pl.Series(new).fill_nan(None)
        self._step, self._skipped = int(chain[-1]), int(skipped[-1])
        return columns

    def _newly_skipped(self, steps: Ints, skipped: Ints) -> npt.NDArray[np.float64]:
        """Differences; NaN where a line says nothing of its interval."""
        before = np.concatenate(([self._skipped], skipped[:-1]))
        new = (skipped - before).astype(np.float64)
        new[new < 0] = np.nan
        if self._step < 0:
            first = first_skipped(int(steps[0]), int(skipped[0]))
            new[0] = np.nan if first is None else first
        return new


def _cells(text: pl.Series, ends: tuple[str, ...]) -> tuple[list[pl.Series], pl.Series, pl.Series]:
    """What stands between the signs of equality, less the next name; the first and last part.

    A cell that does not end as it should keeps its end, and so becomes null as a number.
    """
    field = text.str.split_exact("=", len(ends) + 1).struct.field
    cells = [field(f"field_{k}").str.strip_suffix(end) for k, end in enumerate(ends, 1)]
    return cells, field("field_0"), field(f"field_{len(ends) + 1}")


def _rates(text: pl.Series) -> dict[str, pl.Series]:
    """One or two groups' learning rates; null where there are more, or other things."""
    groups = text.str.strip_prefix("[").str.split_exact(", ", 2).struct
    first = groups.field("field_0").cast(pl.Float64, strict=False)
    second = groups.field("field_1").cast(pl.Float64, strict=False)
    whole = groups.field("field_2").is_null()
    whole &= second.is_not_null() | groups.field("field_1").is_null()
    columns = {"lr": pl.select(pl.when(whole).then(first)).to_series()}
    other = pl.select(pl.when(second != first).then(second)).to_series()
    if other.is_not_null().any():
        columns["raw/lr_group1"] = other
    return columns


def _betas(text: pl.Series) -> dict[str, pl.Series] | None:
    """The first group's betas; there are only a few different texts in a run."""
    unique = text.unique()
    numbers = unique.str.extract_groups(_BETAS)
    columns: dict[str, pl.Series] = {}
    for group, name in (("1", "raw/mom_beta1"), ("2", "raw/mom_beta2")):
        values = numbers.struct.field(group).cast(pl.Float64)
        if values.null_count():
            return None
        columns[name] = text.replace_strict(unique, values, return_dtype=pl.Float64)
    return columns


def _throughput(text: pl.Series) -> dict[str, pl.Series]:
    """Columns of throughput lines, null where a line is not plain."""
    cells, first, last = _cells(text, _THROUGHPUT_ENDS)
    cells.append(last.str.strip_suffix("\n").str.strip_suffix("GB"))
    epoch, micro, step, mean, current, memory, peak = (
        cell.cast(pl.Float64, strict=False) for cell in cells
    )
    return {
        "step": step.cast(pl.Int64, strict=False),
        "wall_s": _wall_s(first),
        "raw/RunningAvgSamplesPerSec": mean,
        "samples_per_s": current,
        "mem_allocated_bytes": memory * GIB,
        "mem_peak_allocated_bytes": peak * GIB,
        "raw/micro_step": micro,
        "raw/epoch_count": epoch,
    }


def _wall_s(head: pl.Series) -> pl.Series:
    """Seconds since the epoch of the stamp that opens the line, as if it were UTC.

    Null unless nothing but the envelope stands between the stamp and the first field.
    """
    origin = head.str.slice(24)
    unique = origin.unique()  # a handful: the places in the source that print such lines
    fine = unique.filter(unique.str.contains(_ORIGIN))
    known = origin.is_in(fine.implode()) & head.str.starts_with("[")
    stamps = head.str.slice(1, 19).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    thousandths = head.str.slice(21, 3).cast(pl.Float64, strict=False)
    seconds = stamps.dt.epoch("s").cast(pl.Float64) + thousandths / 1000.0
    return pl.select(pl.when(known).then(seconds)).to_series()
