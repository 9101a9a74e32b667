"""A line longer than any trainer prints: its beginning is read, the rest is left out and told."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import blocks, text_log
from loganalyze_parsers.blocks import read_blocks
from textlogs import megatron_line

from loganalyze.ingest import ingest
from loganalyze.model import Batch
from loganalyze.pipeline import limits_reached
from loganalyze.reading import total_of


def test_rest_of_a_long_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines before and after are read at their places; the limit names file and line."""
    monkeypatch.setattr(blocks, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 300)
    monkeypatch.setattr(blocks, "_LOOK_BYTES", 300)
    monkeypatch.setattr(read_blocks, "__defaults__", (300, None))
    before = "\n".join(megatron_line(n, lm_loss="2.5") for n in range(1, 4)) + "\n"
    after = "\n".join(megatron_line(n, lm_loss="1.5") for n in range(4, 7)) + "\n"
    path = tmp_path / "train.log"
    path.write_text(before + "x" * 5000 + "\n" + after)
    (run,) = ingest([str(path)]).runs
    assert run.readings["loss"].to_list() == [2.5] * 3 + [1.5] * 3
    assert run.sources[0].account.lines == 7
    last = run.readings.row(5, named=True)
    data = path.read_bytes()
    assert data[last["offset"] :].startswith(megatron_line(6, lm_loss="1.5").encode())
    assert last["line"] == 7
    (told,) = limits_reached([run])
    assert told.startswith(f"{path}:4: the line is longer than")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 40), st.booleans())
def test_blocks_keep_count(sizes: list[int], size: int, ended: bool) -> None:
    """For lines of any length and any block size: every line once, at its place, cut or whole."""
    lines = [bytes([65 + n % 26]) * length for n, length in enumerate(sizes)]
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    cut: list[int] = []
    found: dict[int, tuple[int, bytes]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MAX_LINE_BYTES", 50)
        for block in read_blocks(io.BytesIO(data), size, cut):
            starts, ends = block.bounds
            for n, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                assert block.first_line + n not in found
                found[block.first_line + n] = (block.offset + a, block.data[a:b])
    place = 0
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            continue  # an empty last line is none, with or without its end
        at, text = found[number]
        assert at == place
        assert text == (line[:50] if number in cut else line)
        place += len(line) + 1
    assert all(len(lines[number - 1]) > 50 for number in cut)


@pytest.mark.parametrize("look", [1, 7, 4096])
@pytest.mark.parametrize("size", [1, 50, 333])
def test_blocks_of_a_file_are_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, look: int
) -> None:
    """Of a file, a pipe and bytes in memory: all bytes once, at their place, cut behind a line."""
    monkeypatch.setattr(blocks, "_LOOK_BYTES", look)
    made = random.Random(size * look)
    lines = [bytes(made.choices(b"ab \r", k=made.choice([0, 1, 9, 400]))) for _ in range(60)]
    for data in (b"\n".join(lines), b"\n".join(lines) + b"\n", b"", b"\n"):
        path = tmp_path / "file"
        path.write_bytes(data)
        read_end, write_end = os.pipe()
        os.write(write_end, data)
        os.close(write_end)
        with path.open("rb") as file, os.fdopen(read_end, "rb") as pipe:
            for stream in (file, pipe, io.BytesIO(data)):
                found = list(read_blocks(stream, size))
                assert b"".join(block.data for block in found) == data
                assert all(block.data.endswith(b"\n") for block in found[:-1])
                for block in found:
                    assert data[block.offset :].startswith(block.data)
                    assert block.first_line == data[: block.offset].count(b"\n") + 1


@pytest.mark.parametrize("size", [1, 50, 333])
def test_parts_of_a_redrawn_line_are_cut_behind_a_redraw(size: int) -> None:
    """All bytes once, at their place; a part but the last ends with a carriage return, and is of
    one line."""
    made = random.Random(size)
    lines = [bytes(made.choices(b"abc\r", k=made.choice([0, 1, 9, 400]))) for _ in range(60)]
    data = b"\n".join(lines) + b"\n"
    found = list(read_blocks(io.BytesIO(data), size, redraws=True))
    assert b"".join(block.data for block in found) == data
    assert any(block.goes_on for block in found)
    for block in found:
        assert data[block.offset :].startswith(block.data)
        assert block.first_line == data[: block.offset].count(b"\n") + 1
        assert block.data[-1:] == (b"\r" if block.goes_on else b"\n")
        assert not (block.goes_on and b"\n" in block.data)


