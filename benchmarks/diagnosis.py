"""How often a diagnosis is right: scores `loganalyze diagnose` on the fault lab's runs.

    python -m benchmarks.faultlab all --runs 300        # makes the corpus, seeds from 5000 on
    python benchmarks/diagnosis.py [DIR] [--first-seed 5000] [--markdown] [--wrong] [--readme]

Each run's label says which kinds of finding see its fault, and which causes are right. A fault is
detected if a warning or worse of such a kind reaches into the time from its onset on; the onset
error is that finding's first step minus the label's. Its cause is judged in the incident that
holds this finding: `first` and `in three` count the open causes in the report's order. Runs whose
log can't carry the evidence are counted apart. Confidence is calibrated over the first causes of
all incidents of severity warning or worse, those of healthy runs, where none is right, included;
a first process that a failing node ended is an incident of its own, whose cause is known as well.
What counts as right is read from the lab's catalogue as it is now: a label repeats it.
Seeds below 5000 are for tuning; the published figures are of seeds from 5000 on. --readme puts them
into README.md and README.zh.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers")]

from benchmarks.faultlab.catalogue import BY_NAME  # noqa: E402
from benchmarks.faultlab.driver import truth  # noqa: E402
from loganalyze.errors import LoganalyzeError  # noqa: E402
from loganalyze.model import Cause, Diagnosis, Finding, Incident, severity_rank  # noqa: E402
from loganalyze.pipeline import Judging, report_on  # noqa: E402

FIRST_SEED = 5000
SLACK = 10  # log lines before the onset that a finding may begin
SURE = 0.9
WARNING = severity_rank("warning")


@dataclass
class Judged:
    """What the report said of one run, beside its label."""

    name: str
    fault: str
    trainer: str
    healthy: bool
    visible: bool
    detected: bool = False
    onset_error: int | None = None
    first: bool = False
    in_three: bool = False
    said: tuple[str, ...] = ()  # first causes in the matching incident
    false_findings: tuple[str, ...] = ()  # of a healthy run
    confidences: list[tuple[float, bool]] = field(default_factory=list)
    failed: str = ""
    why_not: str = ""  # what the log lacks, where the fault is not visible in it
    seed: int = 0
    cpu_s: float = 0.0  # processor time that making it took


def judge_run(folder: Path) -> Judged:
    """Diagnose one run of the lab and hold the answer against its label."""
    label = label_of(folder)
    judged = Judged(
        name=folder.name, fault=label["fault"], trainer=label["recipe"]["trainer"],
        healthy=label["healthy"], visible=label["visible"], why_not=label.get("why_not", ""),
        seed=label["recipe"]["seed"], cpu_s=label.get("cpu_seconds", 0.0),
    )  # fmt: skip
    try:
        report = report_on([str(folder / "log")], Judging())
    except LoganalyzeError as error:
        judged.failed = str(error)
        return judged
    for diagnosis in report.diagnoses:
        _hold(judged, label, diagnosis)
    return judged


def label_of(folder: Path) -> dict[str, Any]:
    """A run's label; kinds, causes and evidence as the catalogue says them today."""
    label: dict[str, Any] = json.loads((folder / "label.json").read_text(encoding="utf-8"))
    fault = BY_NAME.get(label["fault"])
    return label | truth(fault, label["recipe"]["trainer"]) if fault else label


def _hold(judged: Judged, label: dict[str, Any], diagnosis: Diagnosis) -> None:
    loud = [f for f in diagnosis.findings if severity_rank(f.severity) >= WARNING]
    _calibrate(judged, label, diagnosis)
    if judged.healthy:
        judged.false_findings += tuple(f"{f.kind}({f.metric})" for f in loud)
        return
    seen = [f for f in loud if sees(f, label)]
    if not seen:
        return
    best = min(seen, key=lambda f: abs(_first(f, label) - label["onset"]))
    error = _first(best, label) - label["onset"]
    if judged.onset_error is None or abs(error) < abs(judged.onset_error):
        judged.onset_error = error
    judged.detected = True
    told = [i for i in diagnosis.incidents if {f.id for f in seen} & set(i.findings)]
    told.sort(key=lambda i: -severity_rank(i.severity))
    if told:
        _causes(judged, label, told[0])


