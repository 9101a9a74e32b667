"""reports/example.*: what the documented command makes, and nothing of the machine it ran on."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loganalyze.cli import cli

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "reports"
_PACKED = re.compile(
    r'(<script type="application/octet-stream" id="[\w-]+">)(.*?)(</script>)', re.S
)
_LETTERS = bytes.maketrans(b".,", b"<&")


def documented() -> list[str]:
    """The command that reports/README.md gives, without its program's name."""
    text = (REPORTS / "README.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("loganalyze diagnose"))
    return line.replace("'", "").split()[1:]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the documented command has written."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("sample_logs",):
        (folder / name).symlink_to(ROOT / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LC_ALL", "zh_CN.UTF-8")
        patch.setenv("TZ", "Asia/Shanghai")
        result = CliRunner().invoke(cli, documented(), standalone_mode=False)
    assert result.exception is None, result.output
    return folder / "reports"


def unpacked(page: str) -> str:
    """The page with the digest of what each packed block holds in its place.

    Builds of zlib pack the same bytes differently; what they unpack to is what counts.
    """

    def digest(match: re.Match[str]) -> str:
        packed = base64.b85decode(match[2].strip().encode("ascii").translate(_LETTERS))
        return match[1] + hashlib.sha256(gzip.decompress(packed)).hexdigest() + match[3]

    return _PACKED.sub(digest, page)


def rounded(value: Any) -> Any:
    """Numbers to ten digits: the last ones follow the processor's instructions."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_page_is_what_the_command_makes(made: Path) -> None:
    """The committed page equals the one made now, in another locale and time zone."""
    kept = (REPORTS / "example.html").read_text(encoding="utf-8")
    new = (made / "example.html").read_text(encoding="utf-8")
    assert len(_PACKED.findall(kept)) == 2
    assert unpacked(kept) == unpacked(new), "run the command of reports/README.md again"


def test_data_is_what_the_command_makes(made: Path) -> None:
    """So does the JSON beside it."""
    kept = json.loads((REPORTS / "example.json").read_text(encoding="utf-8"))
    new = json.loads((made / "example.json").read_text(encoding="utf-8"))
    assert rounded(kept) == rounded(new), "run the command of reports/README.md again"


def test_example_tells_nothing_of_the_machine() -> None:
    """No absolute path, no home, no host, no time of making."""
    for name in ("example.html", "example.json"):
        text = _PACKED.sub("", (REPORTS / name).read_text(encoding="utf-8"))
        for trace in (f"{ROOT}/", f"{Path.home()}/", "/tmp/", "/home/", "/root/"):
            assert trace not in text, (name, trace)


def test_example_cites_what_stands_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` finds every cited line and number of the example again."""
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, ["verify", "reports/example.json"], standalone_mode=False)
    assert result.return_value == 0, result.output


def test_pictures_are_there_and_small() -> None:
    """Three PNG pictures of the example, at most 300 kB each, all named in the README there."""
    pictures = sorted(REPORTS.glob("*.png"))
    assert len(pictures) == 3
    text = (REPORTS / "README.md").read_text(encoding="utf-8")
    for picture in pictures:
        data = picture.read_bytes()
        assert data.startswith(b"\x89PNG\r\n")
        assert len(data) <= 300_000
        assert picture.name in text
