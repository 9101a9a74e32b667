"""Which files below a folder form which run: W&B, TensorBoard, MLflow, SwanLab, Lightning, ...

Only the layouts of trackers are known here; a folder of plain logs yields nothing, and files that
no run claims are left to the caller. One run id may have several folders (resumed), one folder
several runs (unrelated event files), one run many files (a file per metric).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.lightning_csv import extent_of_table
from loganalyze_parsers.numbers import is_digits
from loganalyze_parsers.tensorboard_rows import RANK_FOLDER
from loganalyze_parsers.tracker_events import chains_of, event_chains

_RUN_FOLDER = lazy.pattern(r"(?:offline-run|dryrun|run)-(?:(\d{8}_\d{6})-)?(.+)$")
_SWANLAB_FOLDER = lazy.pattern(r"run-\d{8}_\d{6}-\w+$")
_LATEST = "latest-run"
_OWN_LOG = lazy.pattern(r"debug(?:-\w+)?\.log$")
_VERSION = lazy.pattern(r"version_(\d+)$")
_MONITOR = lazy.pattern(r"(?:Train|Eval|Validation)_(?:Samples|Eigenvalues)_\w+\.csv$")
_BESIDE = (
    "wandb-summary.json", "wandb-metadata.json", "config.yaml", "requirements.txt", "diff.patch",
    "conda-environment.yaml", "output.log", "hparams.yaml",
)  # fmt: skip
_MOST_FILES = 200_000


class RunInputs(Struct, frozen=True, kw_only=True):
    """The files of one run.

    label: a name for the run. paths: files to read, in order. Both are empty for files that need
    not be read at all. reason: why they are one run. columns: each file holds one metric; their
    rows are to be joined, see tracker_join. texts: console logs of the run; they repeat numbers
    that the tracker has, so they are good for events, and for numbers only where the tracker has
    none. beside: files that belong to the run and need not be read.
    """

    label: str
    paths: tuple[Path, ...]
    reason: str
    columns: bool = False
    texts: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()


class _Tree(Struct, frozen=True):
    """Files by folder."""

    root: Path
    files: dict[Path, list[Path]]

    def below(self, folder: Path) -> Iterator[Path]:
        """All files in and under a folder."""
        for at, files in self.files.items():
            if at == folder or folder in at.parents:
                yield from files


def tracker_inputs(path: Path) -> tuple[RunInputs, ...]:
    """Runs of trackers in and below a folder, sorted by label; empty where there are none."""
    tree = _walk(path)
    runs = [
        *_wandb(tree),
        *_mlflow(tree),
        *_swanlab(tree),
        *_lightning(tree),
        *_monitor(tree),
    ]
    claimed = {file for run in runs for file in (*run.paths, *run.texts, *run.beside)}
    runs.extend(_events(tree, claimed))
    return tuple(sorted(runs, key=lambda run: (run.label, run.paths)))


def _walk(path: Path) -> _Tree:
    """Files below a folder, without links to folders (`latest-run` is one) and hidden ones."""
    files: dict[Path, list[Path]] = {}
    count = 0
    for at, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(at)
        files[here] = sorted(here / name for name in names if not name.startswith("."))
        count += len(names)
        if count > _MOST_FILES:
            break
    return _Tree(path, files)


def _named(folder: Path, files: Iterable[Path], name: str) -> Path | None:
    return next((file for file in files if file.name == name and file.parent == folder), None)


def _wandb(tree: _Tree) -> Iterator[RunInputs]:
    """Folders with a `.wandb` log or legacy JSONL, put together by run id."""
    by_run: dict[tuple[Path, str], list[Path]] = {}
    for folder, files in tree.files.items():
        log = any(file.suffix == ".wandb" for file in files)
        legacy = _named(folder, files, "wandb-history.jsonl") is not None
        if log or legacy:
            by_run.setdefault((folder.parent, _run_id(folder, files)), []).append(folder)
    for (_, run), folders in by_run.items():
        if len(folders) > 1:  # latest-run may be a copy of one of them
            folders = [folder for folder in folders if folder.name != _LATEST]
        folders.sort(key=_started)
        yield _wandb_run(tree, run, folders)
    for parent in dict.fromkeys(parent for parent, _ in by_run):
        own = tuple(_tracker_logs(tree, parent))
        if own:
            yield RunInputs(label="", paths=(), reason="", beside=own)


def _tracker_logs(tree: _Tree, parent: Path) -> Iterator[Path]:
    """The tracker's own logs beside the run folders, and latest-run as a file or a copy."""
    for file in tree.files.get(parent, []):
        if file.name == _LATEST or _OWN_LOG.match(file.name):
            yield file
    if (parent / _LATEST) in tree.files and len(tree.files) > 1:
        siblings = [folder for folder in tree.files if folder.parent == parent]
        if any(_RUN_FOLDER.match(folder.name) for folder in siblings):
            yield from tree.below(parent / _LATEST)


def _run_id(folder: Path, files: Sequence[Path]) -> str:
    """The id: of the log's name, else of the folder's."""
    log = next((file for file in files if file.suffix == ".wandb"), None)
    if log is not None:
        return log.stem.removeprefix("run-")
    match = _RUN_FOLDER.match(folder.name)
    return match[2] if match else folder.name


def _started(folder: Path) -> tuple[str, str]:
    match = _RUN_FOLDER.match(folder.name)
    return (match[1] or "" if match else ""), folder.name