def sees(finding: Finding, label: dict[str, Any]) -> bool:
    """Whether a finding is of the fault's kinds, and not over before the fault began."""
    if finding.kind not in label["kinds"]:
        return False
    if finding.step_first is None or label["onset"] <= 1:
        return True
    slack = SLACK * label["interval"]
    last = finding.step_first if finding.step_last is None else finding.step_last
    # the step at which a run dies is never logged: its end stands at the line before
    return (
        last >= label["onset"] - label["interval"] and finding.step_first >= label["onset"] - slack
    )


def _first(finding: Finding, label: dict[str, Any]) -> int:
    return label["onset"] if finding.step_first is None else finding.step_first


def _open(incident: Incident) -> list[Cause]:
    return [cause for cause in incident.causes if cause.verdict != "ruled_out"]


def _causes(judged: Judged, label: dict[str, Any], incident: Incident) -> None:
    names = tuple(cause.id for cause in _open(incident)[:3])
    judged.said = names
    judged.first = judged.first or (bool(names[:1]) and names[0] in label["causes"])
    judged.in_three = judged.in_three or bool(set(names) & set(label["causes"]))


def _calibrate(judged: Judged, label: dict[str, Any], diagnosis: Diagnosis) -> None:
    for incident in diagnosis.incidents:
        if severity_rank(incident.severity) < WARNING:
            continue
        for cause in _open(incident)[:1]:
            right = cause.id in (*label["causes"], *label.get("also", ()))
            judged.confidences.append((cause.confidence, right))


def table(runs: Iterable[Judged], *, markdown: bool) -> str:
    """One row a fault kind, a sum below."""
    by_fault: dict[str, list[Judged]] = defaultdict(list)
    for run in runs:
        if not run.healthy:
            by_fault[run.fault].append(run)
    head = ("fault", "runs", "not in log", "detected", "onset error", "cause first", "in three")
    rows = [head, *(_row(name, part) for name, part in sorted(by_fault.items()))]
    rows.append(_row("all", [run for part in by_fault.values() for run in part]))
    return _drawn(rows, markdown)


