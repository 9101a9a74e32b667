"""The troubleshooting trees of tree/*.toml as frozen values.

A file with a `symptom` is a tree: its branches name a cause, the checks for and against it, and the
seeds' entries that it holds. The files `causes_*.toml` say once what each cause is, what to do
about it, what to log if the evidence is missing, and where that comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from loganalyze.config import load_data, load_folder


class Rule(Struct, frozen=True, kw_only=True):
    """A check as a cause uses it. weight: log-odds it adds when supported.

    against: log-odds it takes off when ruled out; half the weight if not said (what was looked for
    and not found tells less than what was found). decisive: if supported, the cause may be called
    near certain. A weight of 0 only informs. needed: without it the cause cannot be, so it is
    ruled out with the check.
    """

    check: str
    weight: float = 1.0
    against: float | None = None
    decisive: bool = False
    needed: bool = False

    @property
    def loss(self) -> float:
        """Log-odds taken off when the check is ruled out."""
        return 0.5 * self.weight if self.against is None else self.against


class CauseRule(Struct, frozen=True, kw_only=True):
    """One possible cause of a symptom. seeds: entries of the seed documents that name it."""

    id: str
    prior: float
    confirm: tuple[Rule, ...]
    exclude: tuple[Rule, ...]
    title: Mapping[str, str]
    remedy: Mapping[str, tuple[str, ...]]
    log_next: Mapping[str, tuple[str, ...]]
    source: str
    seeds: tuple[str, ...]


class Symptom(Struct, frozen=True, kw_only=True):
    """A tree: the finding kinds it explains, and their causes in the order of their priors."""

    name: str
    kinds: tuple[str, ...]
    title: Mapping[str, str]
    causes: tuple[CauseRule, ...]


class Mechanism(Struct, frozen=True, kw_only=True):
    """One thing leads to another: kinds, and after how many log intervals at the latest."""

    first: frozenset[str]
    then: frozenset[str]
    lag: int


@cache
def catalogue() -> Mapping[str, Mapping[str, Any]]:
    """What is said of every cause, by its id."""
    return {entry["id"]: entry for part in load_folder("tree") for entry in part.get("cause", ())}


@cache
def symptoms() -> tuple[Symptom, ...]:
    """All trees, by file name."""
    return tuple(_symptom(entry) for entry in load_folder("tree") if "symptom" in entry)


@cache
def tree_of(kind: str) -> Symptom | None:
    """The tree that explains a finding kind; None if there is none."""
    return next((symptom for symptom in symptoms() if kind in symptom.kinds), None)


@cache
def mechanisms() -> tuple[Mechanism, ...]:
    """What may lead to what; the order in which kinds move is the order of the file."""
    return tuple(
        Mechanism(first=frozenset(e["first"]), then=frozenset(e["then"]), lag=e["lag"])
        for e in load_data("mechanisms.toml")["mechanism"]
    )


@cache
def gravity() -> tuple[str, ...]:
    """Finding kinds from the one that names a story to the one that only accompanies it."""
    return tuple(load_data("mechanisms.toml")["gravity"])


@cache
def calibration() -> Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Share of odds -> how often such a first cause was right, by class: `proven` and `open`."""
    data = load_data("calibration.toml")
    return {name: (tuple(data[name]["share"]), tuple(data[name]["right"]))
            for name in ("proven", "open")}  # fmt: skip


def calibrated(share: float, *, proven: bool) -> float:
    """The confidence of a cause by its share of odds; linear between the knots.

    proven: a decisive check supports it. Proven causes lie above all open ones.

    >>> calibrated(0.0, proven=False)
    0.0
    """
    places, values = calibration()["proven" if proven else "open"]
    at = next((k for k in range(1, len(places) - 1) if share < places[k]), len(places) - 1)
    low, high = places[at - 1], places[at]
    part = min(max((share - low) / (high - low), 0.0), 1.0)
    return values[at - 1] + part * (values[at] - values[at - 1])


def seed_table() -> Iterable[tuple[str, str, str]]:
    """Seed entry, symptom, cause id: a row for every entry that a cause cites, sorted."""
    return sorted(
        (seed, symptom.name, cause.id)
        for symptom in symptoms()
        for cause in symptom.causes
        for seed in cause.seeds
    )


def _symptom(entry: Mapping[str, Any]) -> Symptom:
    return Symptom(
        name=entry["symptom"],
        kinds=tuple(entry["kinds"]),
        title=entry["title"],
        causes=tuple(_cause(branch) for branch in entry["branch"]),
    )


def _cause(branch: Mapping[str, Any]) -> CauseRule:
    said = catalogue()[branch["cause"]]
    return CauseRule(
        id=branch["cause"],
        prior=branch["prior"],
        confirm=tuple(Rule(**rule) for rule in branch["confirm"]),
        exclude=tuple(Rule(**rule) for rule in branch.get("exclude", ())),
        title=said["title"],
        remedy=_lists(said["remedy"]),
        log_next=_lists(said["log_next"]),
        source=said["source"],
        seeds=tuple(branch.get("seeds", ())),
    )


def _lists(entry: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    return {lang: tuple(texts) for lang, texts in entry.items()}
