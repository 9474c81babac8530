"""Logical types: one text for every way of storing the same values. Fixed in docs/spec.md, section 8.

The width of offsets, views, dictionaries, runs, names of list items, nullability and metadata are storage and leave no
trace. Signedness, width of numbers, units, time zones, precision and names of fields are part of what a value means.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa

from detdata.errors import ArgumentTypeError
from detdata.rows.parameters import extension_parameters

Schema: TypeAlias = tuple[tuple[str, str], ...]  # (name, logical type) of each column, in order

MOST_LEVELS = 64  # of types in types; Arrow IPC has the same limit
_LONGEST_TYPE = 65_536  # characters, as in a record
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]+")
_EXTENSION_KEY = b"ARROW:extension:name"
_PARAMETERS_KEY = b"ARROW:extension:metadata"


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

    Raises TypeError naming the column for a type whose values have no fixed form here (unions), with more than
    MOST_LEVELS levels, or of more than 65,536 characters.

    >>> schema_of(pa.schema([("id", pa.int32()), ("text", pa.dictionary(pa.int8(), pa.large_string()))]))
    (('id', 'int32'), ('text', 'string'))
    """
    columns = []
    for field in schema:
        try:
            text = field_text(field)
        except ArgumentTypeError as error:
            raise ArgumentTypeError(f"column {field.name!r}: {error}") from None
        if len(text) > _LONGEST_TYPE:
            raise ArgumentTypeError(
                f"column {field.name!r}: its type takes {len(text):,} characters to write, at most {_LONGEST_TYPE:,} "
                "are taken; turn a struct of so many fields into a map, or hash the files by content='bytes'"
            )
        columns.append((str(field.name), text))
    return tuple(columns)


def field_text(field: Any, level: int = 1) -> str:
    """Return the logical type of a field. An extension that this process does not know is named by its metadata."""
    metadata = field.metadata or {}
    name = metadata.get(_EXTENSION_KEY)
    if name is not None and not is_extension(field.type):
        inside = type_text(field.type, level + 1)
        return _extension(name.decode("utf-8", "replace"), inside, metadata.get(_PARAMETERS_KEY, b""))
    return type_text(field.type, level)


def type_text(kind: Any, level: int = 1) -> str:
    """Return the logical type of an Arrow type. Raises TypeError for unions and types of the future.

    level: how many types it is in, and itself.

    >>> type_text(pa.list_(pa.struct([("a b", pa.timestamp("us", "UTC")), ("c", pa.decimal128(9, 2))])))
    'list<struct<"a b": timestamp[us, UTC], c: decimal(9, 2)>>'
    """
    if level > MOST_LEVELS:
        raise ArgumentTypeError(
            f"its type is nested more than {MOST_LEVELS} levels deep; flatten it, or hash the files by content='bytes'"
        )
    number = kind.id
    if number in _SIMPLE and number >= 0:
        return _SIMPLE[number]
    if number in {DICTIONARY, RUNS}:
        return type_text(kind.value_type, level)
    if is_extension(kind):
        parameters = extension_parameters(kind)
        return _extension(kind.extension_name, type_text(kind.storage_type, level + 1), parameters)
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
        return f"list<{field_text(kind.value_field, level + 1)}>"
    if number == FIXED_LIST:
        return f"fixed_size_list<{field_text(kind.value_field, level + 1)}>[{kind.list_size}]"
    if number == MAP:
        return f"map<{field_text(kind.key_field, level + 1)}, {field_text(kind.item_field, level + 1)}>"
    if number == STRUCT:
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return f"struct<{', '.join(f'{_word(field.name)}: {field_text(field, level + 1)}' for field in fields)}>"
    raise ArgumentTypeError(
        f"values of type {kind} have no digest of rows; cast them to another type, or hash the files by content='bytes'"
    )


def _extension(name: str, storage: str, parameters: bytes) -> str:
    """Return the text of an extension type. Its parameters count, but how a JSON object of them is spelled does not."""
    if not parameters:
        return f"extension<{_word(name)}, {storage}>"
    try:
        text = parameters.decode("utf-8")
    except UnicodeDecodeError:
        return f"extension<{_word(name)}, {storage}, 0x{parameters.hex()}>"
    if text.startswith("{") and text.count("[") + text.count("{") <= MOST_LEVELS:
        with suppress(ValueError):  # no JSON, or such that another spelling may be another value
            found = json.loads(text, parse_float=_refused, parse_constant=_refused, object_pairs_hook=_members)
            text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode().decode()
    return f"extension<{_word(name)}, {storage}, {json.dumps(text, ensure_ascii=False)}>"


def _refused(number: str) -> None:
    raise ValueError(number)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(pairs)
    return found


def _word(text: str, plain: re.Pattern[str] = _PLAIN_NAME) -> str:
    """Return a text that ends where it seems to: as it is if it is plain, else as a JSON string."""
    return text if plain.fullmatch(text) else json.dumps(text, ensure_ascii=False)
