"""Values of the program as dictionaries, and as bytes and back, where reading runs nothing.

The only user of pickle outside of replay: what names a function, or a type that is not listed as
data here, is refused. So neither a store nor the folder through which workers send what they read
can make the program run something.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

Refused, PicklingError = pickle.UnpicklingError, pickle.PicklingError
#: Types of Python itself that are data.
PLAIN = {
    (kind.__module__, kind.__name__): kind
    for kind in (Counter, OrderedDict, defaultdict, deque, set, frozenset)
}
#: Modules all of whose types are data, and single types of others.
_MODULES = ("loganalyze_parsers.", "loganalyze.model")
_TYPES = frozenset({
    ("loganalyze.parts", "Parts"), ("loganalyze.shards", "FileRead"),
    ("loganalyze.wide", "RanksRead"), ("loganalyze.ranges", "RangeRead"),
})  # fmt: skip


class _Named(Struct, kw_only=True):
    """Stands for the types that are made by the names of their fields."""

    number: int = 0


#: The function of msgspec's by which pickle makes them; reading puts `_made` in its place.
_REBUILD: Any = _Named().__reduce__()[0]
#: What reading bytes that are no such value can raise.
DAMAGE = (Refused, AttributeError, ImportError, ValueError, TypeError, EOFError, LookupError)


def is_data_type(value: object) -> bool:
    """Whether a value is a type that reading may make."""
    if not isinstance(value, type):
        return False
    name = (value.__module__, value.__name__)
    return name in PLAIN or name in _TYPES or value.__module__.startswith(_MODULES)


def told(
    value: object, place_of: Callable[[object], str | None] | None = None, *, plainly: bool = False
) -> bytes:
    """The bytes. place_of: names parts of the program, "" for none of them; None refuses it.

    plainly: every value written out, so that equal values give equal bytes; these are not to be
    read. Raises PicklingError and its kin for what is no data.
    """

    class Teller(pickle.Pickler):
        def persistent_id(self, one: object) -> str | None:
            if plainly and isinstance(one, set | frozenset):  # equal ones may differ in order
                return f"set {sorted(map(repr, one))}"
            if place_of is None or one is _REBUILD or is_data_type(one):
                return None
            place = place_of(one)
            if place is None:
                raise PicklingError(f"{one!r} is no data")
            return place or None

    data = io.BytesIO()
    teller = Teller(data, protocol=5)
    teller.fast = plainly
    teller.dump(value)
    return data.getvalue()


def read(data: bytes, known: dict[str, object] | None = None) -> Any:
    """The value. known: parts of the program by the names that place_of gave. Raises DAMAGE."""

    class Reader(pickle.Unpickler):
        def persistent_load(self, place: Any) -> object:
            if known is None or place not in known:
                raise Refused(f"{place}: no such place")
            return known[place]

        def find_class(self, module: str, name: str) -> Any:
            if (module, name) in PLAIN:
                return PLAIN[module, name]
            if (module, name) == (_REBUILD.__module__, _REBUILD.__name__):
                return _made
            if (module, name) not in _TYPES and not module.startswith(_MODULES):
                raise Refused(f"{module}.{name}: no data type")
            found = super().find_class(module, name)
            if not is_data_type(found):
                raise Refused(f"{module}.{name}: no data type")
            return found

    return Reader(io.BytesIO(data)).load()


def _made(kind: Any, values: Mapping[str, object]) -> object:
    if not is_data_type(kind):
        raise Refused(f"{kind!r}: no data type")
    return kind(**values)


def as_dict(value: Struct) -> dict[str, Any]:
    """The fields by name, inner ones' too: what JSON is written from.

    >>> as_dict(_Named(number=3))
    {'number': 3}
    """
    return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}


def _plain(value: object) -> object:
    if isinstance(value, Struct):
        return as_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
