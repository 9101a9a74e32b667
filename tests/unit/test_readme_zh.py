"""README.zh.md keeps in step with README.md, and what both say about the shell holds."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from loganalyze.cli import COMMANDS, cli

if not (ROOT / "README.zh.md").is_file():
    pytest.skip("only a checkout has all the pages", allow_module_level=True)

ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
_GENERATED = re.compile(r"<!-- table: \w+ -->.*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+)?(?:#([^)]+))?\)")


def headings(text: str) -> list[str]:
    """Marks of the headings outside of code, in order: `#`, `##`, ..."""
    return re.findall(r"^(#+) ", _CODE.sub("", text), re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_same_sections() -> None:
    """Both have the same headings, level by level."""
    assert headings(CHINESE) == headings(ENGLISH)


def test_same_commands() -> None:
    """Both show the same blocks of code, in the same order, but for the generated reference."""
    assert _CODE.findall(CHINESE) == _CODE.findall(_GENERATED.sub("", ENGLISH))


def test_every_command_is_named() -> None:
    """The Chinese page names each command of the program."""
    line = next(line for line in CHINESE.splitlines() if "README.md#commands" in line)
    assert re.findall(r"`(\w+)`", line) == list(COMMANDS)


def test_links_lead_somewhere() -> None:
    """Files and sections that the two pages, CONTRIBUTING and SECURITY link to exist."""
    for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target, anchor in _LINK.findall(text):
            if "://" in target:
                continue
            if target.endswith(".md") and anchor:
                assert anchor in anchors((ROOT / target).read_text(encoding="utf-8")), target
            assert not target or (ROOT / target).exists(), (name, target)


@pytest.mark.parametrize(("typed", "expected"), [("ver", "verify"), ("dia", "diagnose")])
def test_shell_completion(
    typed: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable that both pages name makes the program complete its commands."""
    assert 'eval "$(_LOGANALYZE_COMPLETE=bash_source loganalyze)"' in ENGLISH
    monkeypatch.setenv("_LOGANALYZE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"loganalyze {typed}")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli.main(prog_name="loganalyze", standalone_mode=False)
    assert capsys.readouterr().out.split() == [f"plain,{expected}"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example(name: str) -> None:
    """Each command's help, as the English page shows it, holds a call of it below its usage."""
    (shown,) = (
        text for _, text in _CODE.findall(ENGLISH) if text.startswith(f"Usage: loganalyze {name} ")
    )
    assert re.search(rf"^  loganalyze {name}\b", shown, re.MULTILINE)
