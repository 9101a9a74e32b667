"""Compares runs: where their curves part, which is better, at what cost, with which settings."""

from loganalyze.compare.judge import compare_runs
from loganalyze.compare.load import load_runs
from loganalyze.compare.model import Comparison
from loganalyze.compare.output import comparison_json
from loganalyze.compare.text import comparison_text

__all__ = ["Comparison", "compare_runs", "comparison_json", "comparison_text", "load_runs"]
