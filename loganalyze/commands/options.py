"""Options that mean the same in every command that has them."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from loganalyze.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

paths = click.argument("paths", nargs=-1, required=True, metavar="PATH...")
store = click.option(
    "--store", default="runs", show_default=True, metavar="DIR",
    help="Folder of the normalised runs, or a URL of one (fsspec).",
)  # fmt: skip
output = click.option(
    "-o", "--output", default="reports", show_default=True, metavar="DIR",
    help="Folder for the report files; - for none.",
)  # fmt: skip
format_ = click.option(
    "--format", "format_", default="text", show_default=True,
    type=click.Choice(["text", "json", "html", "markdown", "sarif", "junit", "github"]),
    help="What goes to standard output.",
)  # fmt: skip
text_or_json = click.option(
    "--format", "format_", default="text", show_default=True,
    type=click.Choice(["text", "json"]), help="What goes to standard output.",
)  # fmt: skip
fail_on = click.option(
    "--fail-on", default="never", show_default=True,
    type=click.Choice(["critical", "warning", "info", "never"]),
    help="Exit with 1 if a finding is at least this severe.",
)  # fmt: skip
select = click.option("--select", multiple=True, metavar="CODE", help="Only these findings.")
ignore = click.option("--ignore", multiple=True, metavar="CODE", help="Not these findings.")
thresholds = click.option(
    "--thresholds", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="TOML file with your own thresholds.",
)  # fmt: skip
set_ = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="One threshold, e.g. "
    "loss_spike.z_warning=8.",
)  # fmt: skip
profile = click.option(
    "--profile", default="auto", show_default=True,
    type=click.Choice(["auto", "pretrain", "sft", "rl"]), help="Kind of training.",
)  # fmt: skip
baseline = click.option(
    "--baseline", multiple=True, metavar="RUN", help="A healthy run, as a log or a run directory: "
    "findings are judged against it.",
)  # fmt: skip
lang = click.option(
    "--lang", type=click.Choice(["en", "zh"]), default=None,
    help="Language of the texts; the default follows the locale.",
)  # fmt: skip
quiet = click.option("-q", "--quiet", is_flag=True, help="No progress, no notes.")
no_progress = click.option("--no-progress", is_flag=True, help="No progress bar.")
no_mask = click.option(
    "--no-mask", is_flag=True, help="Keep tokens, keys and passwords of the logs as they are."
)
force = click.option("--force", is_flag=True, help="Overwrite what is there.")


follow = click.option(
    "--follow", "-f", is_flag=True, help="Keep the run under watch: tell new findings as they show "
    "and rewrite the report, until Ctrl-C or --fail-on.",
)  # fmt: skip
exec_ = click.option(
    "--exec", "exec_", metavar="CMD", help="With --follow: run CMD for each new finding, its JSON "
    "on standard input.",
)  # fmt: skip
jobs = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Read with N processes at once. "
    "Without it: one for small inputs, one a core for large ones.",
)  # fmt: skip
engine = click.option(
    "--engine", type=click.Choice(["processes", "ray"]), default=None, help="Who reads: processes "
    "of this machine, or the tasks of a Ray cluster (RAY_ADDRESS, else a local one).",
)  # fmt: skip
run_ = click.option(
    "--run", "named", multiple=True, metavar="NAME=GLOB", help="Hold the inputs that match for one "
    "run of that name.",
)  # fmt: skip
map_ = click.option(
    "--map", "columns", multiple=True, metavar="COLUMN=METRIC", help="Read a column of a table as "
    "a metric, e.g. total=loss or it=step.",
)  # fmt: skip


def column_map(entries: tuple[str, ...]) -> dict[str, str]:
    """--map's entries as column to metric. Raises UsageError for an entry without `=`."""
    mapped = {}
    for entry in entries:
        column, sign, metric = entry.partition("=")
        if not sign:
            raise UsageError(f"--map {entry}: expected COLUMN=METRIC")
        mapped[column] = metric
    return mapped


def masking(off: bool) -> AbstractContextManager[None]:
    """Where secrets are masked, unless the user asked otherwise; says so on standard error."""
    from loganalyze.masking import unmasked

    if not off:
        return nullcontext()
    click.echo("loganalyze: --no-mask: secrets of the logs are stored and shown", err=True)
    return unmasked()


def language(chosen: str | None) -> str:
    """The language asked for, or the one of the locale (Chinese or else English)."""
    if chosen:
        return chosen
    names = [os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    found = next((name for name in names if name), "") or (locale.getlocale()[0] or "")
    return "zh" if found.lower().startswith(("zh", "chinese")) else "en"


def wants_color() -> bool:
    """Colour on a terminal, unless NO_COLOR is set; FORCE_COLOR forces it."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def text_width() -> int:
    """Columns of the terminal (or COLUMNS), between 60 and 120; 100 where there is none."""
    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
