"""Tables that a spec names by their digest: weights or labels of millions of samples are no JSON.

An order that was made from a table holds it, and its pickle carries it. A spec alone names the digest of what matters
in the table; whoever rebuilds from a spec hands the tables over, and one with another digest is never taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.records import from_spec

Tables: TypeAlias = Mapping[str, Any]  # digest -> table
_Kind = TypeVar("_Kind")

_at_hand: ContextVar[Tables] = ContextVar("tables", default=MappingProxyType({}))


def rebuild(spec: Mapping[str, Any], tables: Tables) -> Any:
    """Return `from_spec(spec)`, in which the specs that name a table by its digest find it in `tables`.

    >>> from detdata import Shuffle
    >>> rebuild(Shuffle(10).spec(), {}) == Shuffle(10)
    True
    """
    token = _at_hand.set({**_at_hand.get(), **tables})
    try:
        return from_spec(spec)
    finally:
        _at_hand.reset(token)


class TableMissing(ArgumentValueError):
    """A spec names a table that is not at hand. what: it is made of; digest: the one that the spec names."""

    def __init__(self, message: str, what: str, digest: str) -> None:
        super().__init__(message)
        self.what = what
        self.digest = digest


def table_at_hand(digest: object, kind: type[_Kind], what: str, way: str) -> _Kind:
    """Return the table that a spec names. `what` it is made of and the `way` to give it are for the message."""
    if not isinstance(digest, str):
        raise ArgumentTypeError(f"{what}: a spec holds their digest, a string; got {brief(digest)}")
    table = _at_hand.get().get(digest)
    if not isinstance(table, kind):
        raise TableMissing(
            f"this spec names its {what} by the digest {digest[:100]}, and {_told()}; give them: {way}",
            what,
            digest,
        )
    return table


def _told() -> str:
    """Say which tables are at hand."""
    held = sorted(_at_hand.get())
    return f"those given have {', '.join(held)[:500]}" if held else "none are at hand"


def rebuild_with(spec: Mapping[str, Any], table: Any, kind: type[_Kind], format: str, what: str) -> _Kind:
    """Return the `kind` of order that a spec of `format` describes, with the table that it names under `what`."""
    if not isinstance(spec, Mapping) or spec.get("format") != format:
        found = spec.get("format") if isinstance(spec, Mapping) else spec
        raise ArgumentTypeError(f"spec must be a {format} spec, got {brief(found)}; others: detdata.from_spec(spec)")
    if isinstance(spec.get(what), str) and spec[what] != table.digest:
        raise ArgumentValueError(
            f"{what}: these have the digest {table.digest}, but the spec was made with others, of {brief(spec[what])}"
        )
    order = rebuild(spec, {table.digest: table})
    if not isinstance(order, kind):
        raise ArgumentTypeError(f"spec must be that of a {kind.__name__}, got that of a {type(order).__name__}")
    return order
