"""A writer that dies before any of its file operations, or whose disk is full, harms nothing."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from synth import make_run

from loganalyze import leftovers, store
from loganalyze.errors import OutputError
from loganalyze.inputs import expand
from loganalyze.model import Report, RunLog
from loganalyze.pipeline import Judging, judge
from loganalyze.report import write_files
from loganalyze.store import read_run, write_run

_TOUCHING = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.", "tempfile.")


class Dead(BaseException):
    """The process was killed; it does nothing any more."""


class _Killer:
    """Counts file operations, and from one on lets none happen: as after kill -9."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.seen = 0

    def __call__(self, event: str, _: object) -> None:
        if self.left is None or not event.startswith(_TOUCHING):
            return
        self.seen += 1
        self.left -= 1
        if self.left < 0:
            raise Dead


_killer = _Killer()


@pytest.fixture(scope="module", autouse=True)
def _hook() -> None:
    sys.addaudithook(_killer)


@contextmanager
def dying_before(operation: int) -> Iterator[None]:
    """Inside, the file operation of this number (from 0) and all after it are never made."""
    _killer.left, _killer.seen = operation, 0
    try:
        yield
    finally:
        _killer.left = None


def _deaths(work: Callable[[], object]) -> Iterator[bool]:
    """Kill the work before its first operation, its second, ...; at last it is left alive."""
    for operation in range(500):
        died = False
        try:
            with dying_before(operation):
                work()
        except Dead:
            died = True
        yield died
        if not died:
            assert operation > 5  # or nothing was counted
            return
    raise AssertionError("the work never ends")


def _run(first: float) -> RunLog:
    return make_run({"loss": [first - 0.01 * n for n in range(40)]})


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _visible(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir() if not item.name.startswith("."))


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of putting a run in its place."""
    if request.param == "two renames":
        monkeypatch.setattr(store, "_exchanged", lambda one, other: False)


@pytest.mark.usefixtures("way")
def test_store_after_death_at_any_operation(tmp_path: Path) -> None:
    """The store holds the old run or the new one, whole; the next writer leaves its bytes alone."""
    old, new = _run(5.0), _run(4.0)
    whole = tmp_path / "whole"
    write_run(new, whole)
    folder = tmp_path / "runs"
    write_run(old, folder)
    for died in _deaths(lambda: write_run(new, folder)):
        place = expand([str(folder / old.meta.id)])[0]
        assert read_run(place).readings["loss"][0] in ((5.0, 4.0) if died else (4.0,))
        assert _visible(folder) == [old.meta.id]
        write_run(new, folder)
        assert _bytes(folder) == _bytes(whole)  # no litter either
        write_run(old, folder)


def test_first_write_after_death_at_any_operation(tmp_path: Path) -> None:
    """Where no run stood, there is none or the new one, whole."""
    new, folder = _run(4.0), tmp_path / "runs"
    for died in _deaths(lambda: write_run(new, folder)):
        if not died or (folder / new.meta.id).exists():
            assert read_run(folder / new.meta.id).readings["loss"][0] == 4.0
        shutil.rmtree(folder, ignore_errors=True)


def test_reports_after_death_at_any_operation(tmp_path: Path) -> None:
    """Each file is the old one or the new one, whole; the next report has the same bytes."""
    old, new = (
        Report(version="0", diagnoses=(judge(_run(first), Judging()),)) for first in (5.0, 4.0)
    )
    folder = tmp_path / "reports"
    write_files(new, folder)
    after = _bytes(folder)
    write_files(old, folder)
    before = _bytes(folder)
    for _ in _deaths(lambda: write_files(new, folder)):
        for name in _visible(folder):
            assert (folder / name).read_bytes() in {before[name], after[name]}
        write_files(new, folder)
        assert _bytes(folder) == after
        write_files(old, folder)


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    """What another writer is at work on is not cleared away."""
    with leftovers.workshop(tmp_path, "train") as made:
        (made / "run").mkdir()
        store.sweep(tmp_path)
        assert (made / "run").is_dir()
        assert leftovers.abandoned(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Inside, no file can grow beyond so many bytes: writing more fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 10, 700, 1500])
def test_store_on_a_full_disk(size: int, tmp_path: Path) -> None:
    """One clear error, and the store is what it was: the old run, and no litter."""
    folder = tmp_path / "runs"
    write_run(_run(5.0), folder)
    before = _bytes(folder)
    with files_of_at_most(size), pytest.raises(OutputError, match="cannot be written"):
        write_run(_run(4.0), folder)
    assert _bytes(folder) == before
    assert os.listdir(folder) == [_run(4.0).meta.id]


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_reports_on_a_full_disk(size: int, tmp_path: Path) -> None:
    """One clear error; the page that was there is whole, and no half of another lies beside it."""
    report = Report(version="0", diagnoses=(judge(_run(5.0), Judging()),))
    folder = tmp_path / "reports"
    write_files(report, folder)
    before = _bytes(folder)
    with files_of_at_most(size), pytest.raises(OutputError, match="cannot be written"):
        write_files(report, folder)
    assert _bytes(folder) == before


def test_folder_that_takes_no_files(tmp_path: Path) -> None:
    """A read-only place is one clear error that says what to do."""
    place = Path("/proc") if Path("/proc/self").exists() else tmp_path / "locked"
    with suppress(FileExistsError):
        place.mkdir(mode=0o500)
    with pytest.raises(OutputError, match="cannot be") as told:
        write_run(_run(5.0), place)
    assert "--store" in told.value.hint
    report = Report(version="0", diagnoses=(judge(_run(5.0), Judging()),))
    with pytest.raises(OutputError, match="cannot be") as told:
        write_files(report, place / "reports")
    assert "-o" in told.value.hint
