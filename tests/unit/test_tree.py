"""The troubleshooting trees: complete, consistent, in both languages."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from loganalyze.checks import CHECKS
from loganalyze.config import kinds, load_folder, strings
from loganalyze.explain import explain
from loganalyze.knowledge import CauseRule, Symptom, gravity, mechanisms, seed_table, symptoms

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
