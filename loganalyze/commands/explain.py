"""`loganalyze explain CODE`: what a finding means."""

from __future__ import annotations

import click

from loganalyze.commands import options


@click.command("explain")
@click.argument("code", metavar="CODE|KIND")
@options.lang
def command(code: str, lang: str | None) -> int:
    """Print a finding's rules, thresholds with sources, and its troubleshooting tree.

    \b
    loganalyze explain LA102
    """
    from loganalyze.explain import explain

    click.echo(explain(code, options.language(lang)))
    return 0
