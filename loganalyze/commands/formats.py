"""`loganalyze formats`: what can be read."""

from __future__ import annotations

import click


@click.command("formats")
def command() -> int:
    """List the formats that can be read.

    \b
    loganalyze formats
    """
    from loganalyze_parsers import DIALECTS, PARSERS

    click.echo("Lines of text (any mix of them in one file):")
    for dialect in DIALECTS:
        click.echo(f"  {dialect.name}")
    click.echo("Whole files:")
    for parser in PARSERS:
        if parser.name != "text":
            click.echo(f"  {parser.name}")
    return 0
