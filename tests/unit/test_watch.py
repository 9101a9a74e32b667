"""A run under watch: whole lines through rotation, looks within the budget, each finding once."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from textlogs import megatron_line

from loganalyze.cli import cli
from loganalyze.ingest import ingest
from loganalyze.model import Diagnosis, Finding, RunLog, Severity
from loganalyze.pipeline import Judging, judge
from loganalyze.watch.budget import ALARM_SECONDS, SHARE, Budget
from loganalyze.watch.live import LiveRun
from loganalyze.watch.loop import END_ROWS, WHOLE_ROWS, Known, News, Watch
from loganalyze.watch.reread import Reread
from loganalyze.watch.tail import Tail


def lines(first: int, last: int, bad: int = -1) -> str:
    """Megatron lines of a calm run; at step `bad` the loss leaps."""
    noise = random.Random(7)
    drawn = [noise.gauss(0, 0.01) for _ in range(last + 1)]
    return "".join(
        megatron_line(n, lm_loss=f"{9.0 if n == bad else 4 - n / 2000 + drawn[n]:.6f}") + "\n"
        for n in range(first, last + 1)
    )


@contextmanager
def tailing(path: Path) -> Iterator[Tail]:
    """A tail that is closed in the end."""
    tail = Tail(path)
    yield tail
    tail.end()


def drain(tail: Tail) -> list[tuple[int, int, int, bytes]]:
    """Everything a tail has to give now: part, offset, line, bytes."""
    found = []
    while pieces := tail.read():
        found += [(p.part, p.block.offset, p.block.first_line, p.block.data) for p in pieces]
    return found


# -- the tail -----------------------------------------------------------------------------------


def test_a_line_counts_once_its_newline_is_there(tmp_path: Path) -> None:
    """Half a line waits for its other half; offsets and line numbers go on."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntw")
    tail = Tail(path)
    assert drain(tail) == [(0, 0, 1, b"one\n")]
    with path.open("ab") as file:
        file.write(b"o\nthree\nfo")
    assert drain(tail) == [(0, 4, 2, b"two\nthree\n")]
    assert tail.end().block.data == b"fo"


def test_each_redraw_of_a_line_but_the_last_is_given(tmp_path: Path) -> None:
    """A bar's line has no end for hours; what is given of it is told to go on."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n1/9\r2/9\r3/")
    with tailing(path) as tail:
        (piece,) = tail.read()
        assert (piece.block.data, piece.block.goes_on) == (b"one\n", False)
        with path.open("ab") as file:
            file.write(b"9\r4/9")
        (piece,) = tail.read()
        assert (piece.block.data, piece.block.goes_on) == (b"1/9\r2/9\r3/9\r", True)
        with path.open("ab") as file:
            file.write(b"\ntwo\n")
        assert drain(tail) == [(0, 16, 2, b"4/9\ntwo\n")]


def test_rotation_by_rename_loses_nothing(tmp_path: Path) -> None:
    """What was written to the old file before the new one came is read, then the new one."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    with tailing(path) as tail:
        drain(tail)
        with path.open("ab") as file:
            os.rename(path, tmp_path / "a.log.1")
            file.write(b"two\nlast")
        assert drain(tail) == [(0, 4, 2, b"two\n")]
        path.write_bytes(b"new\n")
        assert drain(tail) == [(0, 8, 3, b"last"), (1, 0, 1, b"new\n")]


@pytest.mark.parametrize("fresh", [b"n\n", b"another beginning, longer than before\n"])
def test_truncation_begins_a_new_part(tmp_path: Path, fresh: bytes) -> None:
    """A file cut to nothing and written anew is a new part, whether shorter or longer by now."""
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n")
    with tailing(path) as tail:
        drain(tail)
        path.write_bytes(fresh)
        assert drain(tail)[-1] == (1, 0, 1, fresh)


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    """A watch may begin before the job does."""
    with tailing(tmp_path / "later.log") as tail:
        assert drain(tail) == []
        (tmp_path / "later.log").write_bytes(b"x\n")
        assert drain(tail) == [(0, 0, 1, b"x\n")]


# -- the run that grows -------------------------------------------------------------------------


def drawn(first: int, last: int) -> str:
    """A bar with a loss that is redrawn on one line, and does not end it."""
    bar = "{0:3d}%|# | {0}/900 [00:{1:02d}<?, 1.0s/it, loss={2:.4f}]"
    return "\r".join(bar.format(n, n % 60, 2 + 1 / n) for n in range(first, last + 1))


