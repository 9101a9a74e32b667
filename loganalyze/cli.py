"""The command line. Stages are imported inside their command, so that --help loads none."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import click

from loganalyze import __version__
from loganalyze.errors import LoganalyzeError, OutputError, UsageError

#: Command name -> module of loganalyze.commands that defines `command`; in the order of --help.
COMMANDS = {
    "diagnose": "diagnose",
    "ingest": "ingest",
    "replay": "replay",
    "compare": "compare",
    "demo": "demo",
    "verify": "verify",
    "open": "open",
    "audit": "audit",
    "explain": "explain",
    "rules": "rules",
    "formats": "formats",
}

#: malloc.h of the GNU library; another one has no mallopt or pays no heed. Numpy's threads share
#: what they free, and arrays of up to 32 MB are taken from it: a page that the system hands out is
#: zeroed first, which was 6 % of all processor time of a long log, and a fifth of the detectors'.
_MALLOC = {"M_ARENA_MAX": (-8, 1), "M_MMAP_THRESHOLD": (-3, 32 << 20),
           "M_TRIM_THRESHOLD": (-1, 256 << 20)}  # fmt: skip


class _Lazy(click.Group):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name != "replay":
            _be_frugal()
        module = import_module(f"loganalyze.commands.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


def _be_frugal() -> None:
    """Settings of the libraries, before they are loaded; what the user set stays."""
    # Of long vectors numpy's library takes sums in several threads, which then spin for more to
    # do: a fifth of all processor time, and nothing gained.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pages of 2 MB are zeroed as a whole before they are used, and have left the cache by then.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    # Memory that polars has done with goes back to the system at once.
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")
    own = any(name.startswith("MALLOC_") for name in os.environ)
    own = own or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform == "linux" and not own:
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            for option, value in _MALLOC.values():
                library.mallopt(option, value)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="loganalyze")
def cli() -> None:
    """Find out what went wrong in an LLM training run, from what lies on disk.

    \b
    loganalyze diagnose train.log           text diagnosis, and reports/<run>.html
    loganalyze ingest train.log             normalise into runs/<run>/ (Parquet)
    loganalyze explain LA102                what a finding means and how it is decided
    """


def program() -> NoReturn:
    """The installed command: main(), and out as soon as all is written and cleaned up.

    Python takes its modules apart one by one before it ends, which is a tenth of a second that
    nobody gains by. It still does so where another thread is at work.
    """
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if threading.active_count() > 1:
        sys.exit(code)
    os._exit(code if isinstance(code, int) else 0)


def main() -> NoReturn:
    """Run the command line; known errors become one line and their exit code."""
    try:
        code = cli.main(prog_name="loganalyze", standalone_mode=False)
        sys.stdout.flush()  # so that a full disk behind it is told below
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = 2
    except click.ClickException as error:
        _complain(_wrong_use(error))
        code = 2
    except click.Abort:
        code = 130
    except LoganalyzeError as error:
        _complain(error)
        code = error.exit_code
    except BrokenPipeError:
        _silence()
        sys.stderr.close()
        code = 0
    except OSError as error:
        _silence()
        _complain(OutputError(f"{error.filename or 'output'}: {error.strerror or error}"))
        code = OutputError.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _silence() -> None:
    """What is still to be written to standard output goes nowhere: it would fail again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wrong_use(error: click.ClickException) -> UsageError:
    """A complaint of click's as one of ours, with the command whose help to read."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "loganalyze"
    meant = _nearest(error.message) if isinstance(error, click.UsageError) else ""
    hint = f"did you mean `loganalyze {meant}`?" if meant else f"`{path} --help` shows how"
    return UsageError(error.format_message().rstrip("."), hint=hint)


def _nearest(message: str) -> str:
    """The command most like one that does not exist; "" for any other message."""
    if not message.startswith("No such command"):
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(message.split("'")[1], COMMANDS, n=1)), "")


def _complain(error: LoganalyzeError) -> None:
    """One line on standard error: what happened, and what to try next."""
    hint = f"; {error.hint}" if error.hint else ""
    click.echo(f"loganalyze: {error.message}{hint}", err=True)
