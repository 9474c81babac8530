"""Logical types: one text for every way of storing the same values. Fixed in docs/spec.md, section 8.

The width of offsets, views, dictionaries, runs, names of list items, nullability and metadata are storage and leave no
trace. Signedness, width of numbers, units, time zones, precision and names of fields are part of what a value means.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

import pyarrow as pa

from detdata.errors import ArgumentTypeError

Schema: TypeAlias = tuple[tuple[str, str], ...]  # (name, logical type) of each column, in order

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]+")
_EXTENSION_KEY = b"ARROW:extension:name"


def type_id(name: str) -> int:
    """Return Arrow's number of a type, or -1 where this pyarrow does not know the type yet."""
    return int(getattr(pa.lib, f"Type_{name}", -1))


def type_ids(*names: str) -> frozenset[int]:
    """Return Arrow's numbers of those of the types that this pyarrow knows."""
    return frozenset(map(type_id, names)) - {-1}


STRINGS = type_ids("STRING", "LARGE_STRING", "STRING_VIEW")
BINARIES = type_ids("BINARY", "LARGE_BINARY", "BINARY_VIEW")
VIEWS = type_ids("STRING_VIEW", "BINARY_VIEW")
LISTS = type_ids("LIST", "LARGE_LIST")
LIST_VIEWS = type_ids("LIST_VIEW", "LARGE_LIST_VIEW")
WIDE = type_ids("LARGE_STRING", "LARGE_BINARY", "LARGE_LIST", "LARGE_LIST_VIEW")  # with offsets of 64 bits
FLOATS = type_ids("HALF_FLOAT", "FLOAT", "DOUBLE")
DECIMALS = type_ids("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256")
TIMES = type_ids("TIME32", "TIME64")
NULL, BOOL, DICTIONARY, INTERVAL = (type_id(name) for name in ("NA", "BOOL", "DICTIONARY", "INTERVAL_MONTH_DAY_NANO"))
RUNS, STRUCT, MAP, FIXED_LIST = (type_id(name) for name in ("RUN_END_ENCODED", "STRUCT", "MAP", "FIXED_SIZE_LIST"))
FIXED_BINARY, TIMESTAMP, DURATION = (type_id(name) for name in ("FIXED_SIZE_BINARY", "TIMESTAMP", "DURATION"))

_SIMPLE = {
    type_id(name): text
    for name, text in {
        "NA": "null",
        "BOOL": "bool",
        "HALF_FLOAT": "halffloat",
        "FLOAT": "float",
        "DOUBLE": "double",
        "DATE32": "date32",
        "DATE64": "date64",
        "INTERVAL_MONTH_DAY_NANO": "month_day_nano_interval",
        **{f"{sign}INT{width}": f"{sign}INT{width}".lower() for sign in ("", "U") for width in (8, 16, 32, 64)},
        **dict.fromkeys(("STRING", "LARGE_STRING", "STRING_VIEW"), "string"),
        **dict.fromkeys(("BINARY", "LARGE_BINARY", "BINARY_VIEW"), "binary"),
    }.items()
}


def is_extension(kind: Any) -> bool:
    """Whether a type is one of storage with a name, known to this process."""
    return isinstance(kind, pa.BaseExtensionType)


def schema_of(schema: Any) -> Schema:
    """Return the logical schema of an Arrow schema: what it holds, less how it is stored.

    Raises TypeError naming the column for a type whose values have no fixed form here (unions).

    >>> schema_of(pa.schema([("id", pa.int32()), ("text", pa.dictionary(pa.int8(), pa.large_string()))]))
    (('id', 'int32'), ('text', 'string'))
    """
    columns = []
    for field in schema:
        try:
            columns.append((str(field.name), field_text(field)))
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"column {field.name!r}: {error}") from None
    return tuple(columns)


def field_text(field: Any) -> str:
    """Return the logical type of a field. An extension that this process does not know is named by its metadata."""
    name = (field.metadata or {}).get(_EXTENSION_KEY)
    if name is not None and not is_extension(field.type):
        return f"extension<{_word(name.decode('utf-8', 'replace'))}, {type_text(field.type)}>"
    return type_text(field.type)


def type_text(kind: Any) -> str:
    """Return the logical type of an Arrow type. Raises TypeError for unions and types of the future.

    >>> type_text(pa.list_(pa.struct([("a b", pa.timestamp("us", "UTC")), ("c", pa.decimal128(9, 2))])))
    'list<struct<"a b": timestamp[us, UTC], c: decimal(9, 2)>>'
    """
    number = kind.id
    if number in _SIMPLE and number >= 0:
        return _SIMPLE[number]
    if number in {DICTIONARY, RUNS}:
        return type_text(kind.value_type)
    if is_extension(kind):
        return f"extension<{_word(kind.extension_name)}, {type_text(kind.storage_type)}>"
    if number == TIMESTAMP:
        zone = "" if kind.tz is None else f", {_word(kind.tz, _PLAIN_ZONE)}"
        return f"timestamp[{kind.unit}{zone}]"
    if number in TIMES:
        return f"time[{kind.unit}]"
    if number == DURATION:
        return f"duration[{kind.unit}]"
    if number in DECIMALS:
        return f"decimal({kind.precision}, {kind.scale})"
    if number == FIXED_BINARY:
        return f"fixed_size_binary[{kind.byte_width}]"
    if number in LISTS or number in LIST_VIEWS:
        return f"list<{field_text(kind.value_field)}>"
    if number == FIXED_LIST:
        return f"fixed_size_list<{field_text(kind.value_field)}>[{kind.list_size}]"
    if number == MAP:
        return f"map<{field_text(kind.key_field)}, {field_text(kind.item_field)}>"
    if number == STRUCT:
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return f"struct<{', '.join(f'{_word(field.name)}: {field_text(field)}' for field in fields)}>"
    raise ArgumentTypeError(
        f"values of type {kind} have no digest of rows; cast them to another type, or hash the files by content='bytes'"
    )


def _word(text: str, plain: re.Pattern[str] = _PLAIN_NAME) -> str:
    """Return a text that ends where it seems to: as it is if it is plain, else as a JSON string."""
    return text if plain.fullmatch(text) else json.dumps(text, ensure_ascii=False)
