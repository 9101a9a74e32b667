"""The environment of all page templates; what they compile to is kept beside Python's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import jinja2
from jinja2 import DictLoader, Environment, StrictUndefined, Template

from loganalyze import __version__
from loganalyze.kept import kept

#: Told apart by it are the compiled templates of this environment from those of another.
_OPTIONS = "autoescape trim lstrip"


class _Loader(DictLoader):
    """Templates by name, compiled once for all processes."""

    def load(
        self, environment: Environment, name: str, globals: MutableMapping[str, Any] | None = None
    ) -> Template:
        """The template of that name."""
        source, filename, fresh = self.get_source(environment, name)
        depends = f"{jinja2.__version__} {__version__} {_OPTIONS} {filename}\n{source}".encode()
        code = kept(name, depends, lambda: environment.compile(source, name, filename))
        return environment.template_class.from_code(environment, code, globals or {}, fresh)


def environment_of(sources: Mapping[str, str], finalize: Callable[[Any], Any]) -> Environment:
    """An environment of the templates in `sources`. finalize: what is done to all they print."""
    return Environment(
        loader=_Loader(sources),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
