"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import loganalyze_parsers
import pytest

import loganalyze

MODULES = [
    info.name
    for package in (loganalyze, loganalyze_parsers)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__") and ".replay" not in info.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """Every example in a docstring gives what it says."""
    assert doctest.testmod(import_module(name)).failed == 0
