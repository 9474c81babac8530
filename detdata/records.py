"""Specs: the plain JSON that rebuilds an order or a plan, read strictly.

A spec carries `"format": "detdata.<kind>/<version>"`. A format's meaning never changes once released: a better
algorithm gets a new name. So an unknown format, a missing key or an unknown key is an error, never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

import xxhash

from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat

Spec: TypeAlias = dict[str, Any]
Builder: TypeAlias = Callable[[Spec], Any]

_FORMAT = re.compile(r"[a-z0-9_.\-]+/[1-9][0-9]*")
_BUILDERS: dict[str, tuple[frozenset[str], Builder]] = {}
_OWN = "detdata."  # what this library's formats and modules begin with
_BUILT_IN = ("detdata.orders", "detdata.plans")  # where its formats are registered, once they are imported
MAX_DEPTH = 64  # nesting of orders in a spec; an untrusted one must not exhaust the stack


def canonical_json(value: object) -> bytes:
    """Return the one UTF-8 text of a JSON value: sorted keys, no spaces, ASCII only, no NaN.

    >>> canonical_json({"b": 1, "a": [True, "é"]})
    b'{"a":[true,"\\\\u00e9"],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(data: bytes) -> str:
    """Return the digest of `data` with its algorithm in front.

    >>> digest(b"")
    'xxh3-128:99aa06d3014798d86001c324468d497f'
    """
    return "xxh3-128:" + xxhash.xxh3_128_hexdigest(data)


def own_digest(record: Mapping[str, Any]) -> str:
    """Return what a record's own key "digest" must say: the digest of everything else in it.

    >>> own_digest({"a": 1, "digest": "?"}) == digest(canonical_json({"a": 1}))
    True
    """
    return digest(canonical_json({key: value for key, value in record.items() if key != "digest"}))


def register_format(format: str, keys: tuple[str, ...], build: Builder) -> None:
    """Make `from_spec` understand specs of `format`, for orders that live outside this library.

    format: `"yourproject.name/1"`. keys: exactly the keys such a spec has beside `"format"`. build: gets the checked
    spec and returns the object. Raises ValueError if the name is malformed or taken by another builder.

    >>> register_format("example.constant/1", ("n",), lambda spec: spec["n"])
    >>> from_spec({"format": "example.constant/1", "n": 3})
    3
    """
    if not isinstance(format, str) or not _FORMAT.fullmatch(format):
        raise ArgumentValueError(f"format must look like 'project.name/1', got {format!r}")
    if format.startswith(_OWN) and not str(getattr(build, "__module__", "")).startswith(_OWN):
        _import_built_in()  # so that what is taken is known to be
    known = _BUILDERS.get(format)
    if known is not None and getattr(known[1], "__qualname__", "") != getattr(build, "__qualname__", None):
        raise ArgumentValueError(f"format {format!r} is already registered by {known[1]!r}")
    _BUILDERS[format] = (frozenset(keys), build)


def from_spec(spec: Mapping[str, Any]) -> Any:
    """Rebuild the order or plan that `.spec()` described.

    spec: a dict of plain JSON with `"format"`. Returns an equal object: `from_spec(x.spec()) == x`.
    Raises UnknownFormat (a ValueError) for a format that this release does not know, for missing and for unknown
    keys; TypeError if `spec` is no mapping. Cost: that of the object's constructor.

    >>> import detdata
    >>> detdata.from_spec({"format": "detdata.shuffle/1", "n": 10, "seed": 3}) == detdata.Shuffle(10, seed=3)
    True
    """
    _check_depth(spec, 0, 0)
    if not isinstance(spec, Mapping):
        raise ArgumentTypeError(f"spec must be a dict, got {type(spec).__name__}")
    if "format" not in spec:
        raise UnknownFormat(f'a spec needs the key "format", found only {sorted(map(str, spec))}')
    format = spec["format"]
    if not isinstance(format, str) or format not in _BUILDERS:
        _import_built_in()
    if not isinstance(format, str) or format not in _BUILDERS:
        raise UnknownFormat(_unknown(format))
    keys, build = _BUILDERS[format]
    found = set(spec) - {"format"}
    missing, unknown = sorted(keys - found), sorted(map(str, found - keys))
    if missing or unknown:
        raise UnknownFormat(
            f"a {format} spec has the keys {sorted(keys)}; missing {missing}, unknown {unknown}. "
            "If a newer release wrote it, read it with that release."
        )
    return build(dict(spec))


def _import_built_in() -> None:
    """Import what registers this library's own formats: `import detdata` alone doesn't."""
    for module in _BUILT_IN:
        import_module(module)


def _check_depth(value: object, mappings: int, lists: int) -> None:
    if mappings > MAX_DEPTH or lists > 3 * MAX_DEPTH:  # a Concat holds its sources two lists further in
        raise UnknownFormat(f"spec is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        for item in value:
            if type(item) is list or type(item) is dict:  # most items are integers of long run lists
                _check_depth(item, mappings, lists + 1)
    elif isinstance(value, Mapping):
        for item in value.values():
            _check_depth(item, mappings + 1, lists)


def _unknown(format: object) -> str:
    name = format.rpartition("/")[0] if isinstance(format, str) else ""
    same = sorted(known for known in _BUILDERS if known.rpartition("/")[0] == name)
    if same:
        return f"format {format!r} is not known to this release, which reads {same}; upgrade detdata to read it"
    return f"unknown format {format!r}; known: {sorted(_BUILDERS)}"
