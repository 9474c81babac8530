"""Files of several formats read as one table: the same columns in each, the rows of one file after those of another."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.rows.columnar import Group, Opened, open_arrow, open_parquet
from detdata.rows.commas import open_csv
from detdata.rows.errors import RowsError
from detdata.rows.schema import Schema, schema_of
from detdata.rows.text import json_schema, open_json

Files: TypeAlias = Sequence[tuple[str, str | os.PathLike[str]]]  # (name to call it by, where it lies)

_MOST_ROWS = 1 << 18  # of a batch: whoever hashes one holds something for each row
_PACKED = ("", ".gz", ".zst")
_OPENERS: dict[str, Any] = {
    **dict.fromkeys((".parquet", ".pq"), open_parquet),
    **dict.fromkeys((".arrow", ".arrows", ".ipc", ".feather"), open_arrow),
    **{ending + packed: open_csv for ending in (".csv", ".tsv") for packed in _PACKED},
    **{ending + packed: open_json for ending in (".jsonl", ".ndjson") for packed in _PACKED},
}
SUFFIXES = tuple(_OPENERS)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one file. file: its number; columns: one Arrow array each, of `rows` values."""

    file: int
    rows: int
    columns: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of one file, to be read in either of two ways, before the next stretch is asked for.

    file: its number. batches: gives them as batches. parts: where they are so many that it saves memory, gives the
    Arrow arrays of one column, by its number, `rows` values in all; else None.
    """

    file: int
    rows: int
    batches: Callable[[], Iterator[Batch]]
    parts: Callable[[int], Iterator[Any]] | None


def is_table(name: str) -> bool:
    """Whether a file of this name is read as a table.

    >>> is_table("part-0.parquet"), is_table("notes.txt"), is_table("a.JSONL.gz")
    (True, False, True)
    """
    return name.lower().endswith(SUFFIXES)


def read_table(
    files: Files, columns: Sequence[str] | None = None, *, lines: Any = None
) -> tuple[Schema, Iterator[Batch]]:
    """Open files as one table; return its schema, and its rows in batches that are read as they are asked for.

    columns: names of those that count, or None for all; their order is the table's. lines: what `line_types` returned
    for all files of the table, where these are not all of them. Raises ValueError for an unknown suffix or column,
    TypeError for a type without a digest, RowsError for a file that cannot be read, that changes meanwhile, or that has
    other columns than the first.
    """
    schema, stretches = read_stretches(files, columns, lines=lines)
    return schema, (batch for stretch in stretches for batch in stretch.batches())


def read_stretches(
    files: Files, columns: Sequence[str] | None = None, *, lines: Any = None
) -> tuple[Schema, Iterator[Stretch]]:
    """Return what `read_table` returns, for a reader who can take many rows a column at a time."""
    places = _checked(files)
    chosen = _chosen(columns)
    if lines is None:
        lines = line_types(places, chosen)
    first = _opened(*places[0], lines, chosen)
    return first.schema, _stretches(places, lines, chosen, first.schema)


def line_types(files: Files, columns: list[str] | None = None) -> Any:
    """Return the Arrow schema of the objects in all files of JSON lines among `files`; they are read for it."""
    objects: Any = pa.struct([])
    for name, path in files:
        if _opener(name) is open_json:
            with _reading(name, os.fspath(path)):
                objects = json_schema(os.fspath(path), name, objects, columns)
    return pa.schema([objects.field(i) for i in range(objects.num_fields)])


class _Table(NamedTuple):
    schema: Schema
    picked: list[int]
    groups: Iterator[Group]


def _opened(name: str, path: str, lines: Any, chosen: list[str] | None) -> _Table:
    with _reading(name, path):
        opener = _opener(name)
        opened: Opened = opener(path, name, lines if opener is open_json else chosen)
        picked = _pick(opened.schema, chosen)
        return _Table(schema_of(pa.schema([opened.schema.field(i) for i in picked])), picked, opened.groups)


def _stretches(
    places: list[tuple[str, str]], lines: Any, chosen: list[str] | None, schema: Schema
) -> Iterator[Stretch]:
    for number, (name, path) in enumerate(places):
        with _reading(name, path):
            table = _opened(name, path, lines, chosen)
            if table.schema != schema:
                raise RowsError(name, _unlike(schema, table.schema, places[0][0]))
            for group in table.groups:
                batches = partial(_batches, number, name, path, group, table.picked if chosen is None else chosen)
                parts = None if group.parts is None else partial(_parts, name, path, group.parts, schema)
                yield Stretch(number, group.rows, batches, parts)


def _batches(
    number: int, name: str, path: str, group: Group, columns: Sequence[int] | Sequence[str]
) -> Iterator[Batch]:
    with _reading(name, path):
        for batch in group.batches():
            picked = [i for i, one in enumerate(batch.schema.names) if i in columns or one in columns]
            for start in range(0, batch.num_rows, _MOST_ROWS):  # a file of no size can have a batch of 2^31 nulls
                rows = min(_MOST_ROWS, batch.num_rows - start)
                yield Batch(number, rows, tuple(batch.column(i).slice(start, rows) for i in picked))


def _parts(name: str, path: str, parts: Callable[[str], Iterator[Any]], schema: Schema, column: int) -> Iterator[Any]:
    with _reading(name, path):
        yield from parts(schema[column][0])


@contextmanager
def _reading(name: str, path: str) -> Iterator[None]:
    """Turn what goes wrong with a file into RowsError, and see to it that the file stays as it is meanwhile."""
    try:
        before = Path(path).stat()
        if not stat.S_ISREG(before.st_mode):
            raise RowsError(name, "is no regular file; leave it out, or move it away")
        yield
        after = Path(path).stat()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise RowsError(name, f"cannot be read: {why[:500] or type(error).__name__}") from error
    except (ArgumentTypeError, ArgumentValueError) as error:
        raise RowsError(name, str(error)) from error
    if _identity(before) != _identity(after):
        raise RowsError(name, "changed while it was read; hash again when nothing writes to it")


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Turn what damaged buffers lead to, once the values in them are looked at, into RowsError."""
    try:
        yield
    except RowsError:
        raise
    except (pa.ArrowException, ValueError, LookupError) as error:
        raise RowsError(name, f"cannot be read: {error}") from error


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _checked(files: Files) -> list[tuple[str, str]]:
    if isinstance(files, (str, bytes)) or not all(isinstance(file, tuple) and len(file) == 2 for file in files):
        raise ArgumentTypeError(f"files must be pairs (name, path), got {brief(files)}")
    places = [(name, os.fspath(path)) for name, path in files]
    if not places:
        raise ArgumentValueError("files is empty: there is no table to read")
    for name, _ in places:
        _opener(name)
    return places


