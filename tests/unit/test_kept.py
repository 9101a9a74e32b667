"""What is made of packaged files once and kept: never stale, never needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loganalyze import kept as module
from loganalyze.kept import kept


class Maker:
    """Counts how often something is made."""

    def __init__(self, made: object) -> None:
        self.made, self.times = made, 0

    def __call__(self) -> object:
        self.times += 1
        return self.made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package's folder of its own, into which Python may write."""
    monkeypatch.setattr(module, "__file__", str(tmp_path / "kept.py"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path


def test_made_once(folder: Path) -> None:
    """The second time it is read, with the same content, whatever Python's cache is called."""
    make = Maker({"a": [1, 2.5, "ä", None, True], "code": compile("1 + 1", "x", "eval")})
    assert kept("table.toml", b"source", make) == kept("table.toml", b"source", make)
    assert make.times == 1
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".kept"]


def test_made_again_of_another_source(folder: Path) -> None:
    """A source that changed gives what it gives now, and that is kept in its place."""
    kept("table", b"one", Maker(1))
    assert kept("table", b"two", Maker(2)) == 2
    assert kept("table", b"two", Maker(3)) == 2
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_damage_is_no_harm(folder: Path, cut: int) -> None:
    """A file cut short is made again."""
    kept("table", b"source", Maker({"key": "value" * 20}))
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:cut])
    assert kept("table", b"source", Maker("again")) == "again"


def test_no_file_where_python_writes_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONDONTWRITEBYTECODE and a folder that cannot be written leave no file and no error."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert kept("table", b"source", Maker(1)) == 1
    assert not list(folder.iterdir())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (folder / "__pycache__").write_text("a file where the folder would be")
    assert kept("table", b"source", Maker(2)) == 2


def test_what_cannot_be_kept_is_made_each_time(folder: Path) -> None:
    """An object that is no plain data is given, and no file is left."""
    make = Maker(Path("x"))
    assert kept("table", b"source", make) == kept("table", b"source", make) == Path("x")
    assert make.times == 2
    assert not [path for path in folder.rglob("*") if path.is_file()]
