"""A grown log: only its news are read, and the run is the one of reading it whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from paths import ROOT
from textlogs import megatron_line

from loganalyze import grown, store_parts
from loganalyze.cli import cli
from loganalyze.model import Problem
from loganalyze.parser_state import restored
from loganalyze.plain_data import Refused, read, told
from loganalyze.store import read_run


def log_lines(first: int, last: int, *, seed: int = 1) -> list[str]:
    """Training lines with the usual things between them."""
    rng = random.Random(seed)
    lines = []
    for step in range(first, last):
        lines.append(megatron_line(step, lm_loss=f"{9 / step:.6E}", grad_norm="0.5"))
        if step % 50 == 0:
            lines.append(f"saving checkpoint at iteration {step} to /c in torch format")
            lines.append(f" validation loss at iteration {step} | lm loss value: 2.0 |")
        if rng.random() < 0.05:
            lines.append(f"something nobody knows {step % 3}")
    return lines


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small logs count as large ones, and have several parts."""
    monkeypatch.setattr(grown, "LEAST_BYTES", 0)
    monkeypatch.setattr(store_parts, "PART_ROWS", 64)
    monkeypatch.setattr("loganalyze.regrown.PART_ROWS", 64)


def ingest(path: Path, store: Path) -> str:
    """`loganalyze ingest`; what it printed."""
    made = CliRunner().invoke(cli, ["ingest", str(path), "--store", str(store)])
    assert made.exit_code == 0, made.output
    return made.output


def files_of(store: Path) -> dict[str, bytes]:
    """The run's files without the notes for the next reader."""
    return {
        p.relative_to(store).as_posix(): p.read_bytes()
        for p in store.rglob("*")
        if p.is_file() and not p.name.startswith("growth")
    }


