"""`loganalyze audit`: settings, memory budget and coverage of a log."""

from __future__ import annotations

import json

import click

from loganalyze.commands import options


@click.command("audit")
@options.paths
@options.text_or_json
@options.lang
@options.no_mask
def command(paths: tuple[str, ...], format_: str, lang: str | None, no_mask: bool) -> int:
    """Hold the configuration against its table, the memory budget, and what the log covers.

    \b
    loganalyze audit train.log
    """
    from loganalyze.audit import as_json, as_text, audits_of
    from loganalyze.pipeline import Judging, report_on

    with options.masking(no_mask):
        found = audits_of(report_on(paths, Judging()))
        if format_ == "json":
            told = [as_json(audit) for audit in found]
            click.echo(json.dumps(told, ensure_ascii=False, indent=1))
        else:
            click.echo("\n\n".join(as_text(audit, options.language(lang)) for audit in found))
    return 0 if found else 3
