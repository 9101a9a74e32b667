"""Re-reads every line that a report cites: same file, same place, and the number found again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, Literal

from loganalyze_parsers.blocks import open_bytes
from msgspec import Struct

from loganalyze.config import load_data
from loganalyze.digest import digest_of
from loganalyze.errors import UnreadableInput
from loganalyze.verify_numbers import holds

SCHEMA = "loganalyze.report/1"
Outcome = Literal["found", "worked_out", "unchecked"]
_CHUNK = 1 << 20


class Citation(Struct, frozen=True, kw_only=True):
    """One observation of a report and the place it cites. owner: the finding or check."""

    owner: str
    label: str
    value: float | str | None
    unit: str
    path: str
    line: int
    offset: int
    length: int


class Remark(Struct, frozen=True, kw_only=True):
    """What did not hold (or a note): a key of strings/verify.toml with its facts."""

    key: str
    path: str
    line: int | None = None
    facts: Mapping[str, str | int | float | None]


class Verified(Struct, frozen=True, kw_only=True):
    """found + worked_out + unchecked + failures about lines == citations."""

    inputs: int
    citations: int
    found: int
    worked_out: int  # the place is right, the value was worked out from several records
    unchecked: int  # rows of databases and Parquet files: they have no bytes of their own
    failures: tuple[Remark, ...]
    notes: tuple[Remark, ...]


def verify(report: Path, root: Path | None = None) -> Verified:
    """Check a report's inputs and citations. Relative paths count from `root`, if given, else
    from the working folder, else from the report's. Raises UnreadableInput for no such report.
    """
    document = _load(report)
    try:
        inputs = {entry["path"]: entry for entry in document["inputs"]}
        cited = list(citations(document))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableInput(
            f"{report}: not a whole report ({error!r})", hint="run `loganalyze diagnose` again"
        ) from error
    folders = (root,) if root else (Path(), report.parent)
    failures: list[Remark] = []
    notes: list[Remark] = []
    counts: Counter[str] = Counter()
    for path in sorted({*inputs, *(c.path for c in cited)}):
        entry = inputs.get(path, {})
        place = _place(path, folders)
        told = _same(place, path, entry)
        if told is not None:
            (notes if told.key == "verify_grown" else failures).append(told)
        mine = [c for c in cited if c.path == path]
        for outcome in _outcomes(place, mine, str(entry.get("format", ""))):
            if isinstance(outcome, Remark):
                failures.append(outcome)
            else:
                counts[outcome] += 1
    return Verified(
        inputs=len(inputs), citations=len(cited), found=counts["found"],
        worked_out=counts["worked_out"], unchecked=counts["unchecked"],
        failures=tuple(failures), notes=tuple(notes),
    )  # fmt: skip


def _load(report: Path) -> Mapping[str, Any]:
    hint = "`loganalyze diagnose PATH` writes <run>.json beside the page"
    try:
        document = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{report}: cannot be read ({error})", hint=hint) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or schema != SCHEMA:
        raise UnreadableInput(f"{report}: not a report of schema {SCHEMA}", hint=hint)
    return document


def citations(document: Mapping[str, Any]) -> Iterator[Citation]:
    """Every observation with a place: those of the findings, then those of the causes' checks.

    A check that several causes share is taken once.
    """
    seen: set[Citation] = set()
    for run in document["runs"]:
        owned = [(f["id"], f["evidence"]) for f in run["findings"]]
        causes = [cause for incident in run["incidents"] for cause in incident["causes"]]
        owned += [(k["check"], k["evidence"]) for cause in causes for k in cause["checks"]]
        for owner, evidence in owned:
            for entry in evidence:
                if entry["path"] is not None:
                    citation = _citation(owner, entry)
                    if citation not in seen:
                        seen.add(citation)
                        yield citation


def _citation(owner: str, entry: Mapping[str, Any]) -> Citation:
    value = entry["value"]
    return Citation(
        owner=str(owner), label=str(entry["label"]), unit=str(entry["unit"]),
        value=value if value is None or isinstance(value, str) else float(value),
        path=str(entry["path"]), line=int(entry["line"]), offset=int(entry["offset"]),
        length=int(entry["length"]),
    )  # fmt: skip


def _place(path: str, folders: Sequence[Path]) -> Path | None:
    """The input's file today; None where there is none."""
    for folder in folders:
        try:
            if (folder / path).is_file():
                return folder / path
        except (OSError, ValueError):
            continue
    return None


