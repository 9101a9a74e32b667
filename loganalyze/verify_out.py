"""What `verify` prints: a line per failure and a summary, or one JSON document."""

from __future__ import annotations

import json

from loganalyze.config import strings
from loganalyze.plain_data import as_dict
from loganalyze.verify import Remark, Verified

SCHEMA = "loganalyze.verify/1"


def verified_text(result: Verified, lang: str) -> str:
    """One line per failure and note, the counts, and the verdict last."""
    lines = [_line(remark, lang) for remark in (*result.failures, *result.notes)]
    failed = result.citations - result.found - result.worked_out - result.unchecked
    if not result.citations:
        lines.append(_say("verify_empty", lang))
    lines.append(
        _say(
            "verify_counts", lang, citations=result.citations, inputs=result.inputs,
            found=result.found, worked_out=result.worked_out, unchecked=result.unchecked,
            failed=failed,
        )
    )  # fmt: skip
    bad = len(result.failures)
    lines.append(_say("verify_bad" if bad else "verify_good", lang, count=bad))
    return "\n".join(lines)


def verified_json(result: Verified) -> str:
    """The document of schema loganalyze.verify/1."""
    document = {"schema": SCHEMA, "ok": not result.failures, **as_dict(result)}
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True)


def _line(remark: Remark, lang: str) -> str:
    place = remark.path if remark.line is None else f"{remark.path}:{remark.line}"
    facts = {name: _shown(value) for name, value in remark.facts.items()}
    return _say(remark.key, lang, place=place, path=remark.path, **facts)


def _shown(value: str | float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _say(key: str, lang: str, **facts: str | int) -> str:
    return strings()[key][lang].format(**facts)
