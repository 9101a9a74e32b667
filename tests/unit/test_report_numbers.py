"""The numbers behind the drawings: buckets, means, packing, ranks, quotes, formatting."""

from __future__ import annotations

import base64
import gzip
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import report_fixture as fixture
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace

from loganalyze.model import LineRef
from loganalyze.report import buckets, numbers
from loganalyze.report.curves import Curve, charts
from loganalyze.report.heat import heat_maps, png
from loganalyze.report.model import view
from loganalyze.report.pack import Packer, ascii85, squeezed
from loganalyze.report.quotes import Quoter, shortened
from loganalyze.report.spark import spark
from loganalyze.report.svg import Shade, chart

VALUES = hnp.arrays(
    np.float64,
    st.integers(1, 400),
    elements=st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]),
)


@given(VALUES, st.integers(1, 60))
def test_extremes_keep_both_ends_of_every_bucket(values: np.ndarray, count: int) -> None:
    """Against a plain loop: each bucket's smallest, largest, and first and last broken value."""
    index = buckets.extremes(values, count)
    assert np.array_equal(index, np.unique(index))
    if len(values) <= 2 * count:
        assert len(index) == len(values)
        return
    width = math.ceil(len(values) / count)
    kept = set(index.tolist())
    for start in range(0, len(values), width):
        part = values[start : start + width].tolist()
        finite = [v for v in part if math.isfinite(v)]
        shown = [values[i] for i in kept if start <= i < start + width]
        if finite:
            assert min(v for v in shown if math.isfinite(v)) == min(finite)
            assert max(v for v in shown if math.isfinite(v)) == max(finite)
        broken = [start + i for i, v in enumerate(part) if not math.isfinite(v)]
        assert not broken or {broken[0], broken[-1]} <= kept
    assert len(index) <= 4 * count + 2


