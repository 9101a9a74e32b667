"""Reports: one view of the diagnosis, many formats. Stages of the command line call these two."""

from __future__ import annotations

from loganalyze.report.output import FORMATS, render, write_files

__all__ = ["FORMATS", "render", "write_files"]
