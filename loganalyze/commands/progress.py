"""Progress on standard error: by bytes, on a terminal only, gone at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(total: int, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """A callable that advances a bar by bytes; silent where nobody would see it."""
    if not shown or not sys.stderr.isatty() or total < 32 * 1024 * 1024:
        yield lambda done, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = ("{task.description}", BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, refresh_per_second=10) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda done, name: bar.update(task, advance=done, description=name)