@given(VALUES, st.integers(1, 50))
def test_centred_mean_equals_a_plain_loop(values: np.ndarray, window: int) -> None:
    """The mean of the finite values within half a window on each side, NaN where there is none."""
    steps = np.cumsum(np.arange(1, len(values) + 1) % 3 + 1)
    at = steps[:: max(1, len(steps) // 7)]
    means = buckets.smooth(steps, values, window, at)
    for step, mean in zip(at.tolist(), means.tolist(), strict=True):
        near = [
            v for s, v in zip(steps.tolist(), values.tolist(), strict=True)
            if abs(s - step) <= window // 2 and math.isfinite(v)
        ]  # fmt: skip
        if near:
            assert mean == pytest.approx(sum(near) / len(near), rel=1e-6, abs=1e-3)
        else:
            assert math.isnan(mean)


def test_windows_hold_every_point_around_a_span() -> None:
    """A span that fits is kept whole with its margin; of a long one both ends are."""
    steps = np.arange(0, 10_000, 2)
    kept = steps[buckets.windows(steps, [(4000, 4010)], 40)]
    assert np.array_equal(kept, steps[(steps >= kept[0]) & (steps <= kept[-1])])
    assert kept[0] < 4000 < 4010 < kept[-1]
    ends = steps[buckets.windows(steps, [(1000, 9000)], 40)]
    assert {1000, 9000} <= set(ends.tolist())
    assert len(ends) <= 44


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.integers(100, 9000))
def test_shares_stay_within_the_budget(lengths: list[int], budget: int) -> None:
    """No series gets more than it has; the sum is the budget plus the least of each at most."""
    given_ = buckets.shares(lengths, budget, 10)
    assert all(part <= length for part, length in zip(given_, lengths, strict=True))
    assert sum(given_) <= budget + 10 * len(lengths)
    if sum(lengths) <= budget:
        assert given_ == lengths


def test_gaps_are_where_the_log_is_silent() -> None:
    """A jump over five intervals is a gap, a smaller one is not."""
    steps = np.array([0, 10, 20, 80, 90, 130, 200])
    assert buckets.gaps(steps, 10).tolist() == [2, 5]


def test_raw_ranges_hold_every_point() -> None:
    """Only stretches of kept neighbours count."""
    steps = np.arange(100, 200)
    kept = np.zeros(100, dtype=bool)
    kept[10:30] = kept[50:53] = kept[80:100] = True
    assert buckets.raw_ranges(steps, kept) == [(110, 129), (180, 199)]


def _decoded(text: str) -> bytes:
    back = text.encode().translate(bytes.maketrans(b".,", b"<&"))
    return base64.b85decode(back)


@given(st.binary(max_size=300))
def test_packed_text_is_inert_and_reversible(data: bytes) -> None:
    """No < and no & in the letters, and the bytes come back."""
    text = ascii85(data)
    assert not set("<&") & set(text)
    assert _decoded(text) == data
    assert gzip.decompress(_decoded(squeezed(data))) == data


def test_packed_arrays_come_back() -> None:
    """Steps as differences, values in 32 bits, counts in 64, each from its planes."""
    packer = Packer()
    steps, floats = np.array([5, 7, 3, 1_000_000]), np.array([1.5, math.nan, -2.25])
    counts = np.array([2.0**40 + 1, 3.0])
    slots = [packer.steps(steps), packer.values(floats), packer.values(counts)]
    block = gzip.decompress(_decoded(packer.text()))
    assert [slot[2] for slot in slots] == ["d", "f", "g"]

    def plain(slot: tuple[int, int, str], dtype: str) -> np.ndarray:
        offset, count, _ = slot
        size = np.dtype(dtype).itemsize
        planes = np.frombuffer(block, np.uint8, size * count, offset).reshape(size, count)
        return np.ascontiguousarray(planes.T).view(dtype).ravel()

    assert np.cumsum(plain(slots[0], "<i4")).tolist() == steps.tolist()
    assert np.array_equal(plain(slots[1], "<f4"), floats.astype(np.float32), equal_nan=True)
    assert plain(slots[2], "<f8").tolist() == counts.tolist()


def test_charts_keep_within_their_budget_and_lose_no_extreme() -> None:
    """A small budget: fewer points, the same extremes, only logged points, raw near findings."""
    run = view(fixture.sick_run())
    made = {item.metric.name: item for item in charts(run, 20_000)}
    frame = run.diagnosis.run.readings
    assert sum(item.shown for item in made.values()) < 26_000
    for name in ("loss", "grad_norm", "tokens_per_s"):
        known = frame[name].drop_nulls().drop_nans().to_numpy()
        known = known[np.isfinite(known)]
        shown = np.concatenate([c.values[np.isfinite(c.values)] for c in made[name].curves])
        assert shown.min() == known.min()
        assert shown.max() == known.max()
        assert np.isin(shown, known).all()
    first = made["loss"].curves[0]
    assert any(a <= fixture.SPIKE and b >= fixture.SPIKE + 29 for a, b in first.raw)
    assert first.again_from == fixture.RESUME
    assert made["loss"].curves[1].again_from is None


def test_many_ranks_become_a_band() -> None:
    """Of 40 ranks only the one that a finding names is drawn, within lowest, median, highest."""
    run = view(fixture.sick_run(ranks=40))
    item = next(c for c in charts(run, 30_000) if c.metric.name == "step_time_s")
    assert [c.rank for c in item.curves if c.role == "raw"] == [5]
    low, high, mid = (next(c for c in item.curves if c.role == r) for r in ("low", "high", "mid"))
    assert (low.values <= mid.values).all()
    assert (mid.values <= high.values).all()
    assert item.ranks == 40


@pytest.mark.parametrize("ranks", [8, 300])
def test_heat_map_finds_the_slow_rank(ranks: int) -> None:
    """The ranking begins with rank 5, and the picture has a row for each rank or group."""
    made = heat_maps(view(fixture.sick_run(ranks=ranks)))
    item = next(m for m in made if m.metric == "step_time_s")
    assert item.ranked[0].rank == 5
    assert item.ranked[0].deviation == pytest.approx(0.31, abs=0.03)
    data = base64.b64decode(item.png)
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert height == len(item.rows) == math.ceil(ranks / item.per_row)
    assert width <= 120


def test_png_holds_the_pixels() -> None:
    """Decompressed, a picture is its rows, each after a zero filter byte."""
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    data = png(pixels)
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    raw = zlib.decompress(data[start + 4 : start + 4 + length])
    assert raw == b"\0" + pixels[0].tobytes() + b"\0" + pixels[1].tobytes()


def test_svg_draws_breaks_marks_and_shades() -> None:
    """NaN become crosses, the branch given up a line of its own, a long shade a strip."""
    run = view(fixture.sick_run())
    item = next(c for c in charts(run, 30_000) if c.metric.name == "loss")
    shades = (Shade(first=0, last=4000, severity="warning"),
              Shade(first=2600, last=2630, severity="critical"))  # fmt: skip
    text = str(chart(item.curves, "nat", shades=shades, restarts=[fixture.RESUME]) or "")
    assert 'class="n"' in text
    assert 'class="c c0 old raw"' in text
    assert 'class="r"' in text
    assert 'class="s warning"' in text
    assert 'height="4"' in text
    assert len(text) < 14_000


def test_quotes_are_read_only_from_unchanged_inputs(tmp_path: Path) -> None:
    """The cited line comes back; after the file has grown it is no longer quoted."""
    run = fixture.sick_run(tmp_path).run
    ref = run.readings.select("source", "line").row(0)
    assert ref == (0, 1)
    _, refs, _ = fixture.log_lines(tmp_path, False)
    quoter = Quoter(sources=run.sources)
    quote = quoter.quote(refs[2601])
    quoter.close()
    assert quote is not None
    assert "2601/" in quote.text
    assert (quote.line, quote.note) == (2602, "")
    changed = tuple(replace(source, bytes=source.bytes + 1) for source in run.sources)
    gone = Quoter(sources=changed).quote(refs[2601])
    assert gone is not None
    assert (gone.text, gone.note) == ("", "ui_quote_gone")
    assert Quoter(sources=run.sources).quote(LineRef(source=9, line=1, offset=0, length=5)) is None


def test_long_and_broken_lines_are_shortened() -> None:
    """One line, no control character, the middle left out, bad bytes shown."""
    text = shortened(b"\x1b[31m begin " + b"x" * 5000 + b"\xff end\r\n", "utf-8")
    assert len(text) < 500
    assert text.isprintable()
    assert text.startswith("[31m begin")
    assert text.endswith("end")


def test_sparkline_has_the_spike_and_the_nan() -> None:
    """The window of a finding shows its peak as the highest bar, NaN as !."""
    run = view(fixture.sick_run())
    found = {finding.id: finding for finding in run.findings.values()}
    spike = spark(run, "loss", found["LA102-1"], 60)
    broken = spark(run, "loss", found["LA101-1"], 60)
    assert spike is not None
    assert broken is not None
    assert "█" in spike.bars
    assert broken.bars.endswith("!")
    assert spark(run, "no_such_metric", None, 60) is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "–"), (math.nan, "nat", "NaN"), (-math.inf, "", "-Infinity"), (0.0, "1", "0"),
        (6.2e10, "B", "57.74 GiB"), (0.4213, "share", "42.13 %"), (0.0021, "s", "2.1 ms"),
        (67.2, "s", "67.2 s"), (940, "s", "15 min 40 s"), (200_000, "s", "2 d 7 h"),
        (1.41e9, "Hz", "1410 MHz"), (182_123.4, "token/s", "182,123 token/s"),
        (3e-4, "1", "0.0003"), (1e-9, "", "1e-09"), (2.317, "nat", "2.317 nat"), ("x", "1", "x"),
    ],
)  # fmt: skip
def test_numbers_are_written_by_their_unit(value: float | str | None, unit: str, text: str) -> None:
    """Bytes, shares, seconds and the rest as people write them."""
    assert numbers.number(value, unit) == text


