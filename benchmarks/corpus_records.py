"""Step records on the collection of real logs, counted against an expert's.

    python benchmarks/corpus_records.py [FOLDER ...] [--all]

For each folder: how many inputs are recognised, how many accounts add up, in how many cases the
number of step records, the first and the last step are the expert's; then one row for each case
that differs (for every case with --all), with the reason where corpus_differences.toml has one.
Everything is read as a user's input is: by loganalyze.ingest, with no flag.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers")]
CORPUS = ROOT.parent / "shared" / "corpus"
FOLDERS = ("megatron", "deepspeed_hf", "wandb_tb")

from loganalyze.assemble import training_rows  # noqa: E402
from loganalyze.errors import LoganalyzeError  # noqa: E402
from loganalyze.ingest import ingest  # noqa: E402
from loganalyze.model import READING_COLUMNS, RunLog, Source  # noqa: E402

#: Metrics of the machine, not of a training step; a row of them alone is no record.
_MACHINE = ("gpu_", "host_", "mem_used", "mem_total", "raw/system/", "raw/nan_hidden")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What was read of one case, beside what the expert counts."""

    folder: str
    name: str
    confidence: str
    parsers: tuple[str, ...]
    adds_up: bool
    lines: int
    unknown: int
    records: int
    wanted: tuple[int, ...]
    steps: tuple[int | None, int | None]
    wanted_steps: tuple[int | None, int | None]

    @property
    def equal(self) -> bool:
        """Whether the count of records is one that the expert accepts."""
        return self.records in self.wanted


def read_case(folder: str, truth: Mapping[str, Any]) -> Case:
    """Read one case of the collection and count."""
    try:
        made = ingest([str(CORPUS / folder / truth["path"])])
        runs, unread = made.runs, made.unread
    except LoganalyzeError:
        runs, unread = (), ()
    sources = list({s.path: s for s in (*(s for r in runs for s in r.sources), *unread)}.values())
    kept = [_records(folder, run) for run in runs]
    return Case(
        folder=folder,
        name=truth["case"],
        confidence=truth["confidence"],
        parsers=tuple(sorted({source.parser or "-" for source in sources})),
        adds_up=all(map(_adds_up, sources)),
        lines=sum(source.account.lines for source in sources),
        unknown=sum(source.account.unknown for source in sources),
        records=_count(truth, runs, kept, sources),
        wanted=(truth["records"], *truth.get("records_alt", ())),
        steps=_bounds(kept),
        wanted_steps=(truth["first_step"], truth["last_step"]),
    )


def _records(folder: str, run: RunLog) -> pl.DataFrame:
    """The rows that are a training step's record; in trackers' exports every row of the run."""
    if folder != "wandb_tb":
        return training_rows(run.readings)
    names = [c for c in run.readings.columns if c not in READING_COLUMNS]
    names = [name for name in names if not name.startswith(_MACHINE)]
    held = [pl.col(name).is_not_null() for name in names]
    return run.readings.filter(pl.any_horizontal(held)) if held else run.readings.clear()


def _count(
    truth: Mapping[str, Any],
    runs: Sequence[RunLog],
    kept: Sequence[pl.DataFrame],
    sources: Sequence[Source],
) -> int:
    """Records in the unit that the expert counted in."""
    unit = truth.get("record_unit", "")
    if unit.startswith(("metric line", "metrics row (key")):  # one key's value is a record
        columns = list(dict.fromkeys(c for k in kept for c in k.columns))
        names = [c for c in columns if c not in READING_COLUMNS]
        return sum(int(k[n].count()) for k in kept for n in names if n in k.columns)
    if unit == "whole json line":
        return sum(s.account.lines - s.account.unknown for s in sources)
    return sum(len(frame) for frame in kept)


def _bounds(kept: Sequence[pl.DataFrame]) -> tuple[int | None, int | None]:
    steps = [frame["step"].drop_nulls() for frame in kept]
    steps = [one for one in steps if len(one)]
    if not steps:
        return None, None
    return min(int(s.min()) for s in steps), max(int(s.max()) for s in steps)  # type: ignore[arg-type]


def _adds_up(source: Source) -> bool:
    account = source.account
    return account.lines == account.read + account.ignored_total + account.unknown


def _reasons() -> Mapping[str, str]:
    path = Path(__file__).with_name("corpus_differences.toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def show(folder: str, every: bool) -> None:
    """Print a folder's table."""
    truths = map(json.loads, (CORPUS / folder / "TRUTH.jsonl").read_text().splitlines())
    cases = [read_case(folder, truth) for truth in truths]
    equal = sum(case.equal for case in cases)
    recognised = sum("-" not in case.parsers for case in cases)
    adding = sum(case.adds_up for case in cases)
    steps = sum(case.steps == case.wanted_steps for case in cases)
    lines, unknown = sum(c.lines for c in cases), sum(c.unknown for c in cases)
    print(f"\n{folder}: {len(cases)} cases")
    print(f"  every input recognised   {recognised}/{len(cases)}")
    print(f"  account adds up          {adding}/{len(cases)}")
    print(f"  records equal            {equal}/{len(cases)} = {equal / len(cases):.1%}")
    print(f"  first and last step      {steps}/{len(cases)}")
    print(f"  unknown lines            {unknown}/{lines} = {unknown / max(lines, 1):.1%}")
    reasons = _reasons()
    for case in cases:
        if every or not case.equal or case.steps != case.wanted_steps:
            _tell(case, reasons.get(case.name, ""))


def _tell(case: Case, reason: str) -> None:
    sign = " " if case.equal else "#"
    print(
        f"  {sign} {case.confidence:4} {case.name[:44]:44} {case.records:6} of {case.wanted[0]:6}"
        f"  steps {case.steps} of {case.wanted_steps}"
        f"  unknown {case.unknown}/{case.lines}  {','.join(case.parsers)}"
    )
    if reason:
        print(f"         {reason}")


if __name__ == "__main__":
    for one in [name for name in sys.argv[1:] if not name.startswith("-")] or FOLDERS:
        show(one, "--all" in sys.argv)
