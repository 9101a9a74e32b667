"""Picks the format, and writes the two files of a run without ever leaving half of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import chain, count
from pathlib import Path, PurePath

from msgspec.structs import replace

from loganalyze.errors import OutputError, UsageError
from loganalyze.leftovers import write_whole
from loganalyze.model import Diagnosis, Report
from loganalyze.report.json_out import SCHEMA

INDEX, TABLE = "index.html", "findings.parquet"
FORMATS = ("text", "json", "html", "markdown", "sarif", "junit", "github")
#: How the beginning of a file (of a table, its end) shows that it is ours and may be replaced.
_OURS = (
    b'<meta name="generator" content="loganalyze ',
    f'"schema": "{SCHEMA}"'.encode(),
    b"loganalyze.findings/1",
)
_UNSAFE = re.compile(r"[^\w.\-]+")


def render(
    report: Report,
    format: str,
    lang: str,
    *,
    written: Sequence[Path] = (),
    width: int = 100,
    color: bool = False,
) -> str:
    """A report in one of FORMATS, in `en` or `zh`.

    written: what write_files returned, so that the commands to type next can name the files.
    width and color are for text. UsageError for an unknown format.
    """
    files = _pages(report, written)
    if format == "json":
        from loganalyze.report.json_out import render_json

        return render_json(report)
    if format == "text":
        from loganalyze.report.text import render_text

        return render_text(report, lang, files=files, width=width, color=color)
    if format == "html":
        from loganalyze.report.html import render_html

        return render_html(report, lang, files=files)
    if format == "markdown":
        from loganalyze.report.markdown import render_markdown

        return render_markdown(report, lang, files=files)
    return _for_machines(report, format, lang)


def _pages(report: Report, written: Sequence[Path]) -> dict[str, PurePath]:
    """The page of each run among the files written: write_files keeps the order of the runs."""
    pages = [path for path in written if path.suffix == ".html"]
    ids = [diagnosis.run.meta.id for diagnosis in report.diagnoses]
    return dict(zip(ids, pages, strict=False))


def _for_machines(report: Report, format: str, lang: str) -> str:
    if format == "sarif":
        from loganalyze.report.sarif import render_sarif

        return render_sarif(report, lang)
    if format == "junit":
        from loganalyze.report.junit import render_junit

        return render_junit(report, lang)
    if format == "github":
        from loganalyze.report.github import render_github

        return render_github(report, lang)
    raise UsageError(f"unknown format '{format}'", hint=f"one of {', '.join(FORMATS)}")


def write_files(
    report: Report, folder: Path, lang: str = "en", *, force: bool = False
) -> tuple[Path, ...]:
    """Writes `<run>.html` and `<run>.json` for each run, in the order of the runs; returns them.

    Of several runs also `index.html` and `findings.parquet`, which come last.

    Reports of ours are replaced; any other file of that name only with `force`. OutputError if a
    file can't be written; then the old file, if any, is whole.
    """
    stems = file_stems([diagnosis.run.meta.id for diagnosis in report.diagnoses])
    _make_folder(folder)
    several = (folder / INDEX, folder / TABLE) if len(stems) > 1 else ()
    files = [(folder / f"{stem}.html", folder / f"{stem}.json") for stem in stems]
    for path in (*(path for pair in files for path in pair), *several):
        _refuse_foreign(path, force)
    written: list[Path] = []
    with ThreadPoolExecutor(1) as beside:
        beside.submit(import_module, "loganalyze.report.html")  # as long as counting
        for diagnosis, (page, data) in zip(report.diagnoses, files, strict=True):
            one = _alone(report, diagnosis)
            _counted(one)
            text = beside.submit(render, one, "json", lang)
            write_atomic(page, render(one, "html", lang, written=(page,)))
            write_atomic(data, text.result())
            written += [page, data]
    if several:
        _write_index(report, folder, lang, stems)
    return (*written, *several)


def _counted(report: Report) -> None:
    """Count what the runs hold, once for all formats."""
    from loganalyze.report.model import views

    views(report.diagnoses)


def _write_index(report: Report, folder: Path, lang: str, stems: Sequence[str]) -> None:
    from loganalyze.report.findings_table import findings_parquet
    from loganalyze.report.index import render_index
    from loganalyze.report.model import views

    ids = [diagnosis.run.meta.id for diagnosis in report.diagnoses]
    pages = {run: f"{stem}.html" for run, stem in zip(ids, stems, strict=True)}
    write_atomic(folder / INDEX, render_index(report, lang, pages))
    write_atomic(folder / TABLE, findings_parquet(views(report.diagnoses)))


def _alone(report: Report, diagnosis: Diagnosis) -> Report:
    return replace(report, diagnoses=(diagnosis,))


def file_stems(runs: Sequence[str]) -> tuple[str, ...]:
    """A safe, unique file name (without suffix) for each run id: word characters, dots, dashes."""
    stems: list[str] = []
    for run in runs:
        words = _UNSAFE.sub("_", run).strip("._")[:100].encode("utf-8", "replace")
        base = words[:180].decode("utf-8", "ignore") or "run"
        taken = {stem.casefold() for stem in stems} | {"index"}  # the page over all runs
        numbered = (f"{base}-{number}" for number in count(2))
        stems.append(next(n for n in chain((base,), numbered) if n.casefold() not in taken))
    return tuple(stems)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder}: cannot be made ({error.strerror})"
        raise OutputError(message, hint="choose another folder with -o") from error


def _refuse_foreign(path: Path, force: bool) -> None:
    if force or not path.exists():
        return
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(max(path.stat().st_size - 4096, 0))
            head += file.read() if path.suffix == ".parquet" else b""
    except OSError as error:
        raise OutputError(f"{path}: cannot be replaced ({error.strerror})") from error
    if not any(mark in head for mark in _OURS):
        raise OutputError(f"{path}: exists and is no report of loganalyze",
                          hint="--force replaces it")  # fmt: skip


def write_atomic(path: Path, content: str | bytes) -> None:
    """Writes a whole file or nothing, text in UTF-8 with LF. Raises OutputError."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        write_whole(path, data)
    except OSError as error:
        message = f"{path}: cannot be written ({error.strerror})"
        raise OutputError(message, hint="choose another folder with -o") from error
