"""`loganalyze compare`: which run is better, and where their curves part."""

from __future__ import annotations

from pathlib import Path

import click

from loganalyze.commands import options


@click.command("compare")
@options.paths
@click.option("--metric", "chosen", multiple=True, metavar="NAME", help="Only this metric.")
@options.text_or_json
@options.thresholds
@options.set_
@options.lang
def command(
    paths: tuple[str, ...], chosen: tuple[str, ...], format_: str, thresholds: Path | None,
    settings: tuple[str, ...], lang: str | None,
) -> int:  # fmt: skip
    """Compare runs with the first of them: curves, metrics, settings, cost.

    PATH is a log, a folder or a run directory of `ingest`.

    \b
    loganalyze compare baseline.log candidate.log
    """
    from loganalyze.compare import compare_runs, comparison_json, comparison_text, load_runs
    from loganalyze.config import load_thresholds

    limits = load_thresholds("pretrain", thresholds, settings)
    comparison = compare_runs(load_runs(paths), limits, chosen)
    color = options.wants_color()
    if format_ == "json":
        text = comparison_json(comparison) + "\n"
    else:
        width, language = options.text_width(), options.language(lang)
        text = comparison_text(comparison, language, width=width, color=color)
    click.echo(text, nl=False, color=color)
    return 0
