"""The troubleshooting trees: complete, consistent, in both languages."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import pytest

from loganalyze.checks import CHECKS
from loganalyze.config import kinds, load_folder, metrics, strings
from loganalyze.explain import explain
from loganalyze.knowledge import (
    CauseRule,
    Symptom,
    calibrated,
    catalogue,
    gravity,
    mechanisms,
    seed_table,
    symptoms,
)
from loganalyze.report.wording import find

CAUSES = [
    pytest.param(symptom, cause, id=f"{symptom.name}-{cause.id}")
    for symptom in symptoms()
    for cause in symptom.causes
]
LANGUAGES = ("en", "zh")


def test_every_kind_has_exactly_one_tree() -> None:
    """Each finding kind is explained by one tree, and no tree names an unknown kind."""
    counted = Counter(kind for symptom in symptoms() for kind in symptom.kinds)
    assert set(counted) == set(kinds())
    assert set(counted.values()) == {1}


def test_trees_and_checks_name_the_same_set() -> None:
    """Every check that a tree uses exists, and every check is used by a tree."""
    used = {
        rule.check
        for symptom in symptoms()
        for cause in symptom.causes
        for rule in (*cause.confirm, *cause.exclude)
    }
    assert used == set(CHECKS)


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda symptom: symptom.name)
def test_cause_ids_are_unique_in_a_tree(symptom: Symptom) -> None:
    """No cause stands twice in a tree."""
    ids = [cause.id for cause in symptom.causes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("symptom", "cause"), CAUSES)
def test_cause_is_complete(symptom: Symptom, cause: CauseRule) -> None:
    """A cause has a prior, checks, a source, and title, remedy and advice in both languages."""
    assert 0 < cause.prior < 1
    assert cause.confirm
    assert cause.source
    for lang in LANGUAGES:
        assert cause.title[lang]
        assert cause.remedy[lang]
        assert all(cause.remedy[lang])
    assert len(cause.remedy["en"]) == len(cause.remedy["zh"])
    assert len(cause.log_next["en"]) == len(cause.log_next["zh"])
    assert all(re.search(r"[\u4e00-\u9fff]", text) for text in cause.remedy["zh"])


def test_catalogue_and_trees_name_the_same_causes() -> None:
    """Every cause of the catalogue grows in a tree; none stands twice; ids have one form."""
    used = {cause.id for symptom in symptoms() for cause in symptom.causes}
    assert used == set(catalogue())
    counted = Counter(e["id"] for part in load_folder("tree") for e in part.get("cause", ()))
    assert [name for name, count in counted.items() if count > 1] == []
    assert all(re.fullmatch(r"C(\.[A-Z0-9_]+){2}|C\.[A-Z]+", name) for name in used)


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda symptom: symptom.name)
def test_weights_of_a_tree_make_sense(symptom: Symptom) -> None:
    """Priors add up to about one; what decides alone weighs; no check stands twice in a cause."""
    assert 0.6 <= sum(cause.prior for cause in symptom.causes) <= 1.7
    for cause in symptom.causes:
        names = [rule.check for rule in (*cause.confirm, *cause.exclude)]
        assert len(names) == len(set(names)), cause.id
        for rule in cause.confirm:
            assert 0 <= rule.loss <= rule.weight or rule.against is not None, cause.id
            assert rule.weight >= 1.5 or not rule.decisive, (cause.id, rule)


@pytest.mark.parametrize("symptom", symptoms(), ids=lambda symptom: symptom.name)
def test_every_tree_asks_what_a_log_can_answer(symptom: Symptom) -> None:
    """At least half of a tree's causes have a check that a log can answer."""
    answerable = [
        any(CHECKS[rule.check].__qualname__.split(".")[0] != "needs" for rule in cause.confirm)
        for cause in symptom.causes
    ]
    assert sum(answerable) >= len(answerable) / 2


def test_evidence_and_missing_items_have_words() -> None:
    """Labels of the checks' evidence and what would have settled them are worded."""
    modules = {inspect.getmodule(check) for check in CHECKS.values()}
    labels: set[str] = set()
    for module in modules:
        assert module is not None
        text = inspect.getsource(module)
        labels |= set(re.findall(r'(?:seen|event_evidence)\(\s*"(\w+)"', text))
        labels |= set(re.findall(r'other_log="(\w+)"', text))
        for found in re.findall(r"(?:missing|needs)\(([^()]*)\)", text):
            labels |= set(re.findall(r'"([\w/]+)"', found))
    known = {*metrics(), *kinds(), *CHECKS, "B", "nat", "step", "s", "share"}
    assert {label for label in labels - known if find(label) is None} == set()


@pytest.mark.parametrize("check", CHECKS)
def test_checks_have_words(check: str) -> None:
    """Every check is worded in both languages."""
    entry = strings()[check]
    assert entry["en"]
    assert re.search(r"[\u4e00-\u9fff]|loss scale", entry["zh"])


def test_strings_have_both_languages_with_the_same_placeholders() -> None:
    """Every key of strings/ has both languages with the same placeholders, and stands once."""
    for key, entry in strings().items():
        fields = [set(re.findall(r"\{(\w+)\}", entry[lang])) for lang in LANGUAGES]
        assert fields[0] == fields[1], key
    counted = Counter(key for part in load_folder("strings") for key in part)
    assert [key for key, count in counted.items() if count > 1] == []


def test_seed_documents_are_covered() -> None:
    """The seeds' tables are in the trees: slow steps, the quick table, the norm table."""
    entries = {entry for entry, _, _ in seed_table()}
    for number in range(1, 6):
        assert any(f"throughput tree {number}" in entry for entry in entries)
    for number in range(1, 7):
        assert any(entry.startswith(f"B §7.{number}:") for entry in entries)
    assert sum(entry.startswith("A §2.2:") for entry in entries) >= 9
    assert sum(entry.startswith("A §1.2:") for entry in entries) >= 9


def test_mechanisms_name_known_kinds() -> None:
    """What may lead to what is said of known kinds only."""
    named = {kind for m in mechanisms() for kind in m.first | m.then} | set(gravity())
    assert named <= set(kinds())


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", kinds())
def test_explain_prints_rules_and_tree(kind: str, lang: str) -> None:
    """explain gives code, causes and sources of every kind in both languages."""
    text = explain(kind, lang)
    assert kinds()[kind].code in text
    assert "1. " in text


def test_confidence_never_falls_and_proven_causes_lie_above_open_ones() -> None:
    """The calibration is monotone within [0, 1]; no open cause reaches a proven one."""
    shares = [n / 100 for n in range(101)]
    for proven in (True, False):
        told = [calibrated(share, proven=proven) for share in shares]
        assert told == sorted(told)
        assert 0 <= told[0] <= told[-1] < 1
    assert calibrated(1.0, proven=False) < calibrated(0.0, proven=True)
