"""Frames moved out of the memory are the frames they were."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from textlogs import megatron_line

from loganalyze import ingest, reading, spill
from loganalyze.store import read_run, write_run


def frame(first: int, rows: int, **more: list[float | None]) -> pl.DataFrame:
    """Keys and a metric with NaN and null."""
    steps = list(range(first, first + rows))
    loss = [None if n % 5 == 0 else math.nan if n % 7 == 0 else n / 3 for n in steps]
    return pl.DataFrame({"step": steps, "loss": loss, **more})


def test_mapped_frame_is_the_same() -> None:
    """Nulls, NaN, and chunks that end inside a byte of the null mask survive; so does a release."""
    whole = pl.concat([frame(0, 13), frame(13, 1000)], rechunk=False)
    again = spill.mapped(whole)
    spill.release()
    assert_frame_equal(again, whole)


def test_a_full_disk_leaves_frames_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file cannot be written, the frame itself stays; nothing of the log is lost."""

    def full(frame: pl.DataFrame, file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill, "set_down", full)
    whole = frame(0, 100)
    frames = [whole]
    spiller = spill.Spiller(frames, least_bytes=1)
    spiller.look()
    spiller.finish()
    assert_frame_equal(frames[0], whole)


@pytest.mark.parametrize("least", [1, 3_000, 10**9])
def test_spiller_keeps_rows_and_order(least: int) -> None:
    """However early frames are mapped, their rows joined are the same; earlier ones stay."""
    before = frame(-10, 10)
    plain = [before]
    watched = [before]
    spiller = spill.Spiller(watched, 1, least)
    for n in range(9):
        extra: dict[str, list[float | None]] = {"lr": [0.5] * 50} if n % 2 else {}
        for frames in (plain, watched):
            frames.append(frame(50 * n, 50, **extra))
        spiller.look()
        spiller.look()
    spiller.finish()
    assert watched[0] is before
    assert (len(watched) < len(plain)) == (least == 3_000)
    assert_frame_equal(pl.concat(watched, how="diagonal"), pl.concat(plain, how="diagonal"))


def test_run_is_the_same_from_memory_and_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingesting and storing a log gives the same run and the same bytes either way."""
    lines = [megatron_line(n, lm_loss=f"{9 / n:.6E}", grad_norm="0.5") for n in range(1, 300)]
    lines[40:40] = ["saving checkpoint at iteration 40 to /c", "(min, max) time across ranks (ms):"]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    (plain,) = ingest.ingest([str(path)]).runs
    first = write_run(plain, tmp_path / "a")
    monkeypatch.setattr(
        reading, "Spiller", lambda frames, first: spill.Spiller(frames, first, least_bytes=1)
    )
    (other,) = ingest.ingest([str(path)]).runs
    second = write_run(other, tmp_path / "b")
    assert_frame_equal(other.readings, plain.readings)
    assert_frame_equal(other.events, plain.events)
    assert other.meta == plain.meta
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert len(files) == 3
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert_frame_equal(read_run(second).readings, plain.readings)
