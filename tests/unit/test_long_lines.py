"""A line longer than any trainer prints: its beginning is read, the rest is left out and told."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import blocks
from loganalyze_parsers.blocks import read_blocks
from textlogs import megatron_line

from loganalyze.ingest import ingest
from loganalyze.pipeline import limits_reached


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
