"""Finds the input files behind the paths a user gave, and what their names say."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import copyfileobj

from loganalyze import lazy
from loganalyze.errors import UnreadableInput, UsageError
from loganalyze.model import Problem
from loganalyze.products import is_product, is_stored_run
from loganalyze.store import restore

_RANK = lazy.pattern(
    r"(?:^|[._-])(?:global_?)?(?:rank|r|proc|worker|node|default)[_-]?(\d+)(?=$|[._-])"
)
_STREAM = lazy.pattern(r"(?:^|[._-])(?:stdout|stderr|out|err|log|console|output)(?=$|[._-])")
_PACKED = r"(?=$|\.(?:gz|zst|xz|bz2)$)"
#: `train.log.3`, and by date `train.log-20260101` or `train.log.2026-01-01_12`.
_ROTATED = lazy.pattern(
    rf"(?<=[a-z])(?:\.(?P<number>\d{{1,3}})|[.-](?P<date>\d{{4}}-?\d\d-?\d\d(?:[-_T]?[\d-]{{2,9}})?))"
    rf"{_PACKED}"
)
_SUFFIXES = (
    ".gz", ".zst", ".xz", ".bz2", ".out", ".err", ".log", ".txt", ".o", ".e", ".stdout", ".stderr",
)  # fmt: skip
#: Files beside logs that are no logs; looked at only when they are named themselves.
_SKIPPED_SUFFIXES = frozenset({
    ".toml", ".md", ".py", ".sh", ".png", ".html", ".pt", ".pth", ".bin", ".safetensors", ".npy",
    ".npz", ".idx", ".so", ".pyc", ".whl", ".zip", ".tar",
})  # fmt: skip
_MAX_FILES = 100_000
#: The rule of what is told of stored runs that lie beside logs.
STORED_BESIDE = "stored_beside"
_ATTEMPT, _TORCHRUN = lazy.pattern(r"attempt_\d+"), ("stdout", "stderr")


def expand(
    arguments: Sequence[str],
    passed: dict[Path, Problem] | None = None,
    *,
    others: bool = False,
) -> tuple[Path, ...]:
    """Files and run directories behind the arguments: paths, folders, globs, `-` for stdin.

    passed: takes up what lies in the folders and is passed by, with the reason; so are folders
    that hold nothing, if another argument holds something. others: whether one does that is not
    among these. Raises UsageError for a path that does not exist, UnreadableInput where nothing
    was found.
    """
    found: dict[Path, None] = {}
    empty: dict[str, UnreadableInput] = {}
    told = {} if passed is None else passed
    for argument in arguments:
        try:
            found.update(dict.fromkeys(_expand_one(argument, told)))
        except UnreadableInput as error:
            empty[argument] = error
    for argument, why in empty.items():
        if not (found or others):
            raise why
        told[Path(argument)] = Problem(rule="passed_by", message=f"{why.message}; passed by")
    return tuple(found)


def _expand_one(argument: str, passed: dict[Path, Problem]) -> Iterable[Path]:
    if argument == "-":
        return [_spooled_stdin()]
    path = Path(argument)
    if is_file(path) or is_file(path / "run.json"):
        return [path]
    if path.is_dir():
        return _files_below(path, passed)
    if path.exists():
        raise UsageError(
            f"{argument}: neither a file nor a folder",
            hint="pipe it in: loganalyze diagnose - < it",
        )
    restore(path.parent)
    if is_file(path / "run.json"):
        return [path]
    matches = [Path(match) for match in sorted(glob.glob(argument, recursive=True))]
    usable = [match for match in matches if is_file(match) or match.is_dir()]
    passed.update({p: _passed(p) for p in matches if p not in usable})
    if usable:
        return expand([str(match) for match in usable], passed)
    raise UsageError(f"{argument}: no such file or folder", hint="check the path")


def is_file(path: Path) -> bool:
    """Whether it is a plain file (no pipe, no socket, no device) in a place that may be looked at.

    Links are followed; one that leads nowhere, or around in a circle, is none.
    """
    try:
        return path.is_file()
    except OSError:
        return False


def _files_below(folder: Path, passed: dict[Path, Problem]) -> list[Path]:
    """Files that could be logs; where there is none, the stored runs.

    What this program made of the logs beside them is left out, or it would be read as more logs;
    of stored runs that is told, as they may be of other logs.
    """
    entries, stored = _entries(folder, passed)
    files = []
    for path in entries:
        if path.suffix in _SKIPPED_SUFFIXES:
            continue
        if not is_file(path):
            passed[path] = _passed(path)
        elif not is_product(path):
            files.append(path)
    if files and stored:
        passed[stored[0]] = _stored_beside(folder, stored)
    files = files or stored
    if not files:
        raise UnreadableInput(
            f"{folder}: the folder holds no file that could be a log",
            hint="name the log itself; `loganalyze formats` lists what can be read",
        )
    if len(files) > _MAX_FILES:
        passed[folder] = Problem(
            rule="limit_reached",
            message=f"{folder}: holds {len(files)} files, the first {_MAX_FILES} by name are read; "
            "name the folders of one run",
        )
    return files[:_MAX_FILES]


def _stored_beside(folder: Path, stored: Sequence[Path]) -> Problem:
    """That stored runs were left out for the logs beside them, and how to have them read."""
    several = f"{len(stored)} stored runs, the first is {stored[0]};"
    told = several if len(stored) > 1 else f"a stored run, {stored[0]};"
    return Problem(
        rule=STORED_BESIDE,
        message=f"{folder}: holds logs and {told} only the logs are read; "
        f"to read what is stored: loganalyze diagnose {stored[0].parent}",
    )


def _entries(folder: Path, passed: dict[Path, Problem]) -> tuple[list[Path], list[Path]]:
    """Everything below that is no folder of its own and not hidden, and stored runs; sorted."""

    def forbidden(error: OSError) -> None:
        path = Path(error.filename or folder)
        passed[path] = Problem(rule="passed_by", message=f"{path}: {error.strerror}; passed by")

    found: list[Path] = []
    stored: list[Path] = []
    restore(folder)
    for above, folders, names in os.walk(folder, onerror=forbidden):
        place = Path(above)
        if is_stored_run(names):
            stored.append(place)
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if (place / name).is_symlink()]
        found.extend(place / name for name in (*names, *links) if not name.startswith("."))
    return sorted(found), sorted(stored)


#: What a path is that is neither file nor folder -> why it is passed by.
_KINDS = (
    (stat.S_ISFIFO, "a pipe; reading it could wait for ever"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a link to a folder, which may lead in a circle; name it to read it"),
)


def _passed(path: Path) -> Problem:
    """Why a path is passed by."""
    try:
        mode = path.stat().st_mode
        why = next((text for test, text in _KINDS if test(mode)), "no plain file")
    except OSError as error:
        circle = error.errno == errno.ELOOP
        link = path.is_symlink()
        nowhere = "a link in a circle" if circle else "a link that leads nowhere"
        why = nowhere if link else str(error.strerror)
    return Problem(rule="passed_by", message=f"{path}: {why}; passed by")


def _spooled_stdin() -> Path:
    """Standard input, copied to a file: evidence needs a place that can be read again."""
    folder = Path(tempfile.mkdtemp(prefix="loganalyze-"))
    path = folder / "stdin"
    with path.open("wb") as file:
        copyfileobj(sys.stdin.buffer, file)
    return path


def stem(path: Path) -> str:
    """The name without what tells parts of one run apart.

    >>> stem(Path("slurm-77.err")), stem(Path("train_rank_3.log.gz")), stem(Path("a.log.2"))
    ('slurm-77', 'train', 'a')
    """
    name = _ROTATED.sub("", path.name)
    while name.endswith(_SUFFIXES):
        name = name[: name.rindex(".")]
    name = _RANK.sub("", name)
    return _STREAM.sub("", name) or name


def part_order(path: Path) -> tuple[str, int, str]:
    """Sorts rotated parts as they were written; then by name.

    >>> sorted(map(Path, ["a.log", "a.log.1", "a.log.2"]), key=part_order)[0].name
    'a.log.2'
    >>> sorted(map(Path, ["a.log", "a.log-20260102", "a.log-20260101.gz"]), key=part_order)[0].name
    'a.log-20260101.gz'
    """
    match = _ROTATED.search(path.name)
    date = match["date"] if match else None
    number = match["number"] if match else None
    return (date or "9", -int(number) if number else 0, path.name)


def part_of(path: Path) -> str:
    """Name of the log of which a file is a part, `a.log` for `a.log.1` and `a.log.2.gz`.

    >>> part_of(Path("a.log.1")), part_of(Path("a.log.2.gz")), part_of(Path("a.log"))
    ('a.log', 'a.log', 'a.log')
    """
    bare = _ROTATED.sub("", path.name)
    return re.sub(r"\.(?:gz|zst|xz|bz2)$", "", bare)


def log_of(path: Path) -> str:
    """The log of which a file is a part, with its folder."""
    return path.with_name(part_of(path)).as_posix()


def torchrun_folder(path: Path) -> Path | None:
    """The folder of a job in `torchrun --log-dir`: JOB/attempt_0/RANK/stdout.log; None elsewhere.

    >>> torchrun_folder(Path("job_x/attempt_0/3/stdout.log")).as_posix()
    'job_x/attempt_0'
    """
    above = path.parent.parent
    number = path.parent.name
    known = number.isascii() and number.isdigit() and path.name.split(".")[0] in _TORCHRUN
    return above if known and _ATTEMPT.fullmatch(above.name) else None


def rank_of(path: Path) -> int | None:
    """The rank that a file's name says, e.g. 3 for `train_rank_3.log`, or torchrun's folder."""
    match = _RANK.search(path.name)
    if match is None and torchrun_folder(path) is not None:
        return int(path.parent.name) if len(path.parent.name) < 10 else None
    return int(match[1]) if match and len(match[1]) < 10 else None
