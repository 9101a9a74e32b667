"""`loganalyze rules`: every threshold in force."""

from __future__ import annotations

from pathlib import Path

import click

from loganalyze.commands import options


@click.command("rules")
@options.profile
@options.thresholds
@options.set_
def command(profile: str, thresholds: Path | None, settings: tuple[str, ...]) -> int:
    """List every threshold with its value, unit and source.

    \b
    loganalyze rules --profile sft
    """
    from loganalyze.config import load_thresholds

    chosen = "pretrain" if profile == "auto" else profile
    loaded = load_thresholds(chosen, thresholds, settings)
    for name, entry in sorted(loaded.entries.items()):
        click.echo(f"{name} = {entry.value:g} {entry.unit}  [{entry.source}]")
    return 0
