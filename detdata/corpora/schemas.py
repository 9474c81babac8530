"""One Arrow schema for rows that are dicts: found by looking at all of them, widened only where nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from detdata.corpora.errors import CorpusError


def table_of(rows: Sequence[Any], first: int, as_json: frozenset[str], schema: Any = None) -> Any:
    """Return rows as a pyarrow.Table, of `schema` or of the types that they have.

    first: number of the first row, for messages. as_json: columns that are kept as JSON text.
    Raises CorpusError naming the column for rows that are no columns of one type each.
    """
    import json

    names: dict[str, None] = dict.fromkeys(schema.names) if schema is not None else {}
    for number, row in enumerate(rows, first):
        if not isinstance(row, dict):
            raise CorpusError(None, f"row {number} is {type(row).__name__}, and a table is made of rows that are dicts")
        if schema is None:
            names.update(dict.fromkeys(row))
    arrays = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in as_json:
            values = [None if name not in row else json.dumps(row[name], ensure_ascii=False) for row in rows]
        kind = None if schema is None else schema.field(name).type
        try:
            arrays[name] = pa.array(values, type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            where = f"rows {first} … {first + len(rows) - 1}"
            raise CorpusError(
                None, f"column {name!r} of {where} has no one type: {error}. Keep it as JSON text: --json-column {name}"
            ) from error
    return pa.table(arrays, schema=schema) if arrays else pa.table({})


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