def _wandb_run(tree: _Tree, run: str, folders: Sequence[Path]) -> RunInputs:
    paths: list[Path] = []
    texts: list[Path] = []
    beside: list[Path] = []
    for folder in folders:
        for file in tree.below(folder):
            if file.suffix == ".wandb" or file.name in (
                "wandb-history.jsonl",
                "wandb-events.jsonl",
            ):
                paths.append(file)
            elif file.name == "output.log" and file.stat().st_size:
                texts.append(file)
            else:
                beside.append(file)
    paths.sort(key=lambda file: (_started(_run_folder(file)), file.suffix != ".wandb",
                                 file.name != "wandb-history.jsonl"))  # fmt: skip
    reason = "one W&B run folder"
    if len(folders) > 1:
        reason = f"{len(folders)} W&B folders of one run id"
    return RunInputs(
        label=run, paths=tuple(paths), reason=reason, texts=tuple(texts), beside=tuple(beside)
    )


def _run_folder(file: Path) -> Path:
    return file.parent.parent if file.parent.name == "files" else file.parent


def _mlflow(tree: _Tree) -> Iterator[RunInputs]:
    """Run folders of the file store: meta.yaml beside metrics/."""
    for folder, files in tree.files.items():
        meta = _named(folder, files, "meta.yaml")
        metrics = folder / "metrics"
        if meta is None or metrics not in tree.files:
            if meta is not None and (folder / "tags") not in tree.files:
                yield from _experiment(meta)
            continue
        values = sorted(tree.below(metrics), key=lambda file: (file.name != "loss", file))
        if not values:
            continue
        known = {meta, *values}
        yield RunInputs(
            label=_run_name(folder),
            paths=(meta, *values),
            reason="one run of MLflow's file store",
            columns=True,
            beside=tuple(file for file in tree.below(folder) if file not in known),
        )


def _experiment(meta: Path) -> Iterator[RunInputs]:
    """The meta.yaml of an experiment tells nothing of its runs and need not be read."""
    try:
        with meta.open("rb") as file:
            mine = b"artifact_location:" in file.read(4096)
    except OSError:
        mine = False
    if mine:
        yield RunInputs(label="", paths=(), reason="", beside=(meta,))


def _run_name(folder: Path) -> str:
    """The name that MLflow keeps as a tag, with the start of the id."""
    try:
        name = (folder / "tags" / "mlflow.runName").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return f"{name}-{folder.name[:8]}" if name else folder.name


def _swanlab(tree: _Tree) -> Iterator[RunInputs]:
    """swanlog/run-<date>-<id>: one log with everything (newer), or one folder a metric in logs/."""
    for folder, files in tree.files.items():
        if not _SWANLAB_FOLDER.match(folder.name):
            continue
        logs = sorted(
            file
            for file in tree.below(folder / "logs")
            if file.suffix == ".log" and is_digits(file.stem)
        )
        whole = [file for file in files if file.suffix == ".swanlab" and file.stat().st_size > 7]
        if logs or whole:
            paths = tuple(whole or logs)
            yield RunInputs(
                label=folder.name,
                paths=paths,
                reason="one SwanLab run folder",
                columns=not whole,
                beside=tuple(file for file in tree.below(folder) if file not in paths),
            )


def _lightning(tree: _Tree) -> Iterator[RunInputs]:
    """lightning_logs/version_N/metrics.csv: every start is a version, a resumed one goes on."""
    by_parent: dict[Path, list[Path]] = {}
    for folder, files in tree.files.items():
        table = _named(folder, files, "metrics.csv")
        if table is not None and _VERSION.match(folder.name):
            by_parent.setdefault(folder.parent, []).append(table)
    for parent, tables in by_parent.items():
        tables.sort(key=lambda table: int(table.parent.name.removeprefix("version_")))
        for chain, reason in chains_of(
            tables, extent_of_table, "version of Lightning's CSV logger"
        ):
            yield RunInputs(
                label=f"{parent.name}-{chain[0].parent.name}",
                paths=chain,
                reason=reason,
                beside=tuple(
                    file
                    for table in chain
                    for file in tree.files[table.parent]
                    if file.name in _BESIDE
                ),
            )


def _monitor(tree: _Tree) -> Iterator[RunInputs]:
    """DeepSpeed's csv_monitor: one file a metric."""
    for folder, files in tree.files.items():
        mine = [file for file in files if _MONITOR.match(file.name)]
        if len(mine) > 1:
            mine.sort(key=lambda file: ("train_loss" not in file.name, file.name))
            yield RunInputs(
                label=folder.name,
                paths=tuple(mine),
                reason="one folder of DeepSpeed's csv_monitor",
                columns=True,
            )


def _events(tree: _Tree, claimed: set[Path]) -> Iterator[RunInputs]:
    """Event files of one folder: restarts of a run follow each other, other runs stand apart."""
    ranks: dict[Path, list[Path]] = {}
    for folder, files in tree.files.items():
        mine = [file for file in files if ".tfevents." in file.name and file not in claimed]
        if mine and RANK_FOLDER.match(folder.name):
            ranks.setdefault(folder.parent, []).extend(mine)
            continue
        chains = event_chains(mine)
        for number, (chain, reason) in enumerate(chains, start=1):
            label = folder.name or "events"
            yield RunInputs(
                label=label if len(chains) == 1 else f"{label}-{number}",
                paths=chain,
                reason=reason,
            )
    for folder, files in ranks.items():
        reason = "event files of the ranks of one run"
        yield RunInputs(label=folder.name, paths=tuple(files), reason=reason)
