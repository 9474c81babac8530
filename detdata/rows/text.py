"""CSV and JSON lines as tables, by rules that do not depend on where a reader's blocks fall.

CSV has no types, so every value is text. JSON lines have the types of JSON, and what type a column has is decided over
all the files together, in a pass of its own. Fixed in docs/spec.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from detdata.rows.columnar import Opened
from detdata.rows.errors import RowsError

_CSV_BLOCK = 8 << 20
_JSON_BLOCK = 4 << 20
_LONGEST_LINE = 1 << 30
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def open_csv(path: str, name: str, _columns: Sequence[str] | None) -> Opened:
    """Open a CSV or TSV file: the first line names the columns, every value is a string, none is null."""
    delimiter = "\t" if ".tsv" in name.lower()[-8:] else ","
    reading = arrow_csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK)
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with _source(path, name) as source, arrow_csv.open_csv(source, reading, parsing) as first:
        names = first.schema.names
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    reader = arrow_csv.open_csv(_source(path, name), reading, parsing, converting)
    return Opened(reader.schema, _csv_batches(reader))


def _csv_batches(reader: Any) -> Iterator[Any]:
    with reader:
        yield from reader


def open_json(path: str, name: str, schema: Any) -> Opened:
    """Open a file of JSON lines under the schema that `json_schema` found."""
    return Opened(schema, _json_batches(path, name, schema))


def _json_batches(path: str, name: str, schema: Any) -> Iterator[Any]:
    with _source(path, name) as source:
        for block in _line_blocks(source, name):
            yield from _parsed(block, name, schema).select(schema.names).combine_chunks().to_batches()


def json_schema(path: str, name: str, known: Any, columns: Sequence[str] | None) -> Any:
    """Return the struct type of the objects in a file, merged with `known`, that of the files before it.

    columns: those that count, or None. Raises RowsError where a place holds values of two kinds.
    """
    with _source(path, name) as source:
        for block in _line_blocks(source, name):
            fields = [field for field in _parsed(block, name).schema if columns is None or field.name in columns]
            known = _merged(known, _plain(pa.struct(fields), name), name, "")
    return known


def _parsed(block: bytes, name: str, schema: Any = None) -> Any:
    """Return the table of a block of whole lines, each an object."""
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    parsing = arrow_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
    )
    table = arrow_json.read_json(pa.BufferReader(block), reading, parsing)
    table.validate(full=True)  # that strings are UTF-8
    if table.num_rows != block.count(b"\n") + (not block.endswith(b"\n")):
        lines = sum(1 for line in block.split(b"\n") if line.strip())
        if table.num_rows != lines:
            raise RowsError(name, f"has {table.num_rows} objects on {lines} lines; write one object a line")
    return table


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
    if kind in {pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string()}:
        return kind
    raise RowsError(name, f"is read as {kind} by pyarrow {pa.__version__}, which this release of detdata does not know")


def _merged(one: Any, other: Any, name: str, place: str) -> Any:
    """Return the type that has all values of both."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
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


def _line_blocks(source: Any, name: str) -> Iterator[bytes]:
    """Yield the text in pieces that end with a line."""
    held: list[bytes] = []
    while chunk := source.read(_JSON_BLOCK):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*held, chunk[:cut]])
            held = [chunk[cut:]]
        else:
            held.append(chunk)
            if sum(map(len, held)) > _LONGEST_LINE:
                raise RowsError(name, f"has a line of more than {_LONGEST_LINE} bytes; is it JSON lines?")
    last = b"".join(held)
    if last.strip():
        yield last


def _source(path: str, name: str) -> Any:
    ending = next((ending for ending in _COMPRESSIONS if name.lower().endswith(ending)), None)
    return pa.input_stream(path, compression=None if ending is None else _COMPRESSIONS[ending])