def grow(tmp_path: Path, before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Ingest `before`, then with `after` behind it; how many bytes the second time read on.

    -1 where it read the log whole. The run must be that of a store that never saw `before`.
    """
    path = tmp_path / "train.log"
    path.write_text(before)
    ingest(path, tmp_path / "grown")
    path.write_text(before + after)
    read: list[int] = []
    blocks = grown.read_blocks

    def counted(file, **kwargs):  # type: ignore[no-untyped-def]
        for block in blocks(file, **kwargs):
            read.append(len(block.data))
            yield block

    monkeypatch.setattr(grown, "read_blocks", counted)
    first = ingest(path, tmp_path / "grown")
    second = ingest(path, tmp_path / "whole")
    assert files_of(tmp_path / "grown") == files_of(tmp_path / "whole")
    assert first.replace("grown", "whole") == second
    return sum(read) if read else -1


def test_only_the_news_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 steps more behind 1,000: their bytes alone are read; the store's files are the same."""
    before = "\n".join(log_lines(1, 1000)) + "\n"
    after = "\n".join(log_lines(1000, 1400, seed=2)) + "\n"
    monkeypatch.setattr(grown, "assembled", None)  # nor are its rows looked at
    assert grow(tmp_path, before, after, monkeypatch) == len(after)


def test_a_line_cut_in_two_is_read_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was ingested in the middle of a line: that line and what follows are read."""
    text = "\n".join(log_lines(1, 500)) + "\n"
    at = len(text) - 30
    start = text.rfind("\n", 0, at) + 1
    read = grow(tmp_path, text[:at], text[at:], monkeypatch)
    assert read in (len(text) - start, -1)


def test_a_bar_that_is_still_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line is a bar that goes on: it is read from its beginning, in parts."""
    monkeypatch.setattr("loganalyze_parsers.blocks.read_blocks.__defaults__", (34_000, None))
    bar = "{0:3d}%|# | {0}/90000 [00:00<?, 1.0s/it, loss=2.5]"
    drawn = [bar.format(n) for n in range(1, 3000)]
    before, more = "\r".join(drawn[:2000]), "\r".join(["", *drawn[2000:]])
    read = grow(tmp_path, "first\n" + before, more + "\nlast\n", monkeypatch)
    assert read == len(before + more + "\nlast\n")


def test_a_restart_in_the_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job starts again from a checkpoint in the news: the same two segments as read whole."""
    before = "\n".join(log_lines(1, 300)) + "\n"
    again = ["loading checkpoint from /c at iteration 250", *log_lines(251, 400, seed=3)]
    assert grow(tmp_path, before, "\n".join(again) + "\n", monkeypatch) > 0


def test_odd_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new metric, a NaN, a jump of the step and an error: the same run as read whole."""
    before = "\n".join(log_lines(1, 200)) + "\n"
    news = [
        megatron_line(230, lm_loss="nan", params_norm="3.0"),
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: no",
    ]  # fmt: skip
    assert grow(tmp_path, before, "\n".join(news) + "\n", monkeypatch) > 0


@pytest.mark.parametrize("where", ["head", "tail"])
def test_a_changed_log_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """One byte of what was read is another now: the log is read whole."""
    text = "\n".join(log_lines(1, 300)) + "\n"
    path = tmp_path / "train.log"
    path.write_text(text)
    ingest(path, tmp_path / "grown")
    at = 5 if where == "head" else len(text) - 5
    path.write_text(text[:at] + "#" + text[at + 1 :] + "\n".join(log_lines(300, 310)) + "\n")
    monkeypatch.setattr(grown, "read_blocks", None)
    ingest(path, tmp_path / "grown")
    ingest(path, tmp_path / "whole")
    assert files_of(tmp_path / "grown") == files_of(tmp_path / "whole")


def test_every_cut_of_a_log_gives_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that grows in pieces of random length: after each the run is as read whole."""
    rng = random.Random(9)
    data = (ROOT / "sample_logs/resume/resume.log").read_bytes()[:40_000]
    path = tmp_path / "train.log"
    for cut in sorted(rng.sample(range(2_000, len(data)), 6)):
        path.write_bytes(data[:cut])
        ingest(path, tmp_path / "grown")
        ingest(path, tmp_path / f"whole{cut}")
        assert files_of(tmp_path / "grown") == files_of(tmp_path / f"whole{cut}")


def test_a_foreign_state_runs_nothing() -> None:
    """A state that names a function of the system is no state."""
    assert restored(b"cos\nsystem\n(S'true'\ntR.") is None
    assert restored(b"rubbish") is None


def test_only_data_types_are_made_by_names_of_fields() -> None:
    """A value of ours comes back; a call that msgspec's own function would make is refused."""
    problem = Problem(rule="cut", message="at the end")
    data = told(problem, lambda _: "")
    assert read(data) == problem
    call = b"cmsgspec._utils\nrebuild\n(V%s\n}V0\nI1\nstR."
    with pytest.raises(Refused, match="no data type"):
        read(call % b"a place in the program")


def _prefixed(lines: list[str], seed: int) -> str:
    """A launcher's prefix before one line in five."""
    rng = random.Random(seed)
    return "".join(f"{'[default7]:' if rng.random() < 0.2 else ''}{line}\n" for line in lines)


def test_lines_of_several_ranks_are_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank before some of the lines: the stored rows stay as they are all the same."""
    before, after = _prefixed(log_lines(1, 700), 1), _prefixed(log_lines(700, 900, seed=2), 2)
    monkeypatch.setattr(grown, "assembled", None)
    assert grow(tmp_path, before, after, monkeypatch) == len(after)


@pytest.mark.parametrize("steps", [60, 250])
def test_another_rank_that_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Few or many records of another rank, from the first step on: the segments are those of
    whichever rank has the most, as read whole."""
    before = _prefixed(log_lines(1, 150), 1)
    after = "".join(f"[default3]:{line}\n" for line in log_lines(1, steps))
    assert grow(tmp_path, before, after, monkeypatch) > 0


@pytest.mark.parametrize("cut", [1, 2, 60, 61, 119])
def test_memory_prints_and_loops_that_count_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """What belongs to the record above it, or goes on counting, does so across the cut."""
    lines = []
    for n in range(60):
        lines.append(f"Epoch [{n // 20 + 1}/3], Step [{n % 20 + 1}/20], Loss: {3 - n / 50:.3f}\n")
        lines.append(f"GPU memory allocated: {10 + n / 100:.2f} GB\n")
    grow(tmp_path, "".join(lines[:cut]), "".join(lines[cut:]), monkeypatch)
    (stored,) = (tmp_path / "grown").iterdir()
    rows = read_run(stored).readings
    assert rows["step"].to_list() == [n for n in range(1, 61) for _ in range(2)]


@pytest.mark.parametrize("cut", [1, 2, 61])
def test_memory_prints_of_a_rotated_log(tmp_path: Path, cut: int) -> None:
    """The record above the first line of a part ends the part before it."""
    lines = []
    for n in range(1, 61):
        lines += [f"step={n} loss={3 - n / 50:.3f}\n", f"GPU memory allocated: {10 + n} GB\n"]
    (tmp_path / "train.log.1").write_text("".join(lines[:cut]))
    (tmp_path / "train.log").write_text("".join(lines[cut:]))
    ingest(tmp_path, tmp_path / "store")
    (stored,) = (tmp_path / "store").iterdir()
    rows = read_run(stored).readings
    assert rows["step"].to_list() == [n for n in range(1, 61) for _ in range(2)]
