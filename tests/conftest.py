"""The same examples on every machine: a test that fails, fails for everybody."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same_everywhere", derandomize=True, deadline=None)
settings.load_profile("same_everywhere")
