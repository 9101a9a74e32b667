"""`loganalyze verify`: does the report cite what stands in its inputs?"""

from __future__ import annotations

from pathlib import Path

import click

from loganalyze.commands import options


@click.command("verify")
@click.argument("report", type=click.Path(path_type=Path), metavar="REPORT")
@click.option(
    "--root", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Folder from which the report's relative paths count.",
)  # fmt: skip
@options.text_or_json
@options.lang
def command(report: Path, root: Path | None, format_: str, lang: str | None) -> int:
    """Read every line that a report cites again, and look for the number in it.

    REPORT is the JSON, or the page beside it. Exit code 0: all found; 1: some not; 3: no readable
    report.

    \b
    loganalyze verify reports/train.json
    """
    from loganalyze.verify import verify
    from loganalyze.verify_out import verified_json, verified_text

    data = report.with_suffix(".json") if report.suffix == ".html" else report
    result = verify(data, root)  # the page's facts lie beside it
    shown = verified_json(result) if format_ == "json" else None
    click.echo(shown or verified_text(result, options.language(lang)))
    return 1 if result.failures else 0