def _redrawn(kind: str, count: int) -> list[str]:
    """Redraws of a bar with a loss (rows), of a bare one, or what nobody knows."""
    at = [(n, f"{100 * n // count:3d}%|# | {n}/{count} [{n // 60:02d}:{n % 60:02d}<?, 1.0s/it")
          for n in range(1, count)]  # fmt: skip
    if kind == "rows":
        return [f"{bar}, loss={2 + 1 / n:.4f}]" for n, bar in at]
    return [f"{bar}]" for _, bar in at] if kind == "bare" else [f"a mystery {n}" for n, _ in at]


def _read(data: bytes, size: int) -> tuple[list[Batch], pl.DataFrame]:
    """The batches, and their rows as one frame."""
    batches = list(text_log(0).batches(read_blocks(io.BytesIO(data), size, redraws=True)))
    frames = [one.readings for one in batches if one.readings is not None]
    return batches, pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


@pytest.mark.parametrize("end", ["\n", "", "\r", "\r\n", "\nlast words\n"])
@pytest.mark.parametrize("seed", range(6))
def test_a_long_redrawn_line_is_one_line(seed: int, end: str) -> None:
    """Part by part as at once: the same rows at the same places, and each line counted once, as
    read if any part was, as unknown if none was and any part is."""
    made = random.Random(seed)
    lines = []
    for _ in range(4):
        kinds = made.choices(["rows", "bare", "unknown"], k=made.randint(1, 3))
        parts = [part for kind in kinds for part in _redrawn(kind, made.randint(300, 1200))]
        lines.append(made.choice(["", "[default3]:"]) + "\r".join(parts))
    data = ("\n".join(lines) + end).encode()
    at_once, want = _read(data, 1 << 30)
    batches, found = _read(data, 34_000)
    assert len(batches) > len(at_once)
    assert found.equals(want)
    account, whole = (total_of([one.account for one in every]) for every in (batches, at_once))
    assert account == whole
    assert account.lines == data.count(b"\n") + (not data.endswith(b"\n"))


def test_no_part_of_a_redrawn_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar that is redrawn beyond the longest line that is read: every row of it, no problem."""
    monkeypatch.setattr(blocks, "MAX_LINE_BYTES", 60_000)
    monkeypatch.setattr(read_blocks, "__defaults__", (34_000, None))
    path = tmp_path / "train.log"
    path.write_text("\r".join(_redrawn("rows", 2500)))
    (run,) = ingest([str(path)]).runs
    assert run.readings["step"].to_list() == list(range(1, 2500))
    assert not run.problems


@pytest.mark.parametrize("unknown", [4, 5])
def test_a_line_full_of_unknown_parts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: int
) -> None:
    """However many rows a line has, they are read; behind too many parts that nobody knows the
    rest is left out, and that is told with its place."""
    monkeypatch.setattr("loganalyze_parsers.textlog.MAX_UNREAD", 5)
    first, more, last = _redrawn("rows", 50), _redrawn("unknown", unknown + 1), "100%|#| 9/9 [00:09"
    path = tmp_path / "train.log"
    path.write_text("first\n" + "\r".join([*first, *more, f"{last}<?, 1.0s/it, loss=2.5]"]))
    (run,) = ingest([str(path)]).runs
    assert len(run.readings) == len(first) + (unknown < 5)
    told = [(problem.rule, problem.ref) for problem in run.problems]
    assert [rule for rule, _ in told] == ["limit_reached"] * (unknown == 5)
    for _, ref in told:
        assert ref is not None
        assert (ref.line, ref.offset) == (2, path.read_text().index(last))
        assert f"from byte {ref.offset} " in limits_reached([run])[0]
