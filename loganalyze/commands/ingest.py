"""`loganalyze ingest`: raw logs into runs/<run>/."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loganalyze.commands import options
from loganalyze.commands.progress import byte_progress
from loganalyze.digest import begin
from loganalyze.errors import Incomplete

if TYPE_CHECKING:
    from loganalyze.grown import Memory
    from loganalyze.model import RunLog, Source


@click.command("ingest")
@options.paths
@options.store
@options.run_
@options.map_
@options.jobs
@options.engine
@options.no_mask
@options.quiet
@options.no_progress
def command(
    paths: tuple[str, ...], store: str, named: tuple[str, ...], columns: tuple[str, ...],
    jobs: int | None, engine: str | None, no_mask: bool, quiet: bool, no_progress: bool,
) -> int:  # fmt: skip
    """Normalise logs into Parquet: one row per log line that carried numbers.

    \b
    loganalyze ingest slurm-77.out slurm-77.err
    loganalyze ingest /shared/logs/job-78 --engine ray
    """
    if not any(Path(store).glob("*/growth.json")):  # of a log seen before only news are hashed
        begin(paths)
    from loganalyze.grown import memory_for, read_on
    from loganalyze.ingest import ingest, limits_reached, passed_by, to_store, total_bytes
    from loganalyze.remote import is_url, scratch_store
    from loganalyze.shards import workers_for

    shown = not (quiet or no_progress)
    url = store if is_url(store) else ""
    folder = scratch_store() if url else Path(store)
    plain = not (named or columns or url or jobs or engine)
    with options.masking(no_mask), byte_progress(total_bytes(paths), shown) as progress:
        memory = memory_for(paths) if plain else None
        if memory is not None and (grown := read_on(memory, folder)) is not None:
            if not quiet:
                click.echo(_summary(*grown))
            return 0 if grown[2] else 3
        made = ingest(
            paths,
            progress=progress,
            named=named,
            mapped=options.column_map(columns),
            workers=workers_for(engine, jobs, folder),
            begun=memory.begun() if memory is not None else None,
        )
        runs = [to_store(run) for run in made.runs]
        for run in runs:
            place = _written(run, folder, url, memory if len(runs) == 1 else None)
            if not quiet:
                click.echo(_summary(run, place, len(run.readings)))
    for message in () if quiet else passed_by(runs):
        click.echo(f"loganalyze: {message}", err=True)
    for source in made.unread:
        click.echo(f"{source.path}: nothing could be read from it", err=True)
    if told := limits_reached(runs):
        click.echo("".join(f"loganalyze: {message}\n" for message in told), err=True, nl=False)
        return Incomplete.exit_code
    return 0 if any(_has_metrics(run) for run in runs) else 3


def _written(run: RunLog, folder: Path, url: str, memory: Memory | None) -> Path | str:
    """Put a run in its place, with what the next reader of its log needs; returns the place."""
    from loganalyze.remote import put_run
    from loganalyze.store import write_run

    place = write_run(run, folder)
    if memory is not None:
        memory.keep(run, place)
    return put_run(place, url) if url else place


def _has_metrics(run: RunLog) -> bool:
    return len(run.readings) > 0


def _summary(run: RunLog, place: Path | str, rows: int) -> str:
    meta = run.meta
    head = f"{meta.id}: {meta.framework or 'unknown trainer'}, {rows} rows"
    lines = [f"{head} -> {place}", f"  grouped: {meta.grouping}"]
    for segment in meta.segments:
        again = f", {segment.superseded_steps} steps run again" if segment.superseded_steps else ""
        lines.append(
            f"  segment {segment.index}: steps {segment.first}-{segment.last}, "
            f"{segment.relation}{again} ({segment.reason})"
        )
        lines.extend(_compared(run, segment.index))
    lines.extend(_account(source) for source in run.sources)
    lines.extend(f"  note: {problem.message}" for problem in run.problems)
    return "\n".join(lines)


def _compared(run: RunLog, segment: int) -> list[str]:
    """What steps that were run twice gave the second time."""
    from loganalyze.reruns import rerun

    resumed = len(run.readings) > 0 and run.meta.segments[segment].relation == "resume"
    again = rerun(run, segment) if resumed else None
    if again is None:
        return []
    told = f"    {again.common} logged steps run twice: {again.metric} the same at {again.equal}"
    if again.equal < again.common:
        told += f", furthest apart at step {again.step}: {again.before:.6g}, then {again.after:.6g}"
    return [told]


def _account(source: Source) -> str:
    account = source.account
    share = account.unknown / account.lines if account.lines else 0.0
    return (
        f"  {source.path}: {account.lines} lines = {account.read} read + "
        f"{account.ignored_total} ignored + {account.unknown} unknown ({share:.1%} unknown)"
    )
