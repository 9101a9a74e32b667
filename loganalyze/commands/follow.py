"""`loganalyze diagnose --follow`: a run under watch, on a terminal, in a pager's hook, in CI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, strftime
from typing import TYPE_CHECKING

import click
from msgspec import Struct, field

from loganalyze.commands import options
from loganalyze.errors import UsageError

if TYPE_CHECKING:
    from loganalyze.model import Diagnosis, Report
    from loganalyze.pipeline import Judging
    from loganalyze.watch.loop import Growing, News

_COMMAND_SECONDS = 60.0


class Told(Struct, kw_only=True):
    """Prints news, runs the user's command, rewrites the report; knows when to stop.

    In this order: a report takes a second or two, and who is paged need not wait for it.
    """

    write: Callable[[Report], tuple[Path, ...]]
    folder: Path | None
    lang: str
    fail_rank: int
    command: str | None
    quiet: bool = False
    failed: bool = False
    _running: list[tuple[subprocess.Popen[bytes], float]] = field(default_factory=list)

    def __call__(self, made: tuple[Diagnosis, ...], news: tuple[News, ...]) -> None:
        """Take one look's results."""
        from loganalyze import __version__
        from loganalyze.model import Report, severity_rank

        for one in news:
            self._say(one)
            if self.command is not None:
                self._run(one, self._page(made, one))
            self.failed = self.failed or severity_rank(one.finding.severity) >= self.fail_rank
        self.write(Report(version=__version__, diagnoses=made))
        self.reap()

    def _page(self, made: tuple[Diagnosis, ...], news: News) -> str | None:
        """Where the report of a finding's run is about to stand; None without reports."""
        from loganalyze.report.output import file_stems

        if self.folder is None:
            return None
        ids = [diagnosis.run.meta.id for diagnosis in made]
        return str(self.folder / f"{file_stems(ids)[ids.index(news.diagnosis.run.meta.id)]}.html")

    def _say(self, news: News) -> None:
        from loganalyze.report.model import views
        from loganalyze.report.text import render_news

        (view,) = views((news.diagnosis,))
        color = options.wants_color()
        text = render_news(view, news.finding, self.lang, width=options.text_width(), color=color)
        click.echo(f"{strftime('%H:%M:%S')}  {view.id}\n{text}", nl=False, color=color)
        sys.stdout.flush()

    def _run(self, news: News, page: str | None) -> None:
        """Start the command with the finding on its standard input; the watch does not wait."""
        from loganalyze.report.json_out import render_finding
        from loganalyze.report.model import views

        (view,) = views((news.diagnosis,))
        data = render_finding(view, news.finding, report=page, at_start=news.at_start)
        with tempfile.TemporaryFile() as file:
            file.write(data.encode())
            file.seek(0)
            assert self.command is not None
            made = subprocess.Popen(self.command, shell=True, stdin=file)
        self._running.append((made, monotonic() + _COMMAND_SECONDS))

    def reap(self, *, wait: bool = False) -> None:
        """Say which commands failed; end those that take too long."""
        still = []
        for made, until in self._running:
            if wait:
                _wait(made, until)
            code = made.poll()
            if code is None and monotonic() < until:
                still.append((made, until))
            elif code is None:
                made.kill()
                made.wait()
                _warn(f"--exec took longer than {_COMMAND_SECONDS:.0f} s and was ended")
            elif code:
                _warn(f"--exec ended with exit code {code}")
        self._running = still


def _wait(made: subprocess.Popen[bytes], until: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        made.wait(max(0.0, until - monotonic()))


def _warn(message: str) -> None:
    click.echo(f"loganalyze: {message}", err=True)


def follow(paths: tuple[str, ...], judging: Judging, told: Told) -> tuple[Diagnosis, ...]:
    """Watch until interrupted, until standard input ends, or until a finding is severe enough."""
    from loganalyze.baseline import load_baseline
    from loganalyze.config import load_thresholds
    from loganalyze.pipeline import judge
    from loganalyze.watch.loop import POLL_SECONDS, Watch

    usual = load_thresholds("pretrain", judging.thresholds, judging.settings)
    baseline = load_baseline(judging.baseline, usual)
    with _stopping() as stop, _inputs(paths, stop) as inputs:
        watch = Watch(_growing(inputs, judging), lambda run: judge(run, judging, baseline), told)
        if not told.quiet:
            _warn(f"watching {', '.join(inputs)}; end with Ctrl-C")
        while not stop.is_set() and not told.failed:
            watch.turn()
            told.reap()
            stop.wait(POLL_SECONDS)
        made = watch.end()
        told.reap(wait=True)
    return made


def _growing(paths: tuple[str, ...], judging: Judging) -> Growing:
    """One plain text log is read on where it ended; all else is read again when it changes."""
    from loganalyze_parsers import TEXT, head_of, parser_for
    from loganalyze_parsers.blocks import compression

    from loganalyze.watch.live import LiveRun
    from loganalyze.watch.reread import Reread

    path = Path(paths[0])
    if len(paths) == 1 and not path.is_dir():
        if not path.exists():
            if any(sign in paths[0] for sign in "*?[") or not path.parent.is_dir():
                raise UsageError(f"{path}: no such file or folder", hint="check the path")
            return LiveRun(path)
        head = head_of(path)
        with path.open("rb") as file:
            packed = compression(file.read(6))
        if not packed and parser_for(head) in (None, TEXT):
            return LiveRun(path)
    return Reread(paths, judging.named, judging.mapped)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and a termination signal set, instead of ending the program."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    old = [signal.signal(one, lambda *_: stop.set()) for one in signals]
    try:
        yield stop
    finally:
        for one, handler in zip(signals, old, strict=True):
            signal.signal(one, handler)


@contextmanager
def _inputs(paths: tuple[str, ...], stop: threading.Event) -> Iterator[tuple[str, ...]]:
    """The paths, with standard input copied to a file while it flows; its end ends the watch."""
    if "-" not in paths:
        yield paths
        return
    if len(paths) > 1:
        raise UsageError("--follow - watches standard input alone", hint="name one input")
    with tempfile.TemporaryDirectory(prefix="loganalyze-") as folder:
        path = Path(folder) / "stdin"
        path.touch()

        def copy() -> None:
            with path.open("wb", buffering=0) as file:
                while chunk := os.read(sys.stdin.fileno(), 1 << 16):
                    file.write(chunk)
            stop.set()

        threading.Thread(target=copy, daemon=True).start()
        yield (str(path),)
        shutil.rmtree(folder, ignore_errors=True)