_FAILED = "RuntimeError: CUDA out of memory. \n"
PACED = {
    "lines": lines(1, 120, bad=70) + _FAILED + lines(101, 160),
    "returns": (lines(1, 120, bad=70) + _FAILED + lines(101, 160)).replace("\n", "\r\n"),
    "redrawn": f"begun\n{drawn(1, 150)}\n{_FAILED}{drawn(101, 160)}\rnobody knows 7",
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("log", PACED)
def test_any_pace_of_writing_gives_the_run_of_ingest(tmp_path: Path, log: str, seed: int) -> None:
    """However the bytes arrive, rows, events and account equal those of reading the whole."""
    draw = random.Random(seed)
    data = PACED[log].encode()
    path = tmp_path / "train.log"
    path.touch()
    live = LiveRun(path)
    with path.open("ab", buffering=0) as file:
        while data:
            size = draw.choice((1, 80, 700, 9000))
            file.write(data[:size])
            data = data[size:]
            live.poll()
            if draw.random() < 0.1:
                live.run()
    live.close()
    grown, whole = live.run(), ingest([str(path)]).runs[0]
    assert grown.readings.equals(whole.readings)
    assert grown.events.equals(whole.events)
    assert grown.sources == whole.sources
    assert grown.meta.segments == whole.meta.segments


def test_alarms_cannot_wait_and_calm_lines_can(tmp_path: Path) -> None:
    """A leap of the loss and a crash word are urgent, ordinary noise is not."""
    path = tmp_path / "train.log"
    path.write_text(lines(1, 100))
    live = LiveRun(path)
    assert live.poll()[0]
    told = {}
    for name, text in {
        "calm": lines(101, 130),
        "leap": lines(131, 131, bad=131),
        "crash": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        "nothing": "",
    }.items():
        with path.open("a") as file:
            file.write(text)
        told[name] = live.poll()
    live.close()
    assert told == {
        "calm": (True, False), "leap": (True, True), "crash": (True, True),
        "nothing": (False, False),
    }  # fmt: skip


def test_the_end_of_a_run_keeps_its_last_rows(tmp_path: Path) -> None:
    """A look at the end sees exactly the last rows, with their places in the file."""
    path = tmp_path / "train.log"
    path.write_text(lines(1, 300))
    live = LiveRun(path)
    live.poll()
    end = live.run(50)
    live.close()
    assert end.readings["step"].to_list() == list(range(251, 301))
    assert end.readings["line"].to_list() == list(range(251, 301))


# -- when to look -------------------------------------------------------------------------------


class Hands:
    """A clock and a CPU meter that move only when told."""

    def __init__(self) -> None:
        """Both at zero."""
        self.now = self.used = 0.0

    def budget(self) -> Budget:
        """A budget on this clock."""
        return Budget(clock=lambda: self.now, cpu=lambda: self.used)

    def work(self, seconds: float) -> None:
        """Something that uses a core for so long."""
        self.now += seconds
        self.used += seconds


def test_looks_stay_within_their_share_of_a_core() -> None:
    """With news all the time, an hour of looks costs at most SHARE; twice that with alarms."""
    for urgent, most in ((False, SHARE), (True, 2.1 * SHARE)):
        hands = Hands()
        budget = hands.budget()
        while hands.now < 3600:
            if budget.due(urgent):
                budget.look(lambda hands=hands: hands.work(0.2), urgent)  # type: ignore[misc]
            hands.now += 0.5
        assert 0.5 * SHARE < (hands.used - ALARM_SECONDS * urgent) / 3600 <= most + 0.2 / 3600


def test_an_alarm_is_looked_at_within_two_seconds() -> None:
    """After a calm hour an alarm is due at the next poll, however much the last look cost."""
    hands = Hands()
    budget = hands.budget()
    budget.look(lambda: hands.work(1.5), False)
    hands.now += 0.8
    assert not budget.due(False)
    assert budget.due(True)


# -- what is new --------------------------------------------------------------------------------


def spike(first: int, last: int, severity: Severity = "warning", segment: int = 0) -> Finding:
    """A loss spike at these steps."""
    return Finding(
        id="LA102-1", code="LA102", kind="loss_spike", metric="loss", severity=severity,
        step_first=first, step_last=last, segment=segment,
    )  # fmt: skip


def test_a_finding_is_told_once_and_again_when_it_is_worse() -> None:
    """Growing, moving its end and becoming calmer are no news; worse, elsewhere, again are."""
    known = Known()
    assert known.is_new("r", spike(100, 102))
    known.add("r", spike(100, 102))
    assert not known.is_new("r", spike(100, 140))
    known.add("r", spike(100, 140))
    assert not known.is_new("r", spike(139, 139))
    assert known.is_new("r", spike(100, 140, "critical"))
    assert known.is_new("r", spike(300, 301))
    assert known.is_new("r", spike(100, 102, segment=1))
    assert not known.is_new("r", spike(100, 102, segment=1), any_segment=True)
    assert known.is_new("other", spike(100, 102))


class Scripted:
    """A growing run whose findings are given: what the loop asks for is noted."""

    def __init__(self, run: RunLog, rows: int) -> None:
        """The run that is always given, and how many rows it claims to have."""
        self.run, self.rows, self.asked = run, rows, list[int | None]()

    def poll(self) -> tuple[bool, bool]:
        """Always something new and urgent."""
        return True, True

    def close(self) -> None:
        """Nothing to close."""

    def runs(self, last_rows: int | None = None) -> tuple[RunLog, ...]:
        """The run, whatever part of it is wanted."""
        self.asked.append(last_rows)
        return (self.run,)


def test_long_runs_are_looked_at_from_their_end_until_that_shows_something(tmp_path: Path) -> None:
    """Beyond WHOLE_ROWS the end is judged first, the whole only where the end holds news."""
    path = tmp_path / "t.log"
    path.write_text(lines(1, 60))
    run = ingest([str(path)]).runs[0]
    base = judge(run, Judging())
    found: list[Finding] = []
    told: list[tuple[News, ...]] = []

    def judged(_: RunLog) -> Diagnosis:
        return replace(base, findings=tuple(found), incidents=())

    hands = Hands()
    growing = Scripted(run, WHOLE_ROWS + 1)
    watch = Watch(growing, judged, lambda _, news: told.append(news), hands.budget())
    for _ in range(3):
        watch.turn()
        hands.now += 1
    assert growing.asked == [None, END_ROWS, END_ROWS]
    assert told == []
    found.append(spike(40, 41))
    watch.turn()
    hands.now += 1
    watch.turn()
    assert growing.asked[3:] == [END_ROWS, None, END_ROWS]
    assert [[n.finding.step_first for n in news] for news in told] == [[40]]


def test_folders_are_read_again_when_a_file_changes(tmp_path: Path) -> None:
    """A folder counts as changed when a file in it grows, comes or goes, and not otherwise."""
    (tmp_path / "a.log").write_text(lines(1, 50))
    grown = Reread((str(tmp_path),))
    assert grown.poll() == (True, False)
    assert grown.poll() == (False, False)
    with (tmp_path / "a.log").open("a") as file:
        file.write(lines(51, 60))
    assert grown.poll() == (True, False)
    assert len(grown.runs()[0].readings) == 60


# -- the command --------------------------------------------------------------------------------


def call(*arguments: str | Path) -> tuple[int, Result]:
    """Exit code and result of a command."""
    result = CliRunner().invoke(
        cli, [str(a) for a in arguments], standalone_mode=False, catch_exceptions=False
    )
    return int(result.return_value or 0), result


def test_follow_tells_runs_the_command_and_stops_at_fail_on(tmp_path: Path) -> None:
    """A spike that is written under watch is printed, handed to --exec, and ends with code 1."""
    path, out, note = tmp_path / "train.log", tmp_path / "out", tmp_path / "note.json"
    path.write_text(lines(1, 200))

    def write() -> None:
        time.sleep(1.0)
        with path.open("a") as file:
            file.write(lines(201, 260, bad=220))

    writer = threading.Thread(target=write)
    writer.start()
    code, result = call(
        "diagnose", "--follow", path, "-o", out, "--exec", f"cat >> '{note}'",
        "--fail-on", "warning", "--lang", "en",
    )  # fmt: skip
    writer.join()
    assert code == 1
    assert "Loss spike  step 220" in result.output
    all_given = [json.loads(line) for line in note.read_text().splitlines()]
    (given,) = (one for one in all_given if one["finding"]["severity"] != "info")
    assert given["schema"] == "loganalyze.finding/1"
    assert (given["finding"]["code"], given["finding"]["step_peak"]) == ("LA102", 220)
    assert given["report"] == str(out / "train.html")
    assert (out / "train.html").exists()
    assert not given["at_start"]


def test_a_failing_command_is_told_and_does_not_end_the_watch(tmp_path: Path) -> None:
    """--exec's exit code is shown; the diagnosis is complete all the same."""
    path = tmp_path / "train.log"
    path.write_text(lines(1, 260, bad=220))
    code, result = call(
        "diagnose", "--follow", path, "-o", tmp_path / "out", "--exec", "exit 3",
        "--fail-on", "warning", "--lang", "en",
    )  # fmt: skip
    assert code == 1
    assert "--exec ended with exit code 3" in result.stderr
    assert "LA102" in result.output
