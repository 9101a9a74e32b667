"""`loganalyze compare`: which run is better, and where their curves part."""

from __future__ import annotations

from pathlib import Path

import click

from loganalyze.commands import options
from loganalyze.commands.progress import byte_progress


@click.command("compare")
@options.paths
@click.option("--metric", "chosen", multiple=True, metavar="NAME", help="Only this metric.")
@options.text_or_json
@options.thresholds
@options.set_
@options.lang
@options.no_progress
def command(
    paths: tuple[str, ...], chosen: tuple[str, ...], format_: str, thresholds: Path | None,
    settings: tuple[str, ...], lang: str | None, no_progress: bool,
) -> int:  # fmt: skip
    """Compare runs with the first of them: curves, metrics, settings, cost.

    PATH is a log, a folder or a run directory of `ingest`.

    \b
    loganalyze compare baseline.log candidate.log
    """
    from loganalyze.compare import compare_runs, comparison_json, comparison_text, load_runs
    from loganalyze.config import load_thresholds
    from loganalyze.ingest import total_bytes

    limits = load_thresholds("pretrain", thresholds, settings)
    shown = not no_progress
    with byte_progress(total_bytes(paths) if shown else 0, shown) as progress:
        runs = load_runs(paths, progress)
    comparison = compare_runs(runs, limits, chosen)
    color = options.wants_color()
    if format_ == "json":
        text = comparison_json(comparison) + "\n"
    else:
        width, language = options.text_width(), options.language(lang)
        text = comparison_text(comparison, language, width=width, color=color)
    click.echo(text, nl=False, color=color)
    return 0
