"""URLs as inputs and stores, against fsspec's own file system in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from textlogs import megatron_line

from loganalyze import remote
from loganalyze.cli import cli
from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.ingest import ingest

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
TEXT = "\n".join(megatron_line(n, lm_loss=f"{3 + 1 / n:.6f}") for n in range(1, 40)) + "\n"


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty file system in memory, and no copies of earlier tests."""
    system = fsspec.filesystem("memory")
    remote.fetched.cache_clear()
    yield system
    system.rm("/", recursive=True)
    remote.fetched.cache_clear()


@pytest.mark.parametrize("url", ["memory://jobs/7/a.log", "memory://jobs/7", "memory://jobs/*/a.*"])
def test_a_log_behind_a_url_is_the_log(memory: Any, tmp_path: Path, url: str) -> None:
    """A file, a folder and a glob give the run of the same file here."""
    memory.pipe("/jobs/7/a.log", TEXT.encode())
    (tmp_path / "a.log").write_text(TEXT)
    (run,) = ingest([url]).runs
    (want,) = ingest([str(tmp_path / "a.log")]).runs
    assert run.readings.equals(want.readings)
    assert run.sources[0].path.endswith("/memory/jobs/7/a.log")


def test_a_store_behind_a_url(memory: Any, tmp_path: Path) -> None:
    """ingest puts the run there, its second version replaces the first, diagnose reads it."""
    for text in (TEXT[: len(TEXT) // 2], TEXT):
        (tmp_path / "a.log").write_text(text)
        made = CliRunner().invoke(cli, ["ingest", str(tmp_path / "a.log"), "--store", "memory://s"])
        assert made.exit_code == 0, made.output
        assert "memory://s/a" in made.output
        remote.fetched.cache_clear()
    names = sorted(name.rpartition("/")[2] for name in memory.find("/s/a"))
    assert len(names) == 3
    assert {"events.parquet", "run.json"} <= set(names)
    (run,) = ingest(["memory://s/a"]).runs
    (want,) = ingest([str(tmp_path / "a.log")]).runs
    assert run.readings.equals(want.readings)


def test_what_is_not_there_is_told(memory: Any) -> None:
    """A missing file, a scheme nobody knows: the URL and what to do."""
    with pytest.raises(UnreadableInput, match=r"memory://none/a\.log"):
        ingest(["memory://none/a.log"])
    with pytest.raises(UsageError, match="nosuch://x"):
        ingest(["nosuch://x"])


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL without fsspec is wrong use; the hint names the extra."""
    remote.fetched.cache_clear()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError) as caught:
        ingest(["s3://bucket/a.log"])
    assert "loganalyze[remote]" in caught.value.hint


def test_names_stay_below_the_folder_of_copies() -> None:
    """A key with dots or a root is no way out."""
    assert remote._relative("/../../etc/passwd").as_posix() == "etc/passwd"
