"""`loganalyze explain` says for every finding when it is made, and why it may be."""

from __future__ import annotations

import pytest

from loganalyze.config import kinds, load_folder
from loganalyze.explain import explain
from loganalyze.knowledge import tree_of

#: Thresholds that no single kind of finding owns: of checks, comparing, replay and baselines.
_ELSEWHERE = {"seed", "check", "compare", "replay", "baseline"}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_kind_has_a_rule_and_its_causes(kind: str, lang: str) -> None:
    """A threshold with its source, a sentence or the failure texts; and every cause of its tree."""
    rules, causes = explain(kinds()[kind].code, lang).split("\n\n", 1)[1].split("\n\n", 1)
    assert len([line for line in rules.split("\n") if line.startswith("  ")]) >= 1
    tree = tree_of(kind)
    assert tree is not None
    assert all(f"[{cause.id}," in causes for cause in tree.causes)


def test_every_threshold_of_a_detector_is_explained_with_a_kind() -> None:
    """A group of thresholds is a kind's own, or a kind says that it uses it."""
    groups = {group for part in load_folder("thresholds") for group in part}
    told = set(kinds()) | {group for kind in kinds().values() for group in kind.rules}
    assert groups - told == _ELSEWHERE
