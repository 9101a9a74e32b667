"""Values of evidence in words: units, expectations, words for keys, ranges, wrapped lines."""

from __future__ import annotations

import pytest

from loganalyze.report.amounts import amount, expectation, span, word
from loganalyze.report.paper import Paper, display_width, wrapped


@pytest.mark.parametrize(
    ("value", "unit", "en", "zh"),
    [
        (2.0, "step", "2 steps", "2 步"),
        (1.0, "step", "1 step", "1 步"),
        (32_768.0, "token", "32,768 tokens", "32,768 个 token"),
        (2.5, "nat", "2.5", "2.5"),
        (0.25, "share", "25 %", "25 %"),
        (float("nan"), "", "NaN", "NaN"),
        ("yes", "", "yes", "是"),
        (None, "step", "–", "–"),
    ],
)
def test_amounts_have_units_in_words(
    value: float | str | None, unit: str, en: str, zh: str
) -> None:
    """Counted units are plural in English and have their own word in Chinese."""
    assert amount(value, unit) == (en, zh)


@pytest.mark.parametrize(
    ("text", "unit", "en"),
    [
        ("9.049e+08", "B", "862.98 MiB"),
        ("0.2545", "s", "254 ms"),
        ("> 0.3", "share", "> 30 %"),
        (">= 3", "step", "≥ 3 steps"),
        ("near the norm", "", "near the norm"),
    ],
)
def test_expectations_have_the_unit_of_the_value(text: str, unit: str, en: str) -> None:
    """A bare number that was expected is written as the value beside it is."""
    assert expectation(text, unit).en == en


def test_lists_of_keys_become_words() -> None:
    """Levels and metrics are named; a text that is no list of keys stays as it is."""
    assert word("L3,L4") == ("Layers, Samples", "层级、样本级")
    assert "loss" not in word("loss,grad_norm,step").zh
    assert word("") == ("–", "–")
    assert word("RuntimeError: it broke, badly").zh == "RuntimeError: it broke, badly"


def test_one_step_is_no_range() -> None:
    """One step is named in the singular; an unknown one not at all."""
    assert span(7, 7) == ("step 7", "第 7 步")
    assert span(7, 9) == ("steps 7–9", "第 7–9 步")
    assert span(None, None) == ("", "")


@pytest.mark.parametrize("width", range(8, 40))
def test_no_chinese_line_begins_with_a_closing_mark(width: int) -> None:
    """Marks that close stay with what they close, and opening ones with what follows."""
    text = "程序崩溃、显存溢出（OOM）、通信超时，训练 挂起：原因（把握 60 %）。"
    lines = list(wrapped(text, width))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert not [line for line in lines if line[:1] in "、，。：）" or line[-1:] in "（"]


def test_hanging_lines_keep_to_the_width() -> None:
    """The lines after the first are indented further and still no wider than asked for."""
    paper = Paper(lang="en", width=60, color=False)
    paper.line(2, "Checkpoint failed, Checkpoint never confirmed, Restart, Work lost, Hang " * 3)
    assert max(display_width(line) for line in paper.lines) <= 60
