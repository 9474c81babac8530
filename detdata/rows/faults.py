"""Which files keep a dataset from being one table, and why: asked once hashing them together has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from detdata.checks import visible
from detdata.rows.errors import RowsError
from detdata.rows.hasher import hash_rows
from detdata.rows.reading import SUFFIXES, Files, is_table
from detdata.rows.report import keyed
from detdata.rows.schema import Schema
from detdata.rows.text import json_schema

_LINES = tuple(ending for ending in SUFFIXES if ending.startswith((".jsonl", ".ndjson")))


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that is no part of the table that there was.

    file: its name. reason: what is wrong with it, with how to go on. retyped: (column, old type, type in this file);
    added, removed: columns, (name, type), that this file alone has or lacks.
    """

    file: str
    reason: str
    retyped: tuple[tuple[str, str, str], ...] = ()
    added: Schema = ()
    removed: Schema = ()

    def __str__(self) -> str:
        return visible(f"{self.file}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Faults:
    """What find_faults found. rows: the number of rows of each file that is sound; faults: the files that are not."""

    rows: dict[str, int]
    faults: tuple[FileFault, ...]


def system_trouble(error: RowsError) -> str | None:
    """Return what the operating system said, where a table could not be read for no fault of its own; else None.

    >>> system_trouble(RowsError("a.csv", "has no header line")) is None
    True
    """
    cause = error.__cause__
    # pyarrow raises OSError for damaged files too, but then without a number.
    return cause.strerror or str(cause) if isinstance(cause, OSError) and cause.errno is not None else None


def find_faults(files: Files, schema: Schema) -> Faults:
    """Read each file by itself, and say which cannot be part of a table with the columns of `schema`.

    files: pairs (name, path), as for `hash_rows`. Raises RowsError for a file that the operating system does not let
    one read: that says nothing about the data. Cost: reading and hashing every file.

    >>> find_faults([("notes.txt", "notes.txt")], (("a", "string"),)).faults[0].file
    'notes.txt'
    """
    rows: dict[str, int] = {}
    faults: dict[str, FileFault] = {}
    lines: dict[str, tuple[Schema, Any]] = {}
    for name, path in files:
        if not is_table(name):
            reason = f"is no table that is known by its name ({' '.join(SUFFIXES)}); move it away, or hash again"
            faults[name] = FileFault(name, reason)
            continue
        try:
            version = hash_rows([(name, path)], unordered=False)
        except RowsError as error:
            if system_trouble(error) is not None:
                raise
            faults[name] = FileFault(name, error.reason)
            continue
        rows[name] = version.rows
        if name.lower().endswith(_LINES):
            lines[name] = version.schema, path
        elif version.schema != schema:
            faults[name] = _unlike(name, schema, version.schema)
    faults |= _json_faults(lines, schema)
    sound = {name: count for name, count in rows.items() if name not in faults}
    return Faults(sound, tuple(faults[name] for name, _ in files if name in faults))


def _unlike(name: str, schema: Schema, found: Schema) -> FileFault:
    before, after = keyed(schema), keyed(found)
    retyped = tuple(
        (key[0], schema[i][1], found[after[key]][1])
        for key, i in before.items()
        if key in after and schema[i][1] != found[after[key]][1]
    )
    added = tuple(found[i] for key, i in after.items() if key not in before)
    removed = tuple(schema[i] for key, i in before.items() if key not in after)
    told = [*_retyped(retyped)]
    told += [f"column {column} ({kind}) is new in it" for column, kind in added]
    told += [f"it has no column {column} ({kind})" for column, kind in removed]
    return FileFault(name, "; ".join(told) or "its columns come in another order", retyped, added, removed)


def _retyped(columns: Sequence[tuple[str, str, str]]) -> list[str]:
    return [f"column {column} changed type: {old} -> {new}" for column, old, new in columns]


def _json_faults(lines: dict[str, tuple[Schema, Any]], schema: Schema) -> dict[str, FileFault]:
    """Return the files of JSON lines whose types do not go together with those of the others, or with the old ones."""
    known: Any = pa.struct([])
    faults = {}
    wanted = dict(schema)
    # Those that are as they were come first: what contradicts them is at fault, and not the other way round.
    for name in sorted(lines, key=lambda name: lines[name][0] != schema):
        found, path = lines[name]
        retyped = tuple((one, wanted[one], kind) for one, kind in found if one in wanted and _other(wanted[one], kind))
        reason = ""
        try:
            known = json_schema(str(path), name, known, None)
        except RowsError as error:
            reason = error.reason
        if retyped or reason:
            faults[name] = FileFault(name, "; ".join(_retyped(retyped)) or reason, retyped)
    return faults


def _other(old: str, new: str) -> bool:
    """Whether values of the type `new` in one file of JSON lines cannot be of the type `old` over all of them."""
    simple = {"null", "bool", "int64", "uint64", "double", "string"}
    if new in {old, "null"} or (old, new) in {("double", "int64"), ("double", "uint64"), ("uint64", "int64")}:
        return False
    if old in simple or new in simple:
        return True
    return old.split("<", 1)[0] != new.split("<", 1)[0]  # what is inside is told by reading them together
