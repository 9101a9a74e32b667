"""What `audit` tells of a run: remarks on its settings, the memory budget, the log's coverage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from loganalyze.budget import Budget, budget_of
from loganalyze.coverage import Coverage, coverage_of
from loganalyze.model import Finding, Report
from loganalyze.report.paper import inert
from loganalyze.report.wording import both, metric_label

_GIB = 1024.0**3


class Audit(Struct, frozen=True, kw_only=True):
    """One run's audit. budget: None where the configuration does not tell the model's size."""

    run: str
    remarks: tuple[Finding, ...]
    budget: Budget | None
    coverage: Coverage


def audits_of(report: Report) -> tuple[Audit, ...]:
    """The audit of every run of a report."""
    return tuple(
        Audit(
            run=diagnosis.run.meta.id,
            remarks=tuple(f for f in diagnosis.findings if f.kind == "config_audit"),
            budget=budget_of(diagnosis.run),
            coverage=coverage_of(diagnosis.run),
        )
        for diagnosis in report.diagnoses
    )


def as_text(audit: Audit, lang: str) -> str:
    """The audit as lines of one language; what came from a log can't drive a terminal."""
    lines = [f"{_say('audit_run', lang)}: {audit.run}", "", f"{_say('audit_settings', lang)}:"]
    lines += _remarks(audit, lang) or [f"  {_say('audit_no_remarks', lang)}"]
    lines += ["", f"{_say('audit_budget', lang)}:", *_budget(audit.budget, lang)]
    lines += ["", f"{_say('audit_coverage', lang)}:", *_levels(audit.coverage, lang)]
    lines += ["", f"{_say('audit_black_box', lang)}:", *_black_box(audit.coverage, lang)]
    lines += ["", _say("audit_snippet", lang, trainer=audit.coverage.trainer) + ":"]
    lines += [f"  {line}" for line in audit.coverage.snippet.splitlines()]
    return "\n".join(inert(line) for line in lines)


def _say(key: str, lang: str, **params: str) -> str:
    return both(key, **params).of(lang)


def _remarks(audit: Audit, lang: str) -> list[str]:
    """Each remark with what was printed, what is usual, and where that comes from."""
    found = []
    for item in audit.remarks:
        told = "; ".join(
            f"{both(e.label).of(lang)}: {e.value}" + (f" ({e.expected})" if e.expected else "")
            for e in item.evidence
        )
        why = f" - {item.threshold.source}" if item.threshold is not None else ""
        found.append(f"  [{item.severity}] {item.id} {told}{why}")
    return found


def _budget(budget: Budget | None, lang: str) -> Iterator[str]:
    if budget is None:
        yield f"  {_say('audit_no_budget', lang)}"
        return
    size = budget.parameters
    count = f"{size / 1e9:.2f}e9" if size >= 1e8 else f"{size:.3g}"
    yield f"  {_say('budget_model', lang)}: {count}"
    for name, size in budget.parts.items():
        yield f"  {_say(f'budget_{name}', lang)}: {size / _GIB:.2f} GiB"
    yield f"  {_say('budget_total', lang)}: {budget.total / _GIB:.2f} GiB"
    for metric, size in budget.measured.items():
        yield f"  {metric_label(metric).of(lang)}: {size / _GIB:.2f} GiB"
    if budget.assumed:
        yield f"  {_say('budget_assumed', lang)}: {', '.join(budget.assumed)}"


def _levels(coverage: Coverage, lang: str) -> Iterator[str]:
    for level in coverage.levels:
        mark = "+" if level.present else "-"
        yield f"  {mark} {level.name} {level.title[lang]}: {level.answers[lang]}"
        if level.present:
            yield f"      {_say('audit_present', lang)}: {_names(level.present, lang)}"
        if level.missing:
            names = _names(level.missing, lang)
            yield f"      {_say('audit_missing', lang)}: {names} ({level.every[lang]})"


def _names(metrics: tuple[str, ...], lang: str) -> str:
    return ", ".join(metric_label(name).of(lang) for name in metrics)


def _black_box(coverage: Coverage, lang: str) -> Iterator[str]:
    for item in coverage.black_box:
        yield f"  {'+' if item.held else '-'} {item.title[lang]}"


def as_json(audit: Audit) -> dict[str, Any]:
    """The audit as plain data; bytes, not gibibytes."""
    budget = audit.budget
    return {
        "schema": "loganalyze.audit/1",
        "run": audit.run,
        "settings": [
            {"id": f.id, "severity": f.severity, **dict(f.statistics)} for f in audit.remarks
        ],
        "budget": None if budget is None else {
            "parameters": budget.parameters, "parts_bytes": dict(budget.parts),
            "total_bytes": budget.total, "measured_bytes": dict(budget.measured),
            "assumed": list(budget.assumed),
        },
        "levels": [
            {"level": v.name, "present": list(v.present), "missing": list(v.missing)}
            for v in audit.coverage.levels
        ],
        "black_box": {item.name: item.held for item in audit.coverage.black_box},
        "trainer": audit.coverage.trainer,
        "snippet": audit.coverage.snippet,
    }  # fmt: skip
