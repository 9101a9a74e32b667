"""`loganalyze open`: a report in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from loganalyze.errors import UsageError


@click.command("open")
@click.argument("report", type=click.Path(path_type=Path, dir_okay=False), metavar="REPORT.html")
def command(report: Path) -> int:
    """Open an HTML report in the browser.

    \b
    loganalyze open reports/train.html
    """
    if not report.is_file():
        raise UsageError(f"{report}: no such file", hint="`loganalyze diagnose PATH` writes one")
    click.launch(str(report))
    return 0
