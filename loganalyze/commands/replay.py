"""`loganalyze replay`: the suspect step again, and what is behind it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loganalyze.commands import options

if TYPE_CHECKING:
    from loganalyze.config import Thresholds
    from loganalyze.replay.result import Result


@click.command("replay")
@click.argument("report", type=click.Path(path_type=Path, dir_okay=False), metavar="REPORT.json")
@click.option("--finding", metavar="ID", help="The finding to replay; by default the first one.")
@click.option(
    "--recipe", required=True, metavar="RECIPE",
    help="path.py:function, hf, capsule[:path.py:function] or torch:path.py:function.",
)  # fmt: skip
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), metavar="DIR",
    help="Checkpoint or capsule, a file or a folder.",
)  # fmt: skip
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="PATH",
    help="Batches for the recipe hf: a recorder's folder, or rows in JSON lines or Parquet.",
)  # fmt: skip
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--against", type=click.Choice(["fp32"]), help="Compare with this precision as well.")
@click.option(
    "--trust-checkpoint", is_flag=True,
    help="Load pickles and run the code that a checkpoint names: only for your own.",
)  # fmt: skip
@options.output
@options.thresholds
@options.set_
@options.lang
@options.force
def command(
    report: Path, finding: str | None, recipe: str, checkpoint: Path | None, data: Path | None,
    device: str, against: str | None, trust_checkpoint: bool, output: str, thresholds: Path | None,
    settings: tuple[str, ...], lang: str | None, force: bool,
) -> int:  # fmt: skip
    """Run a flagged step again, prove that it is the same, and name what is behind it.

    \b
    loganalyze replay reports/train.json --finding LA101-1 \\
        --recipe capsule:train.py:build --checkpoint blackbox
    """
    from loganalyze.config import load_thresholds
    from loganalyze.replay import require
    from loganalyze.replay.case import read_case

    case = read_case(report, finding)
    require()
    from loganalyze.replay.recipe import Request, load_step
    from loganalyze.replay.session import replay
    from loganalyze.replay.text import render

    _check_device(device)
    rules = load_thresholds("pretrain", thresholds, settings)
    request = Request(
        step=case.step, device=device, checkpoint=checkpoint, data=data,
        trust=trust_checkpoint, logged=case.logged,
    )  # fmt: skip
    result = replay(load_step(recipe, request), request, run=case.run, finding=case.finding,
                    against=against or "", rules=rules)  # fmt: skip
    language = options.language(lang)
    click.echo(render(result, rules, language), nl=False)
    if output != "-":
        _write(result, rules, Path(output), language, force)
    return 0


def _check_device(device: str) -> None:
    from loganalyze.errors import UsageError
    from loganalyze.replay.state import has_cuda

    if device == "cuda" and not has_cuda():
        raise UsageError("--device cuda: torch sees no CUDA device", hint="--device cpu")


def _write(result: Result, rules: Thresholds, folder: Path, lang: str, force: bool) -> None:
    """`<run>.replay.json`, `.parquet`, `.html`, and a section in the run's own report there.

    Files of ours are replaced, others refused.
    """
    from loganalyze.errors import OutputError
    from loganalyze.replay import json_out, page, parquet_out
    from loganalyze.replay.words import say
    from loganalyze.report.output import file_stems, write_atomic

    stem = file_stems([result.run])[0]
    made: dict[Path, str | bytes] = {
        folder / f"{stem}.replay.json": json_out.render(result),
        folder / f"{stem}.replay.parquet": parquet_out.render(result),
        folder / f"{stem}.replay.html": page.render(result, rules, lang),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path in made:
        if path.exists() and not force and not _ours(path):
            raise OutputError(f"{path}: exists and is no replay of loganalyze",
                              hint="--force replaces it")  # fmt: skip
    report = folder / f"{stem}.html"
    if report.is_file() and _ours(report):
        made[report] = page.into_report(report.read_text("utf-8"), result, rules)
    for path, content in made.items():
        write_atomic(path, content)
    click.echo(say("replay_written", lang, files=", ".join(map(str, made))), err=True)


def _ours(path: Path) -> bool:
    """Whether a file says at its head, or a Parquet file at its end, that loganalyze wrote it."""
    data = path.read_bytes()
    return b"loganalyze" in data[:2000] or b"loganalyze" in data[-8000:]