def _row(name: str, runs: list[Judged]) -> tuple[str, ...]:
    able = [run for run in runs if run.visible]
    errors = sorted(abs(r.onset_error) for r in able if r.onset_error is not None)
    middle = str(errors[len(errors) // 2]) if errors else "-"
    counts = (sum(getattr(r, what) for r in able) for what in ("detected", "first", "in_three"))
    detected, first, three = (f"{count}/{len(able)}" for count in counts)
    return (name, str(len(runs)), str(len(runs) - len(able)), detected, middle, first, three)


def _drawn(rows: list[tuple[str, ...]], markdown: bool) -> str:
    if markdown:
        rule = ("---",) * len(rows[0])
        return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def summary(runs: list[Judged]) -> str:
    """Calibration, and what healthy runs were accused of."""
    answers = [pair for run in runs for pair in run.confidences]
    lines = ["", "confidence of the first cause   answers   right"]
    for low, high in ((SURE, 1.01), (0.65, SURE), (0.3, 0.65), (0.0, 0.3)):
        part = [right for confidence, right in answers if low <= confidence < high]
        share = f"{sum(part) / len(part):.0%}" if part else "-"
        lines.append(
            f"  {low:.2f} to {min(high, 1.0):.2f}                 {len(part):7d}   {share:>5s}"
        )
    healthy = [run for run in runs if run.healthy]
    accused = [run for run in healthy if run.false_findings]
    lines += ["", f"healthy runs with a finding of severity warning or worse: {len(accused)} "
              f"of {len(healthy)}"]  # fmt: skip
    said = Counter((run.fault, what) for run in accused for what in run.false_findings)
    lines += [f"  {fault}: {what} x{count}" for (fault, what), count in said.most_common()]
    apart = Counter((run.fault, run.why_not) for run in runs if not run.visible)
    lines += ["", f"runs whose log can't show the fault: {sum(apart.values())}"]
    lines += [f"  {fault}: {why} x{count}" for (fault, why), count in sorted(apart.items())]
    failed = [run for run in runs if run.failed]
    lines += [f"not readable: {run.name}: {run.failed}" for run in failed]
    return "\n".join(lines)


def wrong(runs: Iterable[Judged]) -> str:
    """One line for each run that was missed or given another cause."""
    return "\n".join(
        f"{run.name}: {'cause ' + ' '.join(run.said) if run.detected else 'not detected'}"
        for run in runs
        if not run.healthy and run.visible and not run.first
    )


_PAGES = {
    "README.md": (
        "{runs} runs with seeds {low} to {high}, none of which any threshold was tuned on, {minutes:.0f} "
        "minutes of processor time in all. *Detected*: a warning of the right kind, from the onset on. "
        "*First*, *in three*: places of the right cause among the causes told. Of the {sure} answers "
        "given with confidence {least} or more {right} are right. {accused} of {healthy} healthy runs "
        "have a finding of severity warning or worse.",
        ("fault", "runs", "not in log", "detected", "onset error, steps", "cause first", "in three"),
    ),
    "README.zh.md": (
        "共 {runs} 次运行，种子 {low} 至 {high}，没有任何阈值是在这些种子上调的；生成共用处理器时间 {minutes:.0f} 分钟。"
        "“检出”：从故障开始起有一条种类正确的警告；“首位”“前三”：正确原因在所列原因中的位置。置信度不低于 {least} 的 "
        "{sure} 个回答中有 {right} 个正确。{healthy} 次健康运行中有 {accused} 次出现警告或更严重的发现。",
        ("故障", "次数", "日志中看不到", "检出", "起始误差（步）", "原因首位", "前三"),
    ),
}  # fmt: skip
_MEASURED = re.compile(r"(<!-- measured: diagnosis -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def publish(runs: list[Judged]) -> None:
    """Write the figures between the marks of both READMEs."""
    answers = [right for run in runs for sure, right in run.confidences if sure >= SURE]
    healthy = [run for run in runs if run.healthy]
    figures = {
        "runs": len(runs), "low": min(r.seed for r in runs), "high": max(r.seed for r in runs),
        "minutes": sum(r.cpu_s for r in runs) / 60, "sure": len(answers), "right": sum(answers),
        "least": SURE, "healthy": len(healthy),
        "accused": sum(bool(r.false_findings) for r in healthy),
    }  # fmt: skip
    body = table(runs, markdown=True).split("\n", 1)[1]
    for name, (text, head) in _PAGES.items():
        page = (ROOT / name).read_text(encoding="utf-8")
        made = f"{text.format(**figures)}\n\n| {' | '.join(head)} |\n{body}\n"
        page = _MEASURED.sub(lambda m, made=made: m[1] + made + m[3], page)  # type: ignore[misc]
        (ROOT / name).write_text(page, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    default = Path(tempfile.gettempdir()) / "faultlab"
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--last-seed", type=int, default=10**9)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="list the runs that were not right")
    parser.add_argument("--readme", action="store_true", help="put the figures into the READMEs")
    asked = parser.parse_args(argv)
    folders = sorted(path.parent for path in asked.folder.glob("*/label.json"))
    seeds = [int(folder.name.rsplit("-", 1)[1]) for folder in folders]
    wanted = [f for f, s in zip(folders, seeds, strict=True)
              if asked.first_seed <= s <= asked.last_seed]  # fmt: skip
    if not wanted:
        print(f"no labelled run with such a seed in {asked.folder}: make some with "
              "`python -m benchmarks.faultlab all`", file=sys.stderr)  # fmt: skip
        return 2
    runs = []
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        for number, judged in enumerate(pool.map(judge_run, wanted), 1):
            runs.append(judged)
            if sys.stderr.isatty():
                print(f"\r{number}/{len(wanted)}", end="", file=sys.stderr)
    print(table(runs, markdown=asked.markdown))
    print(summary(runs))
    if asked.wrong:
        print("\n" + wrong(runs))
    if asked.readme:
        publish(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
