"""Loads the knowledge files (TOML) that lie beside the code, and merges the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from loganalyze.errors import UsageError
from loganalyze.kept import kept
from loganalyze.model import Severity, Threshold

PROFILES = ("pretrain", "sft", "rl")


@cache
def load_data(name: str) -> Mapping[str, Any]:
    """A packaged TOML file by its path below the package, e.g. `metrics.toml`."""
    text = files("loganalyze").joinpath(name).read_bytes()
    tables: Mapping[str, Any] = kept(name, text, lambda: _parsed(text.decode("utf-8")))
    return tables


def _parsed(text: str) -> dict[str, Any]:
    """Raises ValueError where it is no TOML."""
    import tomllib  # packaged files were mostly parsed before

    return tomllib.loads(text)


@cache
def load_folder(name: str) -> tuple[Mapping[str, Any], ...]:
    """All packaged TOML files of a folder, in the order of their names."""
    folder = files("loganalyze").joinpath(name)
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".toml"))
    return tuple(load_data(f"{name}/{item}") for item in names)


def _merged(folder: str) -> Mapping[str, Any]:
    """All files of a folder as one; a table that stands in several files is their union."""
    merged: dict[str, dict[str, Any]] = {}
    for part in load_folder(folder):
        for key, table in part.items():
            merged.setdefault(key, {}).update(table)
    return merged


@cache
def strings() -> Mapping[str, Mapping[str, str]]:
    """Wording by key: {"en": ..., "zh": ...} with the same {placeholders} in both."""
    return _merged("strings")


class Metric(Struct, frozen=True, kw_only=True):
    """A canonical metric: unit, scope (global, per_gpu, ...), level L1-L7, panel, labels."""

    name: str
    unit: str
    scope: str
    better: str  # lower, higher, or "" where neither
    level: str
    panel: str
    en: str
    zh: str


@cache
def metrics() -> Mapping[str, Metric]:
    """Canonical metrics by name; names that end in /<name> stand for a family."""
    return {name: Metric(name=name, **entry) for name, entry in load_data("metrics.toml").items()}


class Kind(Struct, frozen=True, kw_only=True):
    """A finding kind: stable code, family, titles in both languages.

    rules: groups of thresholds that it uses beside those under its own name.
    """

    name: str
    code: str
    family: str
    en: str
    zh: str
    rules: Sequence[str] = ()


@cache
def kinds() -> Mapping[str, Kind]:
    """Finding kinds by name (DESIGN's vocabulary), with their stable codes."""
    return {name: Kind(name=name, **entry) for name, entry in load_data("kinds.toml").items()}


class Thresholds(Struct, frozen=True):
    """The thresholds in force: `<detector>.<rule>` to Threshold, after profile and user file."""

    entries: Mapping[str, Threshold]
    profile: str

    def __getitem__(self, name: str) -> Threshold:
        """The threshold with its unit and source; KeyError is a bug in the caller."""
        return self.entries[name]

    def value(self, name: str) -> float:
        """Only the number."""
        return self.entries[name].value


class Signature(Struct, frozen=True, kw_only=True):
    """A text of a failure, its meaning in both languages, and how to recognise it.

    kind: an event kind. role: root (may be the cause), consequence (something failed before it) or
    context (tells about a failure). literals: at least one stands on every line of it. pattern
    and details: regular expressions whose named groups become the event's detail. exclude: what
    a benign look-alike holds. Without a pattern it is named by a number of another signature.
    """

    name: str
    kind: str
    severity: Severity
    role: str
    en: str
    zh: str
    literals: tuple[str, ...] = ()
    pattern: str = ""
    details: tuple[str, ...] = ()
    exclude: str = ""
    source: str = ""


@cache
def signatures() -> Mapping[str, Signature]:
    """Failure texts by name, in the order in which they are tried."""
    lists = ("literals", "details")
    found = {}
    for name, entry in _merged("signatures").items():
        fields: dict[str, Any] = {
            key: tuple(value) if key in lists else value for key, value in entry.items()
        }
        found[name] = Signature(name=name, **fields)
    return found


def load_thresholds(
    profile: str = "pretrain", file: Path | None = None, settings: Iterable[str] = ()
) -> Thresholds:
    """The files of thresholds/, overlaid by the profile, the user's file and `key=value` settings.

    Raises UsageError naming file (and line, where it is a syntax error) or setting.
    """
    entries = dict(_packaged(profile))
    for name, value, origin in [*_from_file(file), *_from_settings(settings)]:
        if name not in entries:
            raise UsageError(
                f"{origin}: unknown threshold '{name}'", hint=_nearest_hint(name, entries)
            )
        old = entries[name]
        entries[name] = Threshold(name=name, value=value, unit=old.unit, source=origin)
    return Thresholds(entries=entries, profile=profile)


def _packaged(profile: str) -> Iterable[tuple[str, Threshold]]:
    # part by part: a group (`seed`) may stand in several files
    groups = [pair for part in load_folder("thresholds") for pair in part.items()]
    for group, rules in groups:
        for rule, entry in rules.items():
            value = entry.get("profile", {}).get(profile, entry["value"])
            name = f"{group}.{rule}"
            yield (
                name,
                Threshold(
                    name=name, value=float(value), unit=entry["unit"], source=entry["source"]
                ),
            )


def _from_file(file: Path | None) -> list[tuple[str, float, str]]:
    if file is None:
        return []
    try:
        text = file.read_text(encoding="utf-8")
        data = _parsed(text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from error
    return [
        (name, _number(value, f"{file}:{_line_of(text, name)}"), f"{file}:{_line_of(text, name)}")
        for name, value in _flatten(data)
    ]


def _flatten(data: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and "value" not in value:
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value["value"] if isinstance(value, Mapping) else value


def _line_of(text: str, name: str) -> int:
    """The line of a dotted key, as near as a text search can tell (1 if it cannot)."""
    key = name.rsplit(".", 1)[-1]
    group = name.rsplit(".", 1)[0]
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            inside = stripped.strip("[]").strip() in (group, name)
        if stripped.startswith(name) or (inside and stripped.startswith(key)):
            return number
    return 1


def _from_settings(settings: Iterable[str]) -> list[tuple[str, float, str]]:
    found = []
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise UsageError(f"--set {setting}: expected key=value")
        origin = f"--set {setting}"
        found.append((name.strip(), _number(text.strip(), origin), origin))
    return found


def _number(value: Any, origin: str) -> float:
    if isinstance(value, bool):
        raise UsageError(f"{origin}: expected a number, got {value}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{origin}: expected a number, got {value!r}") from None


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else "`loganalyze rules` lists them all"


def fail_rank(level: str) -> int:
    """Rank at which --fail-on fires; above every severity for `never`."""
    order: tuple[Severity | str, ...] = ("info", "warning", "critical", "never")
    return order.index(level)
