"""What a finding means: its rules with their sources, and its troubleshooting tree, as text."""

from __future__ import annotations

from collections.abc import Iterator

from loganalyze.config import Kind, kinds, load_folder, strings
from loganalyze.errors import UsageError
from loganalyze.knowledge import CauseRule, tree_of

_WORDS = {
    "rules": {"en": "Rules and thresholds", "zh": "规则与阈值"},
    "fixed": {"en": "fixed rule", "zh": "固定规则"},
    "causes": {"en": "Causes, likeliest first", "zh": "可能原因(按先验排序)"},
    "for": {"en": "for", "zh": "支持"},
    "against": {"en": "against", "zh": "排除"},
    "do": {"en": "do", "zh": "处理"},
    "source": {"en": "source", "zh": "来源"},
}


def explain(name: str, lang: str) -> str:
    """Rules, thresholds and tree of a code (LA102), a finding id (LA102-1) or a kind.

    Raises UsageError for a name that is none of these.
    """
    kind = _kind(name)
    title = kind.zh if lang == "zh" else kind.en
    lines = [f"{kind.code} {kind.name}: {title}", "", f"{_WORDS['rules'][lang]}:"]
    lines.extend(_rules(kind.name, lang))
    tree = tree_of(kind.name)
    if tree is not None:
        lines += ["", f"{_WORDS['causes'][lang]}:"]
        for number, cause in enumerate(tree.causes, 1):
            lines.extend(_cause(number, cause, lang))
    return "\n".join(lines)


def _kind(name: str) -> Kind:
    code = name.upper().split("-")[0]
    for kind in kinds().values():
        if kind.code == code or kind.name == name.lower():
            return kind
    raise UsageError(f"{name}: no such finding", hint="codes are in the README, e.g. LA102")


def _rules(kind: str, lang: str) -> Iterator[str]:
    for part in load_folder("thresholds"):
        for group, rules in part.items():
            for rule, entry in rules.items():
                fixed = group == "seed" and entry.get("kind") == kind
                if group != kind and not fixed:
                    continue
                mark = f" ({_WORDS['fixed'][lang]})" if fixed else ""
                limit = f"{entry['value']:g} {entry['unit']}"
                yield f"  {group}.{rule} = {limit}{mark}: {entry['source']}"


def _cause(number: int, cause: CauseRule, lang: str) -> Iterator[str]:
    yield f"  {number}. {cause.title[lang]}  [{cause.id}, prior {cause.prior:g}]"
    for key, rules in (("for", cause.confirm), ("against", cause.exclude)):
        if rules:
            names = "; ".join(_wording(rule.check, lang) for rule in rules)
            yield f"     {_WORDS[key][lang]}: {names}"
    for remedy in cause.remedy[lang]:
        yield f"     {_WORDS['do'][lang]}: {remedy}"
    yield f"     {_WORDS['source'][lang]}: {cause.source}"


def _wording(check: str, lang: str) -> str:
    entry = strings().get(check)
    return entry[lang] if entry else check
