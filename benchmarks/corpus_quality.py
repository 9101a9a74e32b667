"""Findings on the collection of real logs against an expert's truth.

    python benchmarks/corpus_quality.py [FOLDER ...] [--misses]

Per finding kind: expectations found, findings that are false alarms (warning or worse, of a kind
that is neither expected nor allowed). An expectation is met by a finding of its kind (or one of its
`alt` kinds) of at least its severity that overlaps its steps, give or take its tolerance. Cases of
confidence high make the headline; medium ones are printed beside.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers")]
CORPUS = ROOT.parent / "shared" / "corpus"
RANK = {"info": 0, "warning": 1, "critical": 2}


def truths(folder: str) -> Iterator[Mapping[str, Any]]:
    """The judged cases of a folder."""
    for line in (CORPUS / folder / "TRUTH.jsonl").read_text().splitlines():
        yield json.loads(line)


def findings_of(path: Path) -> list[Any]:
    """Every finding of every run behind a path."""
    from loganalyze.errors import LoganalyzeError
    from loganalyze.pipeline import Judging, report_on

    try:
        report = report_on([str(path)], Judging())
    except LoganalyzeError as error:
        print(f"  {path.name}: {error}")
        return []
    return [finding for diagnosis in report.diagnoses for finding in diagnosis.findings]


def meets(finding: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether a finding fulfils an expectation."""
    if finding.kind not in (wanted["kind"], *(wanted.get("alt") or ())):
        return False
    if RANK[finding.severity] < RANK[wanted["severity_min"]]:
        return False
    if wanted["step_first"] is None or finding.step_first is None:
        return True
    low, high = (
        wanted["step_first"] - wanted["tolerance"],
        wanted["step_last"] + wanted["tolerance"],
    )
    last = finding.step_first if finding.step_last is None else finding.step_last
    return bool(finding.step_first <= high and last >= low)


def allowed(finding: Any, truth: Mapping[str, Any]) -> bool:
    """Whether a finding is expected or allowed, or only a note."""
    kinds = set(truth["allow"])
    for wanted in truth["expect"]:
        kinds |= {wanted["kind"], *(wanted.get("alt") or ())}
    return finding.severity == "info" or finding.kind in kinds


def score(folders: list[str], show: bool) -> None:
    """Print the tables."""
    totals: dict[str, Counter[str]] = {}
    for folder in folders:
        for truth in truths(folder):
            if truth["confidence"] == "low":
                continue
            tally = totals.setdefault(truth["confidence"], Counter())
            found = findings_of(CORPUS / folder / truth["path"])
            for wanted in truth["expect"]:
                met = any(meets(finding, wanted) for finding in found)
                tally["met" if met else "missed"] += 1
                tally[f"{wanted['kind']} {'met' if met else 'missed'}"] += 1
                if show and not met:
                    _tell(
                        "missed", truth, wanted["kind"], wanted["step_first"], wanted["step_last"]
                    )
            for finding in found:
                if finding.severity == "info":
                    continue
                right = allowed(finding, truth)
                tally["right" if right else "false"] += 1
                if not right:
                    tally[f"{finding.kind} false"] += 1
                    if show:
                        _tell("false", truth, finding.kind, finding.step_first, finding.step_last)
    for confidence, tally in totals.items():
        _print(confidence, tally)


def _tell(
    what: str, truth: Mapping[str, Any], kind: str, first: int | None, last: int | None
) -> None:
    print(f"  {what:7} {truth['confidence']:4} {truth['case']}: {kind} {first}-{last}")


def _print(confidence: str, tally: Counter[str]) -> None:
    expected = tally["met"] + tally["missed"]
    said = tally["right"] + tally["false"]
    recall, precision = tally["met"] / max(expected, 1), tally["right"] / max(said, 1)
    print(f"{confidence}: recall {tally['met']}/{expected} = {recall:.3f}", end=", ")
    print(f"precision {tally['right']}/{said} = {precision:.3f}")
    kinds = sorted({key.rsplit(" ", 1)[0] for key in tally if " " in key})
    for kind in kinds:
        met, missed = tally[f"{kind} met"], tally[f"{kind} missed"]
        print(f"  {kind:24} met {met:3} of {met + missed:3}   false {tally[f'{kind} false']:3}")


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    score(names or ["megatron", "deepspeed_hf", "wandb_tb"], "--misses" in sys.argv)