def test_clock_is_the_logged_time() -> None:
    """Wall time is shown as it was logged, without a time zone; nonsense is not shown."""
    assert numbers.clock(1_780_000_000.0) == "2026-05-28 20:26:40"
    assert numbers.clock(math.nan) == ""
    assert numbers.clock(None) == ""


@pytest.mark.slow
def test_hundreds_of_restarts_and_unknown_keys_stay_within_the_budget() -> None:
    """300 segments of 100 metrics: 80 charts within twice the budget, the first one complete."""
    sick = fixture.sick_run()
    steps, segments = np.tile(np.arange(40), 300), np.repeat(np.arange(300), 40)
    n = len(steps)
    rng = np.random.default_rng(5)
    readings = pl.DataFrame({
        "step": steps + 40 * segments, "segment": segments.astype(np.int32),
        "rank": np.zeros(n, np.int32), "wall_s": 1.7e9 + np.arange(n, dtype=float),
        "source": np.zeros(n, np.int32), "line": np.arange(1, n + 1),
        "offset": np.zeros(n, np.int64), "length": np.zeros(n, np.int64),
        **{f"raw/{i:03d}": rng.normal(0, 1, n) for i in range(100)},
    })  # fmt: skip
    run = view(replace(sick, run=replace(sick.run, readings=readings)))
    made = charts(run, 30_000)
    assert len(made) == 80
    assert sum(item.shown for item in made) < 60_000
    assert {curve.segment for curve in made[0].curves} == set(range(300))
    assert made[0].total == n
    assert len(str(chart(made[0].curves, "1") or "")) < 60_000


def test_shares_follow_the_weights() -> None:
    """Of equal series the heavier gets more; what a short one leaves goes to the others."""
    assert buckets.shares([1000, 1000], 800, 10, [3.0, 1.0]) == [600, 200]
    assert buckets.shares([50, 1000, 1000], 650, 10, [6.0, 1.0, 1.0]) == [50, 300, 300]


def _long_curve(values: np.ndarray) -> Curve:
    empty = np.empty(0, dtype=np.int64)
    return Curve(
        segment=0, rank=None, role="raw", steps=np.arange(len(values)), values=values,
        total=len(values), gaps=empty, raw=(), smooth_at=empty, smooth={},
    )  # fmt: skip


def test_svg_shows_what_a_noisy_curve_covers_and_a_smooth_one_as_a_line() -> None:
    """Of many points in a column the outline from lowest to highest, closed, a spike in it."""
    noisy = np.random.default_rng(0).normal(2.0, 0.1, 5000)
    noisy[1234] = 9.0
    text = str(chart([_long_curve(noisy)], "nat"))
    shape = re.search(r'class="c c0 raw range" d="M([^"Z]+)Z"', text)
    assert shape is not None
    heights = [float(y) for y in shape[1].split()[1::2]]
    assert min(heights) < 20 < 140 < sorted(heights)[-110]  # the spike, and the floor
    assert "range" not in str(chart([_long_curve(np.linspace(0, 1, 5000))], "nat"))
