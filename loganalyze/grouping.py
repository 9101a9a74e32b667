"""Says which inputs belong to one run, and why: trackers' folders, names, the user's word."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from loganalyze_parsers.tracker_folders import RunInputs, tracker_inputs
from msgspec import Struct

from loganalyze.errors import UsageError
from loganalyze.inputs import expand, part_order, stem, torchrun_folder
from loganalyze.model import Problem
from loganalyze.remote import localised
from loganalyze.store import is_run

#: Names that a trainer gives the file of every run: the folder says which run it is.
_SAY_NOTHING = frozenset({
    "trainer_state.json", "trainer_log.jsonl", "logging.jsonl", "metrics.csv",
})  # fmt: skip


class Group(Struct, frozen=True, kw_only=True):
    """Inputs of one run.

    paths: files to read, in order. columns: each holds one metric, rows are joined on the step.
    texts: console logs beside a tracker's files: read for events, and for numbers only where the
    tracker has none. reason: why they were held for one run. named: whether the user said so.
    """

    name: str
    paths: tuple[Path, ...]
    reason: str
    columns: bool = False
    texts: tuple[Path, ...] = ()
    named: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be read: run directories of ours, groups of raw inputs, and what is passed by."""

    stored: tuple[Path, ...]
    groups: tuple[Group, ...]
    passed: tuple[Problem, ...] = ()


def plan(arguments: Sequence[str], named: Sequence[str] = ()) -> Plan:
    """Group the inputs behind the arguments. named: the user's NAME=GLOB, which come first.

    Raises UsageError and UnreadableInput as inputs.expand and remote.localised do.
    """
    arguments = [localised(argument) for argument in arguments]
    tracked, claimed = _trackers(arguments)
    folders = {Path(argument) for argument in arguments if Path(argument).is_dir()}
    rest = [arg for arg in arguments if not (Path(arg) in folders and _all_claimed(arg, claimed))]
    passed: dict[Path, Problem] = {}
    files = expand(rest, passed, others=bool(tracked))
    paths = [path for path in files if path not in claimed]
    raw = [path for path in paths if not is_run(path)]
    chosen, raw = _by_the_user(raw, named)
    return Plan(
        stored=tuple(path for path in paths if is_run(path)),
        groups=(*chosen, *tracked, *_by_name(raw)),
        passed=tuple(problem for _, problem in sorted(passed.items())),
    )


def _trackers(arguments: Sequence[str]) -> tuple[list[Group], set[Path]]:
    """Groups of the trackers' folders among the arguments, and every file they account for."""
    groups: list[Group] = []
    claimed: set[Path] = set()
    for argument in arguments:
        path = Path(argument)
        if argument == "-" or not path.is_dir() or is_run(path):
            continue
        for run in tracker_inputs(path):
            claimed.update((*run.paths, *run.texts, *run.beside))
            if run.paths:
                groups.append(_tracker_group(run))
    return groups, claimed


def _tracker_group(run: RunInputs) -> Group:
    return Group(
        name=run.label, paths=run.paths, reason=run.reason, columns=run.columns, texts=run.texts
    )


def _all_claimed(argument: str, claimed: set[Path]) -> bool:
    files = [path for path in Path(argument).rglob("*") if path.is_file()]
    return bool(files) and all(path in claimed for path in files)


def _by_the_user(
    paths: Sequence[Path], named: Sequence[str]
) -> tuple[tuple[Group, ...], list[Path]]:
    rest = list(paths)
    groups = []
    for entry in named:
        name, sign, pattern = entry.partition("=")
        if not sign:
            raise UsageError(f"--run {entry}: expected NAME=GLOB")
        mine = [p for p in rest if fnmatch(p.as_posix(), pattern) or fnmatch(p.name, pattern)]
        if not mine:
            raise UsageError(f"--run {entry}: no input matches {pattern}")
        rest = [path for path in rest if path not in mine]
        groups.append(Group(name=name, paths=tuple(mine), reason=f"--run {entry}", named=True))
    return tuple(groups), rest


def _folder_name(path: Path) -> str:
    return path.resolve().parent.name or path.name


def _by_name(paths: Sequence[Path]) -> tuple[Group, ...]:
    """Files that are plainly parts of one run, by their names: ranks, streams, rotations."""
    by_key: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        job = torchrun_folder(path)
        key = (path.parent, stem(path)) if job is None else (job, job.resolve().parent.name)
        by_key.setdefault(key, []).append(path)
    groups = []
    for (_, name), members in sorted(by_key.items()):
        reason = "one file" if len(members) == 1 else "names differ only by rank, stream or part"
        groups.append(
            Group(
                name=_folder_name(members[0]) if name in _SAY_NOTHING else name or members[0].name,
                paths=tuple(sorted(members, key=part_order)),
                reason=reason,
            )
        )
    return tuple(groups)