def _opener(name: str) -> Any:
    lower = name.lower()
    for suffix, opener in _OPENERS.items():
        if lower.endswith(suffix):
            return opener
    raise ArgumentValueError(
        f"{name} is no table that is known by its name: {' '.join(SUFFIXES)}. "
        "Leave it out by an ignore rule, or hash by content='bytes'"
    )


def _chosen(columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise ArgumentTypeError(f"columns must be a list of names, got {brief(columns)}")
    return list(dict.fromkeys(columns))


def _pick(schema: Any, chosen: list[str] | None) -> list[int]:
    names = schema.names
    if chosen is None:
        return list(range(len(names)))
    missing = [one for one in chosen if one not in names]
    if missing:
        raise ArgumentValueError(f"there is no column {missing[0]!r}; the file has {brief(names)}")
    return [i for i, one in enumerate(names) if one in chosen]


def _unlike(common: Schema, found: Schema, first: str) -> str:
    """Return in what a file's schema differs from that of the first file."""
    end = "; give all files the same columns, or hash by content='bytes'"
    if sorted(common) == sorted(found):
        return f"has the columns of {first} in another order{end}"
    here, there = dict(found), dict(common)
    for name, kind in common:
        if name not in here:
            return f"has no column {name!r}, which {first} has ({kind}){end}"
        if here[name] != kind:
            return f"column {name!r} is {here[name]}, but {kind} in {first}{end}"
    for name, kind in found:
        if name not in there:
            return f"has the column {name!r} ({kind}), which {first} has not{end}"
    return f"has columns of the same name in another order than {first}{end}"
