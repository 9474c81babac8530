"""One Arrow schema for rows that are dicts: found by looking at all of them, widened only where nothing is lost."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from detdata.corpora.errors import CorpusError


def table_of(rows: Sequence[Any], first: int, as_json: frozenset[str], schema: Any = None) -> Any:
    """Return rows as a pyarrow.Table, of `schema` or of the types that they have.

    first: number of the first row, for messages. as_json: columns that are kept as JSON text.
    Raises CorpusError naming the column for rows that are no columns of one type each.
    """
    names: dict[str, None] = dict.fromkeys(schema.names) if schema is not None else {}
    for number, row in enumerate(rows, first):
        if not isinstance(row, dict):
            raise CorpusError(None, f"row {number} is {type(row).__name__}, and a table is made of rows that are dicts")
        if schema is None:
            names.update(dict.fromkeys(row))
    arrays = {}
    for name in names:
        _check_name(name, first)
        values = [row.get(name) for row in rows]
        kind = None if schema is None else schema.field(name).type
        if name in as_json:
            values = [_text(row[name], name, at) if name in row else None for at, row in enumerate(rows, first)]
            kind = pa.string()
        try:
            arrays[name] = pa.array(values, type=kind)
            if schema is None:
                _check_one_kind(values, arrays[name].type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            where = f"rows {first} … {first + len(rows) - 1}"
            raise CorpusError(
                None, f"column {name!r} of {where} has no one type: {error}. Keep it as JSON text: --json-column {name}"
            ) from error
    return pa.table(arrays, schema=schema) if arrays else pa.table({})


def _check_name(name: Any, first: int) -> None:
    if not isinstance(name, str) or not _is_utf8(name):
        fault = "it has half of a surrogate pair" if isinstance(name, str) else f"it is {type(name).__name__}"
        raise CorpusError(None, f"column {name!r} of rows from {first} on: a column's name must be text, and {fault}")


def _text(value: Any, name: str, row: int) -> str:
    """Return a value as JSON, with escapes only where UTF-8 has nothing for a character."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isascii() or _is_utf8(text) else json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise CorpusError(None, f"column {name!r} of row {row} cannot be kept as JSON text: {error}") from error


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_one_kind(values: Iterable[Any], kind: Any) -> None:
    """Raise ValueError for values that Arrow takes together by changing some: True to 1.0, a time of day to none."""
    types = pa.types
    if types.is_list(kind):
        if _is_doubtful(kind.value_type):
            _check_one_kind(list(chain.from_iterable(each for each in values if each is not None)), kind.value_type)
    elif types.is_struct(kind):
        held = [each for each in values if isinstance(each, dict)]
        for field in kind:
            if _is_doubtful(field.type):
                _check_one_kind([each.get(field.name) for each in held], field.type)
    elif _is_doubtful(kind):
        values = list(values)
        found = set(map(type, values)) - {type(None)}
        if types.is_floating(kind):
            changed = bool in found
        elif types.is_binary(kind):
            changed = str in found
        elif types.is_date(kind):
            changed = any(issubclass(each, dt.datetime) for each in found)
        else:
            changed = len({each.tzinfo is None for each in values if isinstance(each, dt.datetime)}) > 1
        if changed:
            named = ", ".join(sorted(each.__name__ for each in found))
            raise ValueError(f"{kind} would change some of its values ({named})")


def _is_doubtful(kind: Any) -> bool:
    types = pa.types
    if types.is_list(kind):
        return _is_doubtful(kind.value_type)
    if types.is_struct(kind):
        return any(_is_doubtful(field.type) for field in kind)
    return bool(types.is_floating(kind) or types.is_binary(kind) or types.is_date(kind) or types.is_timestamp(kind))


def widened(known: Any, found: Any, first: int) -> Any:
    """Return the schema that holds what both do: nulls take any type, integers become floats, structs get all fields.

    Raises CorpusError naming the column where there is none.
    """
    fields = {field.name: field for field in known}
    for field in found:
        old = fields.get(field.name)
        kind = field.type if old is None else _wider(old.type, field.type, field.name, first)
        fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values()))


def _wider(one: Any, other: Any, name: str, first: int) -> Any:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = pa.types.is_integer, pa.types.is_floating
    if any(test(one) for test in numbers) and any(test(other) for test in numbers):
        return pa.float64() if pa.types.is_floating(one) or pa.types.is_floating(other) else pa.int64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_wider(one.value_type, other.value_type, name, first))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            old = fields.get(field.name)
            fields[field.name] = field.type if old is None else _wider(old, field.type, name, first)
        return pa.struct([pa.field(key, kind) for key, kind in fields.items()])
    raise CorpusError(
        None,
        f"column {name!r} is {one} before row {first}, and {other} from there on. Keep it as JSON text: "
        f"--json-column {name}",
    )
