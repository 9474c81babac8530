"""Parquet and Arrow files, one bounded batch after the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from detdata.rows.errors import RowsError
from detdata.rows.opening import open_file
from detdata.rows.repeating import check_chunks, rows_at_once

BATCH_BYTES = 2 << 20
BATCH_ROWS = 1 << 14
_BUFFER = 1 << 16  # bytes read ahead, for each column
_SMALL = 4 << 20  # bytes of a row group that may be held whole
_MOST_ROWS = 1 << 20  # of a row group that is read by column: whoever does that holds something for each row
_PART_BYTES = 1 << 19
_KNOWN_ROWS = 65_536
_PART_ROWS = 8192  # where it is not known how long the values are: they may come out of a dictionary
_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"

# Parquet's own annotations (JSON, UUID, …) become extension types in some releases of pyarrow; here they never do.
_OPTIONS = {
    name: value
    for name, value in {"arrow_extensions_enabled": False}.items()
    if name in inspect.signature(pq.ParquetFile.__init__).parameters
}


class Group(NamedTuple):
    """Some rows: as record batches, or, where they are many, a column at a time. Either is read as it is asked for.

    parts: gives the arrays of the column of that name; None where only batches can be had.
    """

    rows: int
    batches: Callable[[], Iterator[Any]]
    parts: Callable[[str], Iterator[Any]] | None


class Opened(NamedTuple):
    """An open table: its Arrow schema, and its rows in groups, which close the file at their end."""

    schema: Any
    groups: Iterator[Group]


def batch_groups(batches: Iterator[Any]) -> Iterator[Group]:
    """Yield each record batch as a group of its own."""
    for batch in batches:
        yield Group(batch.num_rows, partial(iter, (batch,)), None)


def open_parquet(path: str, _name: str, columns: Sequence[str] | None) -> Opened:
    """Open a Parquet file, to be read page by page.

    Held at a time, of the column that is read, or of each where rows are read as batches: a page, packed and unpacked,
    and the dictionary, each of some 1 MiB as most writers make them; and a part of its values, or some rows.
    """
    file = pq.ParquetFile(open_file(path), pre_buffer=False, buffer_size=_BUFFER, **_OPTIONS)
    wanted = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
    return Opened(file.schema_arrow, _parquet_groups(path, file, wanted))  # batches come in the order of `wanted`


def _parquet_groups(path: str, file: Any, columns: Sequence[str] | None) -> Iterator[Group]:
    with file:
        names = file.schema_arrow.names
        # pyarrow chooses columns by name, and takes a dot for the path to a member.
        plain = len(set(names)) == len(names) and not any("." in name for name in names)
        for i in range(file.metadata.num_row_groups):
            check_chunks(file, i)
            group = file.metadata.row_group(i)
            by_column = plain and group.num_rows <= _MOST_ROWS and group.total_byte_size > _SMALL
            parts = partial(_parts, path, file, i) if by_column else None
            yield Group(group.num_rows, partial(_row_batches, path, file, i, columns), parts)


def _row_batches(path: str, file: Any, number: int, columns: Sequence[str] | None) -> Iterator[Any]:
    group = file.metadata.row_group(number)
    paths = (f"{group.column(i).path_in_schema}." for i in range(group.num_columns))
    names = "" if columns is None else tuple(f"{name}." for name in columns)
    chunks = [i for i, place in enumerate(paths) if place.startswith(names)]
    rows = _rows_of(BATCH_BYTES, group.total_byte_size, group.num_rows, BATCH_ROWS)
    rows = rows_at_once(partial(open_file, path), file, number, chunks, rows)
    yield from _released(file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False))


def _parts(path: str, file: Any, number: int, column: str) -> Iterator[Any]:
    group = file.metadata.row_group(number)
    every = ((i, group.column(i)) for i in range(group.num_columns))
    chunks = {i: chunk for i, chunk in every if chunk.path_in_schema.split(".", 1)[0] == column}
    known = all(chunk.physical_type != "BYTE_ARRAY" and chunk.path_in_schema == column for chunk in chunks.values())
    size = sum(chunk.total_uncompressed_size for chunk in chunks.values())
    rows = _rows_of(_PART_BYTES, size, group.num_rows, _KNOWN_ROWS if known else _PART_ROWS)
    rows = rows_at_once(partial(open_file, path), file, number, list(chunks), rows)
    for batch in _released(file.iter_batches(rows, row_groups=[number], columns=[column], use_threads=False)):
        yield batch.column(0)


def _rows_of(wanted: int, size: int, rows: int, most: int) -> int:
    """Return how many of `rows` rows, of `size` bytes, take about the wanted number of bytes."""
    width = max(1, size // max(1, rows))
    return min(most, max(64, wanted // width))


def _released(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches; what reading them took and gave back does not stay with the process."""
    pool = pa.default_memory_pool()
    held = 0
    for batch in batches:
        held += batch.get_total_buffer_size()
        yield batch
        del batch
        if held >= _PART_BYTES:  # it takes longer than a small batch
            pool.release_unused()
            held = 0
    pool.release_unused()


def open_arrow(path: str, name: str, _columns: Sequence[str] | None) -> Opened:
    """Open an Arrow IPC file or stream (Feather V2 is the former); its record batches are read one by one."""
    source = open_file(path)
    try:
        magic = source.read(len(_MAGIC))
        source.seek(0)
        if magic.startswith(_FEATHER_1):
            raise RowsError(name, "is Feather V1; write it again as Feather V2 or Parquet")
        is_file = magic == _MAGIC
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
    except BaseException:
        source.close()
        raise
    return Opened(reader.schema, batch_groups(_arrow_batches(source, reader, is_file=is_file)))


def _arrow_batches(source: Any, reader: Any, *, is_file: bool) -> Iterator[Any]:
    with source:
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
        for batch in batches:
            batch.validate()  # buffers come as they lie in the file
            yield batch
