"""What a finding means: its rules with their sources, and its troubleshooting tree, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loganalyze.config import Kind, kinds, load_folder, signatures, strings
from loganalyze.errors import UsageError
from loganalyze.knowledge import CauseRule, Rule, tree_of


def explain(name: str, lang: str) -> str:
    """Rules, thresholds and tree of a code (LA102), a finding id (LA102-1) or a kind.

    Raises UsageError for a name that is none of these.
    """
    kind = _kind(name)
    title = kind.zh if lang == "zh" else kind.en
    lines = [f"{kind.code} {kind.name}: {title}", ""]
    rules = [*_without_number(kind.name, lang), *_rules(kind, lang)]
    if rules:
        lines += [f"{_word('explain_rules', lang)}:", *rules]
    lines.extend(_texts(kind.name, lang))
    tree = tree_of(kind.name)
    if tree is not None:
        lines += ["", f"{_word('explain_causes', lang)}:"]
        for number, cause in enumerate(tree.causes, 1):
            lines.extend(_cause(number, cause, lang))
    return "\n".join(lines)


def _kind(name: str) -> Kind:
    code = name.upper().split("-")[0]
    for kind in kinds().values():
        if kind.code == code or kind.name == name.lower():
            return kind
    raise UsageError(f"{name}: no such finding", hint="codes are in the README, e.g. LA102")


def _without_number(kind: str, lang: str) -> Iterator[str]:
    """The rule of a kind that no threshold decides."""
    if f"explain_rule_{kind}" in strings():
        yield f"  {_word(f'explain_rule_{kind}', lang)}"


def _texts(kind: str, lang: str) -> Iterator[str]:
    """The failure texts that tell a kind: each signature with what it means and its source."""
    from loganalyze.detectors.life_events import FAILURES

    events = {event for event, told in FAILURES.items() if told == kind}
    if kind == "checkpoint_failed":
        events = {"checkpoint_failed", "disk_full"}
    own = [(name, s) for name, s in signatures().items() if s.kind in events]
    if own:
        yield f"{_word('explain_texts', lang)}:"
    for name, signature in own:
        meaning = signature.zh if lang == "zh" else signature.en
        yield f"  {name}: {meaning} ({signature.source})"


def _rules(kind: Kind, lang: str) -> Iterator[str]:
    for part in load_folder("thresholds"):
        for group, rules in part.items():
            for rule, entry in rules.items():
                fixed = group == "seed" and entry.get("kind") == kind.name
                if group != kind.name and group not in kind.rules and not fixed:
                    continue
                mark = f" ({_word('explain_fixed', lang)})" if fixed else ""
                limit = f"{entry['value']:g} {entry['unit']}"
                yield f"  {group}.{rule} = {limit}{mark}: {entry['source']}"


def _cause(number: int, cause: CauseRule, lang: str) -> Iterator[str]:
    yield f"  {number}. {cause.title[lang]}  [{cause.id}, prior {cause.prior:g}]"
    parts = [
        ("explain_for", _names(cause.confirm, lang)),
        ("explain_against", _names(cause.exclude, lang)),
        *(("explain_do", text) for text in cause.remedy[lang]),
        *(("explain_log", text) for text in cause.log_next[lang]),
        ("explain_source", cause.source),
    ]
    for key, text in parts:
        if text:
            yield f"     {_word(key, lang)}: {text}"


def _names(rules: Sequence[Rule], lang: str) -> str:
    """The checks that weigh, each by its wording; those that decide alone are marked."""
    telling = [rule for rule in rules if rule.weight]
    return "; ".join(_word(r.check, lang) + (" *" if r.decisive else "") for r in telling)


def _word(key: str, lang: str) -> str:
    entry = strings().get(key)
    return entry[lang] if entry else key
