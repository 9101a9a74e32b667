"""What is made of packaged files once and kept: never stale, never needed."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from loganalyze import kept as module
from loganalyze.kept import kept
from loganalyze.report.templates import environment_of

PACKAGE = Path(str(module.__file__)).parent


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
    """The second time it is read, with the same content."""
    make = Maker({"a": [1, 2.5, "ä\u2028", None, True], "b": {"c": 1e300}})
    assert kept("table.toml", b"source", make) == kept("table.toml", b"source", make)
    assert make.times == 1
    assert [path.suffix for path in folder.rglob("*") if path.is_file()] == [".kept"]


def test_made_again_of_another_source(folder: Path) -> None:
    """A source that changed gives what it gives now, and that is kept in its place."""
    kept("table", b"one", Maker(1))
    assert kept("table", b"two", Maker(2)) == 2
    assert kept("table", b"two", Maker(3)) == 2
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize("cut", [0, 5, 64, 80, -1])
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


@pytest.mark.parametrize("name", sorted(path.name for path in PACKAGE.rglob("*.toml")))
def test_tables_come_back_as_they_were(name: str) -> None:
    """Each packaged table is the same after it was kept."""
    for path in PACKAGE.rglob(name):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        assert json.loads(json.dumps(tables)) == tables


def test_templates_compile_once(folder: Path) -> None:
    """The second environment takes what the first compiled; damage makes it compile again."""
    sources = {"a.html": "{% for n in numbers %}<{{ n }}>{% endfor %}"}

    def page() -> str:
        environment = environment_of(sources, lambda value: value)
        return environment.get_template("a.html").render(numbers=[1, 2])

    (folder / "__pycache__").mkdir()
    assert page() == "<1><2>"
    (file,) = (folder / "__pycache__").iterdir()
    whole = file.read_bytes()
    assert page() == "<1><2>"
    assert file.read_bytes() == whole
    for cut in (0, 10, 60, len(whole) - 5):
        file.write_bytes(whole[:cut])
        assert page() == "<1><2>"
        assert file.read_bytes() == whole
    sources["a.html"] = "{{ numbers | sum }}"
    assert page() == "3"


def test_templates_without_a_place_to_keep_them(folder: Path) -> None:
    """Where there is no folder, or nothing may be written, they are compiled each time."""
    (folder / "__pycache__").write_text("a file where the folder would be")
    environment = environment_of({"a.html": "{{ 1 + 1 }}"}, lambda value: value)
    assert environment.get_template("a.html").render() == "2"