def _same(place: Path | None, path: str, entry: Mapping[str, Any]) -> Remark | None:
    """Whether the input is missing, has grown (its beginning unchanged) or has changed."""
    if place is None:
        return Remark(key="verify_missing", path=path, facts={})
    if not entry:
        return Remark(key="verify_unlisted", path=path, facts={})
    size = place.stat().st_size
    if entry["sha256"] == _digest(place, size):
        return None
    was = int(entry["bytes"])
    facts = {"was": was, "now": size}
    same = size > was and entry["sha256"] == _digest(place, was)
    return Remark(key="verify_grown" if same else "verify_changed", path=path, facts=facts)


def _digest(place: Path, size: int) -> str:
    """Hash of the first `size` bytes; empty where they cannot be read."""
    try:
        return digest_of(place, size).hexdigest()
    except OSError:
        return ""



def _outcomes(
    place: Path | None, cited: Sequence[Citation], format_: str
) -> Iterator[Outcome | Remark]:
    """What became of each citation of one input, in one pass over its decompressed bytes."""
    if place is None:
        yield from (_failure("verify_line_gone", c) for c in cited)
        return
    todo = sorted((c for c in cited if c.length > 0), key=lambda c: (c.offset, c.line))
    for _ in range(len(cited) - len(todo)):
        yield "unchecked"
    done = 0
    try:
        with open_bytes(place) as stream:
            cursor = _Cursor(stream)
            for citation in todo:
                line, data = cursor.look(citation.offset, _reach(citation, format_))
                yield _judge(citation, line, data, format_)
                done += 1
    except (OSError, EOFError) as error:
        yield from (_failure("verify_unreadable", c, error=str(error)) for c in todo[done:])


def _reach(citation: Citation, format_: str) -> int:
    """Bytes to look at, from the citation's offset."""
    rules = load_data("verify.toml")
    block = int(rules["block"]["bytes"]) if _listed(citation.label, rules["block"]["labels"]) else 0
    return citation.length + max(block, int(rules["reach"].get(format_, 0)))


def _listed(label: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def _judge(citation: Citation, line: int, data: bytes, format_: str) -> Outcome | Remark:
    rules = load_data("verify.toml")
    binary = format_ in rules["binary"]
    if len(data) < citation.length:
        return _failure("verify_past_end", citation)
    if not binary and line != citation.line:
        return _failure("verify_other_line", citation, now=line)
    if holds(data, citation.value, binary=binary):
        return "found"
    words = isinstance(citation.value, str)  # a parser's own words for a binary record
    elsewhere = format_ in rules["joined"]["formats"] or (binary and words)
    if elsewhere or _listed(citation.label, rules["worked_out"]):
        return "worked_out"
    return _failure("verify_no_number", citation)


def _failure(key: str, citation: Citation, **facts: str | int) -> Remark:
    known = {"owner": citation.owner, "label": citation.label, "value": citation.value}
    return Remark(key=key, path=citation.path, line=citation.line, facts={**known, **facts})


class _Cursor:
    """Walks a stream forward; knows the number of the line at its place."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._rest = b""
        self._at = 0
        self._line = 1

    def look(self, offset: int, length: int) -> tuple[int, bytes]:
        """The line number at `offset` and up to `length` bytes from there; offsets never fall."""
        while self._at < offset:
            if not self._rest:
                self._rest = self._stream.read(_CHUNK)
            if not self._rest:
                return self._line, b""
            passed = self._rest[: offset - self._at]
            self._line += passed.count(b"\n")
            self._at += len(passed)
            self._rest = self._rest[len(passed) :]
        parts = [self._rest]
        have = len(self._rest)
        while have < length and (data := self._stream.read(_CHUNK)):
            parts.append(data)
            have += len(data)
        self._rest = b"".join(parts)
        return self._line, self._rest[:length]
