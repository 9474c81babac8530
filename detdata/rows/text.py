"""JSON lines as tables, by rules that do not depend on where a reader's blocks fall.

They have the types of JSON, and what type a column has is decided over all the files together, in a pass of its own.
Fixed in docs/spec.md, section 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from detdata.rows.columnar import Opened, batch_groups
from detdata.rows.errors import RowsError
from detdata.rows.lines import Block, check_count, check_lines, line_blocks
from detdata.rows.numbers import check_exact, check_signs, with_uint64
from detdata.rows.opening import open_input

_JSON_BLOCK = 1 << 20
_PLACE = re.compile(r"in row (\d+)$")
_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())  # each has what those before it have, or check_exact says no


def open_json(path: str, name: str, schema: Any) -> Opened:
    """Open a file of JSON lines under the schema that `json_schema` found."""
    return Opened(schema, batch_groups(_json_batches(path, name, schema)))


def _json_batches(path: str, name: str, schema: Any) -> Iterator[Any]:
    kind = pa.struct(list(schema))
    with open_input(path, name) as source:
        for block in line_blocks(source, name, _JSON_BLOCK):
            table = _parsed(block, name, schema)
            check_exact(block, kind, name)
            for batch in table.select(schema.names).combine_chunks().to_batches():
                columns = [_retyped(*pair, name) for pair in zip(batch.columns, schema.types, strict=True)]
                # without columns there is nothing to put together, but there are rows
                yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch


def json_schema(path: str, name: str, known: Any, columns: Sequence[str] | None) -> Any:
    """Return the struct type of the objects in a file, merged with `known`, that of the files before it.

    columns: those that count, or None. Raises RowsError where a place holds values of two kinds.
    """
    with open_input(path, name) as source:
        for block in line_blocks(source, name, _JSON_BLOCK):
            fields = [field for field in _parsed(block, name).schema if columns is None or field.name in columns]
            known = _merged(known, with_uint64(block, _plain(pa.struct(fields), name)), name, "")
    return known


def _parsed(block: Block, name: str, schema: Any = None) -> Any:
    """Return the table of a block of whole lines, each an object.

    schema: what it is read as, but for nulls, which come as bool. Without it only the types of the table are sound:
    pyarrow makes lists too short where the first items of a column's lists are null, and so of the null type too.
    """
    lines = check_lines(block, name)
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block.text) + 1)
    wanted = None if schema is None else pa.schema([(field.name, _readable(field.type)) for field in schema])
    parsing = arrow_json.ParseOptions(
        explicit_schema=wanted, unexpected_field_behavior="infer" if schema is None else "ignore"
    )
    try:
        table = arrow_json.read_json(pa.BufferReader(block.text), reading, parsing)
    except pa.ArrowInvalid as error:
        if schema is not None:
            check_signs(block, pa.struct(list(schema)), name)
        raise RowsError(name, f"cannot be read: {_with_line(str(error), block)}") from error
    if schema is not None:
        table.validate(full=True)  # that strings are UTF-8
    check_count(block, table.num_rows, lines, name)
    return table


def _with_line(message: str, block: Block) -> str:
    """Return what pyarrow says, with the line of the file instead of the row of the block."""
    found = _PLACE.search(message)
    if found is None:
        return message
    row = int(found[1])
    number = next((number for i, (number, _) in enumerate(block.lines()) if i == row), block.first)
    hint = "; make it one type, or hash by content='bytes'" if "changed from" in message else ""
    return f"{message[: found.start()]}in line {number}{hint}"


def _readable(kind: Any) -> Any:
    """Return the type with bool in place of null."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return pa.bool_() if pa.types.is_null(kind) else kind


def _retyped(array: Any, kind: Any, name: str) -> Any:
    """Return an array of the type `_readable(kind)`, not sliced, as one of `kind`."""
    if array.type == kind:
        return array
    if pa.types.is_null(kind):
        if array.null_count < len(array):  # nowhere, when types were looked at
            raise RowsError(name, "changed while it was read; hash again when nothing writes to it")
        return pa.nulls(len(array))
    if pa.types.is_list(kind):
        own, children = array.buffers()[:2], [_retyped(array.values, kind.value_type, name)]
    else:
        own = array.buffers()[:1]
        children = [_retyped(array.field(i), kind.field(i).type, name) for i in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, len(array), own, array.null_count, children=children)


def _plain(kind: Any, name: str) -> Any:
    """Return the type in JSON's own terms: what looks like a time is a string, and members come by name."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        fields = [pa.field(field.name, _plain(field.type, name)) for field in fields]
        return pa.struct(sorted(fields, key=lambda field: field.name.encode("utf-8")))
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type, name))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if kind in {pa.null(), pa.bool_(), *_NUMBERS, pa.string()}:
        return kind
    raise RowsError(name, f"is read as {kind} by pyarrow {pa.__version__}, which this release of detdata does not know")


def _merged(one: Any, other: Any, name: str, place: str) -> Any:
    """Return the type that has all values of both."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, name, f"{place}[]"))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {kind.field(i).name: kind.field(i).type for kind in (one, other) for i in range(kind.num_fields)}
        for i in range(one.num_fields):
            field = one.field(i)
            fields[field.name] = _merged(field.type, fields[field.name], name, f"{place}.{field.name}".lstrip("."))
        return _plain(pa.struct(list(fields.items())), name)
    raise RowsError(
        name,
        f"column {place} holds {other} where lines before have {one}; make it one type, or hash by content='bytes'",
    )
