"""Wording: complete in both languages, equal placeholders, no key without words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

from loganalyze import config
from loganalyze.model import EVENT_KINDS
from loganalyze.report.wording import Both, both, cause_text, fill, metric_label, name_of

STRINGS = sorted(config.strings().items())
_PLACE = re.compile(r"\{(\w+)\}")


def _files(folder: Traversable) -> Iterator[Traversable]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files(item)
        elif item.name.endswith((".py", ".html", ".js")):
            yield item


def _used() -> set[str]:
    """Whole keys that the report's code and templates name; unfinished ones end in _."""
    texts = [item.read_text("utf-8") for item in _files(files("loganalyze.report"))]
    return {key for text in texts for key in re.findall(r"\bui_[A-Za-z0-9_]+", text)}


@pytest.mark.parametrize(("key", "entry"), STRINGS, ids=[key for key, _ in STRINGS])
def test_every_string_is_in_both_languages(key: str, entry: dict[str, str]) -> None:
    """English and Chinese are there, not empty, with the same placeholders."""
    assert set(entry) >= {"en", "zh"}
    assert entry["en"].strip()
    assert entry["zh"].strip()
    assert sorted(set(_PLACE.findall(entry["en"]))) == sorted(set(_PLACE.findall(entry["zh"])))


def test_every_key_in_use_has_words() -> None:
    """Each key that the report names is in strings/, those built from parts by their beginning."""
    known = set(config.strings())
    missing = {
        key for key in _used()
        if key not in known and not (key.endswith("_") and any(k.startswith(key) for k in known))
    }  # fmt: skip
    assert missing == set()


def test_no_string_of_the_report_is_unused() -> None:
    """Each ui_ key is named in code or built from a beginning that is."""
    used = _used()
    beginnings = tuple(key for key in used if key.endswith("_"))
    unused = {
        key for key in config.strings()
        if key.startswith("ui_") and key not in used and not key.startswith(beginnings)
    }  # fmt: skip
    assert unused - {f"ui_verdict_line_{v}_one" for v in ("clean", "unreadable")} == set()


def test_every_key_of_the_scripts_is_there() -> None:
    """say("...") in the scripts and js_ in strings/ name the same keys."""
    scripts = files("loganalyze.report").joinpath("assets", "js")
    text = "\n".join(item.read_text("utf-8") for item in scripts.iterdir())
    said = set(re.findall(r'say\("(\w+)"', text)) | {"low", "mid", "high", "copied", "copy_failed"}
    assert {f"js_{key}" for key in said} == {k for k in config.strings() if k.startswith("js_")}


@pytest.mark.parametrize("kind", sorted(EVENT_KINDS))
def test_every_event_kind_has_words(kind: str) -> None:
    """No event is shown by its bare key."""
    assert f"ui_event_{kind}" in config.strings()


def test_metrics_and_kinds_are_named_in_both_languages() -> None:
    """Labels of all canonical metrics and kinds are there."""
    for entry in (*config.metrics().values(), *config.kinds().values()):
        assert entry.en.strip()
        assert entry.zh.strip()


def test_placeholders_are_filled_once() -> None:
    """A value that looks like a placeholder is not read again, and unknown ones stay."""
    assert fill("{a} and {b}", "en", {"a": "{b}", "b": Both("x", "y")}) == "{b} and x"
    assert fill("{a} {zz}", "zh", {"a": Both("x", "y")}) == "y {zz}"


def test_missing_wording_falls_back_to_the_key() -> None:
    """A key that nobody wrote words for is readable in both languages."""
    assert both("never_heard_of") == Both("never heard of", "never heard of")
    assert cause_text("loss_spike", "never_heard_of").title.en == "never heard of"


def test_names_of_what_is_missing() -> None:
    """Alternatives, events, families and raw numbers are named."""
    assert name_of("loss|val_loss").en == "Training loss or Validation loss"
    assert name_of("event:oom").zh == "显存溢出"
    assert metric_label("aux_loss/router") == Both("Auxiliary loss: router", "辅助损失：router")
    assert metric_label("raw/my key") == Both("my key", "my key")
