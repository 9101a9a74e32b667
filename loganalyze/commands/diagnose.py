"""`loganalyze diagnose`: logs or runs in, a diagnosis out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loganalyze.commands import options
from loganalyze.commands.progress import byte_progress
from loganalyze.digest import begin
from loganalyze.errors import Incomplete

if TYPE_CHECKING:
    from loganalyze.model import Report
    from loganalyze.pipeline import Judging
    from loganalyze.shards import Workers


@click.command("diagnose")
@options.paths
@options.output
@options.run_
@options.map_
@options.jobs
@options.engine
@options.format_
@options.fail_on
@options.select
@options.ignore
@options.thresholds
@options.set_
@options.profile
@options.baseline
@options.lang
@options.force
@options.no_mask
@options.follow
@options.exec_
@options.quiet
@options.no_progress
def command(
    paths: tuple[str, ...], output: str, named: tuple[str, ...], columns: tuple[str, ...],
    jobs: int | None, engine: str | None, format_: str, fail_on: str, select: tuple[str, ...],
    ignore: tuple[str, ...], thresholds: Path | None, settings: tuple[str, ...], profile: str,
    baseline: tuple[str, ...], lang: str | None, force: bool, no_mask: bool, follow: bool,
    exec_: str | None, quiet: bool, no_progress: bool,
) -> int:  # fmt: skip
    """Say what went wrong first, what followed, why, and what to do.

    PATH is a log, a folder, a glob, a run directory of `ingest`, or - for standard input.

    \b
    loganalyze diagnose slurm-77.out
    loganalyze diagnose runs/slurm-77 --format json -o -
    loganalyze diagnose slurm-78.out --baseline runs/slurm-77
    loganalyze diagnose --follow slurm-78.out --exec './page-me.sh' --fail-on critical
    """
    if not follow:
        begin(paths)
    from loganalyze.pipeline import Judging

    judging = Judging(
        profile=profile, thresholds=thresholds, settings=settings, select=select, ignore=ignore,
        named=named, mapped=options.column_map(columns), baseline=baseline,
    )  # fmt: skip
    language = options.language(lang)
    with options.masking(no_mask):
        if follow:
            return _follow(paths, judging, output, language, force, fail_on, exec_, quiet)
        workers = _workers(engine, jobs, output)
        report = _report(paths, judging, not (quiet or no_progress), workers)
        written = _write(report, output, language, force)
        _print(report, format_, language, written)
    if not quiet:
        _tell_passed(report)
    return _exit_code(report, fail_on)


def _follow(
    paths: tuple[str, ...], judging: Judging, output: str, lang: str, force: bool, fail_on: str,
    command: str | None, quiet: bool,
) -> int:  # fmt: skip
    from loganalyze import __version__
    from loganalyze.commands.follow import Told, follow
    from loganalyze.config import fail_rank
    from loganalyze.model import Report

    told = Told(
        write=lambda report: _write(report, output, lang, force),
        folder=None if output == "-" else Path(output), lang=lang,
        fail_rank=fail_rank(fail_on), command=command, quiet=quiet,
    )  # fmt: skip
    report = Report(version=__version__, diagnoses=follow(paths, judging, told))
    if report.diagnoses:
        _print(report, "text", lang, told.write(report))
    return _exit_code(report, fail_on)


def _workers(engine: str | None, jobs: int | None, output: str) -> Workers:
    """Machines of a Ray cluster share the folder of the reports, or else the current one."""
    from loganalyze.shards import workers_for

    shared = Path("." if output == "-" else output) if engine == "ray" else None
    return workers_for(engine, jobs, shared)


def _report(paths: tuple[str, ...], judging: Judging, shown: bool, workers: Workers) -> Report:
    from loganalyze.ingest import total_bytes
    from loganalyze.pipeline import report_on

    with byte_progress(total_bytes(paths) if shown else 0, shown) as progress:
        return report_on(paths, judging, progress=progress, workers=workers)


def _write(report: Report, output: str, lang: str, force: bool) -> tuple[Path, ...]:
    if output == "-" or not report.diagnoses:
        return ()
    from loganalyze.report import write_files

    return tuple(write_files(report, Path(output), lang, force=force))


def _print(report: Report, format_: str, lang: str, written: tuple[Path, ...]) -> None:
    from loganalyze.report import render

    color = options.wants_color()
    text = render(report, format_, lang, written=written, width=options.text_width(), color=color)
    click.echo(text, nl=False, color=color)


def _tell_passed(report: Report) -> None:
    """On standard error, what was passed by in the folders, and why."""
    from loganalyze.ingest import passed_by

    for message in passed_by(diagnosis.run for diagnosis in report.diagnoses):
        click.echo(f"loganalyze: {message}", err=True)


def _exit_code(report: Report, fail_on: str) -> int:
    """The contract of DESIGN: 1 at or above --fail-on, 5 where a limit was reached, 3 where no
    metric was found, else 0."""
    from loganalyze.config import fail_rank
    from loganalyze.pipeline import has_metrics, limits_reached, worst_rank

    if worst_rank(report) >= fail_rank(fail_on):
        return 1
    if told := limits_reached(diagnosis.run for diagnosis in report.diagnoses):
        click.echo("".join(f"loganalyze: {message}\n" for message in told), err=True, nl=False)
        return Incomplete.exit_code
    return 0 if has_metrics(report) else 3
