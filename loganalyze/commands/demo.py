"""`loganalyze demo`: a first result within seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loganalyze.commands import options
from loganalyze.errors import OutputError, UsageError

if TYPE_CHECKING:
    from loganalyze.model import Report


@click.command("demo")
@click.argument("folder", type=click.Path(path_type=Path), default=Path("loganalyze-demo"),
                metavar="[DIR]")  # fmt: skip
@options.lang
@options.force
def command(folder: Path, lang: str | None, force: bool) -> int:
    """Make a small run that goes wrong, and diagnose it.

    DIR (loganalyze-demo) gets the log and its report.

    \b
    loganalyze demo
    """
    from loganalyze.pipeline import Judging, report_on

    log = _write_log(folder, force)
    report = report_on([str(log)], Judging())
    _show(report, log, options.language(lang), force)
    return 0


def _write_log(folder: Path, force: bool) -> Path:
    """The log of the demo. Raises UsageError where DIR holds anything, unless forced."""
    from loganalyze.demo import demo_log

    try:
        if not force and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder}: is there already", hint="another DIR, or --force")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "demo.log"
        path.write_text(demo_log(), encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"{folder}: cannot be written ({error.strerror})"
        raise OutputError(message, hint="name another DIR") from error
    return path


def _show(report: Report, log: Path, lang: str, force: bool) -> None:
    from loganalyze.config import strings
    from loganalyze.demo import GIVEN_UP, RAISED, SEED
    from loganalyze.report import render, write_files

    written = write_files(report, log.parent, lang, force=force)
    color = options.wants_color()
    text = render(
        report, "text", lang, written=written, width=options.text_width(), color=color
    )  # fmt: skip
    click.echo(text, color=color)
    words = {name: strings()[f"demo_{name}"][lang] for name in ("wrote", "report", "next")}
    facts = {"steps": GIVEN_UP, "seed": SEED, "step": RAISED}
    click.echo(words["wrote"].format(path=log, **facts))
    click.echo(words["report"].format(path=written[0]))
    click.echo(words["next"])
