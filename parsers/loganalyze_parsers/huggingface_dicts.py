"""Finds flat dictionaries in running text: Python's or JSON's, torn at either end, or glued.

    12/864 [00:43<1:05:18, 4.6s/it]{'loss': 0.5, 'grad_norm': nan, 'epoch': 0.2}{'loss': 0.4, ...
    {'loss': '0.9446', 'grad_norm': '1.425e+04', 'epoch': '0.27'}        (v5: quoted)
    {"loss": 2.31, "epoch": 0.12, "step": 500}                           (2020)
    'loss': -0.0, 'grad_norm': 0.0, 'epoch': 0.0}                        (torn)

Nothing is evaluated. Dictionaries inside lists or other dictionaries are left out, but for those
behind the first number of a row: their numbers are the row's, by dotted names.

>>> [dict(found.pairs) for found in find_dicts("x{'loss': 0.5, 'epoch': '1'}{'eval_loss': nan}")]
[{'loss': '0.5', 'epoch': "'1'"}, {'eval_loss': 'nan'}]
>>> find_dicts('"metrics": {"loss": 1.0, "epoch": 2}')
[]
>>> [dict(found.pairs) for found in find_dicts('{"step": 3, "optim": {"lr": 1e-4}, "loss": 2.5}')]
[{'step': '3', 'optim.lr': '1e-4', 'loss': '2.5'}]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from loganalyze import lazy
from loganalyze_parsers.huggingface_keys import number_of, plain_key

_PAIR = lazy.pattern(
    r"""(['"])([^'"{}\r\n]{1,120})\1\s*:\s*"""
    r"""("[^"\r\n]*"|'[^'\r\n]*'|\w{1,120}(?:\.\w{1,120}){0,9}\([^()]*\)|[^\s,'"{}\[\]()]+)"""
)
_OPEN = lazy.pattern(
    r"""\{\s*['"](?:loss|epoch|eps|eval_\w+|train_runtime|current_steps|accuracy|gradient_norm|"""
    r"""dataset_\w+)['"]\s*:[^{}\[\]]*$"""
)
_NEAR = 200  # characters around a dictionary that tell what it is part of
_COMMA = lazy.pattern(r"\s*,\s*")
_GLUED = lazy.pattern(r"""[^\s'"},]|,[^\s'"]""")  # the number goes on, as in 4,5e-05
#: Other makers put a word and their step before the dictionary.
_OTHER_MAKER = lazy.pattern(r"(?:perf|rollout|step|iteration)\s+\d+\s*:\s*$", re.IGNORECASE)
#: From one run of pairs to the next of the same row: into an inner dictionary, or out of one.
_INTO = lazy.pattern(
    r"""\s{0,9}(\}?)\s{0,9},\s{0,9}(['"])([^'"{}\r\n]{1,80})\2\s{0,9}:\s{0,9}\{\s{0,9}"""
)
_OUT = lazy.pattern(r"\s{0,9}\}\s{0,9},\s{0,9}")
_NESTED = lazy.pattern(r"""(?:['"]\s*:|\[|,)\s*$""")


class Found(Struct, frozen=True):
    """One dictionary: its pairs as printed (values unparsed), where it stands, if it is whole.

    inside: whether its last pair stands in an inner dictionary.
    """

    pairs: Mapping[str, str]
    start: int
    end: int
    whole: bool
    inside: bool = False


def is_open_dict(text: str) -> bool:
    """Whether the text ends inside a dictionary of the Trainer's."""
    return _OPEN.search(text) is not None


def is_twin(text: str, pairs: Mapping[str, str]) -> bool:
    """Whether a logger prints the row that the console prints, too (LLaMA-Factory's callback).

    >>> is_twin("[INFO|callbacks.py:1] >> {'loss': 1.5, 'epoch': 0.1}", {"loss": "1.5"})
    True
    """
    return "grad_norm" not in pairs and ">> {" in text


def same_row(twin: Mapping[str, str], row: Mapping[str, str]) -> bool:
    """Whether two prints are of one row: loss to 4 digits and epoch to 2 are equal."""
    for key, tolerance in (("loss", 1e-4), ("epoch", 1e-2)):
        one, two = number_of(twin.get(key)), number_of(row.get(key))
        if one is None or two is None or not abs(one - two) <= tolerance:
            return False
    return True


class Repeats:
    """Rows that several ranks printed word for word, without saying who they are."""

    def __init__(self) -> None:
        """No row yet."""
        self._last: Mapping[str, str] = {}
        self._rate_before: str | None = None  # of the last row with another learning rate

    def is_copy(self, pairs: Mapping[str, str]) -> bool:
        """Whether the row before said the same, in digits that two steps never share.

        They never share all digits of a gradient norm, unless it is 0 or NaN; without one, the
        learning rate tells, if it has just moved: then it moves with every step.
        """
        last, self._last = self._last, pairs
        rate = pairs.get("learning_rate")
        if pairs != last:
            if rate != last.get("learning_rate"):
                self._rate_before = last.get("learning_rate")
            else:
                self._rate_before = rate  # it stands still: no witness
            return False
        if "grad_norm" in pairs:
            return len(pairs["grad_norm"].strip("'\"")) > 8 and _moves(pairs["grad_norm"])
        moved = self._rate_before is not None and self._rate_before != rate
        return moved and "step" not in pairs and _moves(pairs.get("loss"))


def _moves(printed: str | None) -> bool:
    """Whether a number is one that differs from step to step: not 0, not NaN."""
    value = number_of(printed)
    return value is not None and value != 0.0 and math.isfinite(value)


def find_dicts(text: str) -> list[Found]:
    """All flat dictionaries of a line with at least two pairs, or one if it is whole."""
    found: list[Found] = []
    run: list[re.Match[str]] = []
    end = 0
    for match in _PAIR.finditer(text):
        if run and not _COMMA.fullmatch(text, end, match.start()):
            _add(found, text, run)
            run = []
        run.append(match)
        end = match.end()
    if run:
        _add(found, text, run)
    return found


def _add(found: list[Found], text: str, run: list[re.Match[str]]) -> None:
    if found and not found[-1].whole and (more := _continued(found[-1], text, run)) is not None:
        found[-1] = more
        return
    before = text[max(run[0].start() - _NEAR, 0) : run[0].start()].rstrip()
    opened = before.endswith("{")
    if opened:
        before = before[:-1]
        if _NESTED.search(before) or _OTHER_MAKER.search(before):
            return
    elif before:
        return
    after = text[run[-1].end() : run[-1].end() + _NEAR].lstrip()
    closed = after.startswith("}")
    if after.startswith(("[", "{", "(")):
        return
    pairs = {plain_key(match[2]): match[3] for match in run}
    torn = not closed and (not after or _GLUED.match(after))
    if torn and run[-1][3][-1] not in "'\"":
        pairs.pop(plain_key(run[-1][2]))  # the last number may be cut in the middle
    goes_on = opened and _INTO.match(text, run[-1].end()) is not None
    if len(pairs) >= (1 if (opened and closed) or goes_on else 2):
        found.append(Found(pairs, run[0].start(), run[-1].end(), opened and closed))


def _continued(row: Found, text: str, run: list[re.Match[str]]) -> Found | None:
    """The row with a run that stands in a dictionary inside it, or behind one; else None."""
    start, end = run[0].start(), run[-1].end()
    into = _INTO.fullmatch(text, row.end, start)
    if into is not None and bool(into[1]) == row.inside:
        prefix = f"{into[3].strip()}."
    elif row.inside and _OUT.fullmatch(text, row.end, start):
        prefix = ""
    else:
        return None
    after = text[end : end + _NEAR].lstrip()
    if after.startswith(("[", "{", "(")) or (after and _GLUED.match(after)):
        return None
    pairs = {prefix + (match[2] if prefix else plain_key(match[2])): match[3] for match in run}
    whole = after.startswith("}" if not prefix else "}}")
    return Found({**row.pairs, **pairs}, row.start, end, whole, bool(prefix))
