"""Plain trees copied from the root down: dictionaries, lists and tuples anew, whatever else as the caller says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rebuilt(value: Any, visit: Callable[[Any, Any], Any]) -> Any:
    """Return a container of the same type with `visit(item, key or index)` for each item; anything else as it is.

    The versions of the modules that torch keeps beside a model's state go with it.

    >>> rebuilt({"a": [1, 2]}, lambda item, key: (key, item))
    {'a': ('a', [1, 2])}
    """
    if isinstance(value, dict):
        copy: Any = type(value)()
        for key, item in value.items():
            copy[key] = visit(item, key)
        metadata = getattr(value, "_metadata", None)
        if metadata is not None:
            copy._metadata = metadata
        return copy
    if type(value) in (list, tuple):
        return type(value)(visit(item, index) for index, item in enumerate(value))
    return value
