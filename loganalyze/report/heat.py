"""Ranks against each other: who deviates from the others, when, and by how much."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import polars as pl
from msgspec import Struct

from loganalyze.report.model import RunView
from loganalyze.tracks import FloatArray

COLUMNS, MOST_ROWS, MOST_RANKED = 120, 128, 12
PREFERRED = ("step_time_s", "comm_time_s", "data_time_s", "tokens_per_s_per_gpu", "gpu_temp_c",
             "mem_allocated_bytes", "loss", "grad_norm")  # fmt: skip
#: Deviation at which a colour is full, at least: 5 %; less is noise of a healthy job.
FULL_SCALE = 0.05
_BLUE, _PAPER, _ORANGE = (0x0B, 0x62, 0xA8), (0xEE, 0xEE, 0xEA), (0xC8, 0x4B, 0x0A)


class Ranked(Struct, frozen=True, kw_only=True):
    """A rank's median deviation from the median of all ranks: +0.3 is 30 % above."""

    rank: int
    deviation: float
    value: float


class HeatMap(Struct, frozen=True, kw_only=True):
    """One metric over ranks and steps. rows: the ranks (or first ranks of groups), top down."""

    metric: str
    first: int
    last: int
    rows: tuple[int, ...]
    per_row: int
    scale: float
    png: str  # base64
    ranked: tuple[Ranked, ...]
    ranks: int


def heat_maps(run: RunView, most: int = 4) -> tuple[HeatMap, ...]:
    """Heat maps of the metrics that several ranks report, the telling ones first."""
    names = sorted(run.distributed,
                   key=lambda n: (PREFERRED.index(n) if n in PREFERRED else 99, n))  # fmt: skip
    made = (heat_map(run, name) for name in names if name in PREFERRED)
    return tuple([item for item in made if item is not None][:most])


def heat_map(run: RunView, metric: str) -> HeatMap | None:
    """One metric: each cell is the largest deviation of a rank in a stretch of steps."""
    cells = _deviations(run, metric)
    if cells is None or cells.height == 0:
        return None
    first, last = _ends(cells)
    width = max(1, -(-(last - first + 1) // COLUMNS))
    ranks = cells["rank"].unique().sort().to_list()
    per_row = -(-len(ranks) // MOST_ROWS)
    row_of = pl.DataFrame({"rank": ranks, "row": [i // per_row for i in range(len(ranks))]})
    table = (
        cells.join(row_of, on="rank")
        .with_columns(column=(pl.col("step") - first) // width)
        .group_by("row", "column")
        .agg(low=pl.col("deviation").min(), high=pl.col("deviation").max())
        .sort("row", "column")
    )
    grid = np.full((-(-len(ranks) // per_row), (last - first) // width + 1), np.nan)
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    grid[table["row"].to_numpy(), table["column"].to_numpy()] = np.where(-low > high, low, high)
    scale = max(FULL_SCALE, float(np.nanpercentile(np.abs(grid), 98)))
    return HeatMap(
        metric=metric, first=first, last=last, rows=tuple(ranks[::per_row]), per_row=per_row,
        scale=scale, png=base64.b64encode(png(colours(grid / scale))).decode("ascii"),
        ranked=_ranking(cells), ranks=len(ranks),
    )  # fmt: skip


def _ends(cells: pl.DataFrame) -> tuple[int, int]:
    row = cells.select(first=pl.col("step").min(), last=pl.col("step").max()).row(0)
    return int(row[0]), int(row[1])


def _deviations(run: RunView, metric: str) -> pl.DataFrame | None:
    """rank, step, value and relative deviation from the median of all ranks at that step."""
    frame = run.diagnosis.run.readings
    value = pl.col(metric)
    known = frame.select("step", "segment", "rank", value=value).filter(
        pl.col("value").is_finite() & pl.col("step").is_not_null() & pl.col("rank").is_not_null()
    )
    middle = pl.col("value").median().over("step", "segment")
    ranks = pl.col("rank").n_unique().over("step", "segment")
    return known.filter(ranks > 1).with_columns(
        deviation=(pl.col("value") - middle) / pl.max_horizontal(middle.abs(), pl.lit(1e-12))
    )


def _ranking(cells: pl.DataFrame) -> tuple[Ranked, ...]:
    table = (
        cells.group_by("rank")
        .agg(deviation=pl.col("deviation").median(), value=pl.col("value").median())
        .sort(pl.col("deviation").abs(), "rank", descending=[True, False])
        .head(MOST_RANKED)
    )
    return tuple(Ranked(rank=r, deviation=d, value=v)
                 for r, d, v in table.select("rank", "deviation", "value").iter_rows())  # fmt: skip


def colours(grid: FloatArray) -> np.ndarray:
    """-1..1 to blue, paper, orange (told apart by colour-blind readers); NaN transparent. RGBA."""
    level = np.clip(np.nan_to_num(grid, nan=0.0), -1, 1)[..., None]
    paper = np.array(_PAPER, dtype=float)
    side = np.where(level < 0, np.array(_BLUE, dtype=float), np.array(_ORANGE, dtype=float))
    rgb = paper + (side - paper) * np.abs(level)
    alpha = np.where(np.isnan(grid), 0, 255)[..., None]
    return np.concatenate([np.round(rgb), alpha], axis=-1).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    """An RGBA array (rows, columns, 4) as a PNG file (RFC 2083), no filter."""
    height, width = pixels.shape[:2]
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data
        + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )  # fmt: skip
