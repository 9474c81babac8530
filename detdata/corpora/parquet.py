"""Parquet: a block is a row group, and of it only the columns that are asked for are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from detdata.arrays import Int64Array
from detdata.corpora.arrow_rows import (
    ArrowRows,
    arrow_errors,
    check_columns,
    has_dictionary,
    stored_column,
    stored_type,
)
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.parquet_footer import ChunkFile, chunks_of, least_bytes, longest_row, read_chunks, read_footer
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.errors import ArgumentValueError
from detdata.rows.repeating import check_chunks, widest_row

_AT_ONCE = 1 << 30  # bytes of values that are decoded in one go, at most
_FEW = 128  # rows; decoding fewer in one go is slow
_MOST = 8 << 30  # bytes of values of a row group, beyond which it is refused
_MOST_ROWS = 1 << 40
_STEP = 1 << 16  # bytes that pyarrow is to read at a time where it must not read chunks whole


@final
class Parquet:
    """Rows of Parquet files as dicts. What single rows cost is decoding the row groups that they lie in."""

    name: ClassVar[str] = "parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    scans: ClassVar[bool] = False
    stores: ClassVar[bool] = True
    random: ClassVar[str | None] = "a row of Parquet costs its whole row group"
    keeps: ClassVar[bool] = True
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are, from its footer."""
        if options.rows_per_block is not None:
            raise ArgumentValueError("rows_per_block= is for formats without blocks; here a block is a row group")
        metadata = read_footer(file)
        schema = _schema(file.name, metadata)
        with arrow_errors(file.name, what="Parquet"):
            columns = [[field.name, str(stored_type(field.type))] for field in schema]
        return Outline(block_sizes=_sizes(file.name, metadata), meta={"columns": columns})

    def open(self, file: DataFile, outline: Outline, options: Options) -> _Shard:
        """Open a file for reading: its footer is read."""
        return _Shard(file, outline, options.columns)

    def schema(self, outline: Outline, options: Options) -> list[str]:
        """Return names and types of the columns."""
        columns = {str(name): str(kind) for name, kind in outline.meta["columns"]}
        chosen = columns if options.columns is None else [name for name in options.columns if name in columns]
        return [f"{name}: {columns[name]}" for name in chosen]


def _schema(name: str, metadata: Any) -> Any:
    with arrow_errors(name, what="Parquet"):
        schema = metadata.schema.to_arrow_schema()
        names = schema.names
    if len(set(names)) < len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise CorpusError(name, f"has two columns {twice!r}, and a row can have one of a name")
    return schema


def _sizes(name: str, metadata: Any) -> Int64Array:
    with arrow_errors(name, what="Parquet"):
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    for number, rows in enumerate(sizes):
        if not 0 <= rows <= _MOST_ROWS:
            raise CorpusError(name, f"tells of a row group of {rows} rows", block=number)
    if sum(sizes) != metadata.num_rows:
        raise CorpusError(name, f"tells of {metadata.num_rows} rows, and of {sum(sizes)} in its row groups")
    return np.array(sizes, np.int64)


@final
class _Shard:
    def __init__(self, file: DataFile, outline: Outline, columns: tuple[str, ...] | None) -> None:
        self._file = file
        self._metadata = read_footer(file)
        self._sizes = outline.block_sizes
        if not np.array_equal(_sizes(file.name, self._metadata), self._sizes):
            raise CorpusError(file.name, "is known to have other row groups than it has")
        schema = _schema(file.name, self._metadata)
        self._names = tuple(schema.names) if columns is None else columns
        missing = [name for name in self._names if name not in schema.names]
        if missing:
            raise CorpusError(file.name, f"has no column {missing[0]!r}, only {', '.join(schema.names)}")
        with arrow_errors(file.name, what="Parquet"):
            self._chunks = chunks_of(self._metadata, list(schema), self._names)
            fields = [pa.field(name, stored_type(schema.field(name).type)) for name in self._names]
            self._plain = pa.Table.from_batches([], pa.schema(fields))  # empty_table() imports pandas

    def load(self, block: int) -> Buffer:
        """Return the columns of a row group as a stream of Arrow: mostly of one batch, of none without rows."""
        with arrow_errors(self._file.name, block, "Parquet"):
            table = self._plain
            if self._sizes[block] and self._names:
                table = pa.table(self._columns(block), self._plain.schema).combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            return sink.getvalue()

    def view(self, block: int, buffer: Buffer) -> _BlockRows | ArrowRows:
        """Return the rows of a row group."""
        if not self._names:
            return ArrowRows(self._file.name, block, (), ())
        rows, name = int(self._sizes[block]), self._file.name
        with arrow_errors(name, block, "Parquet"):
            with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
                batches = list(reader)
            for batch in batches:
                check_columns(batch.columns)
        found = sum(batch.num_rows for batch in batches)
        if found != rows:
            raise CorpusError(name, f"has {found} rows where {rows} were known of", block=block)
        return _BlockRows(name, block, self._names, batches, self._plain)

    def _columns(self, block: int) -> list[Any]:
        """Return the columns of a row group, decoded."""
        held = ChunkFile(self._file, self._file.identity().size, ())
        with pq.ParquetFile(held.opened(), metadata=self._metadata, pre_buffer=False, buffer_size=_STEP) as described:
            check_chunks(described, block)  # before anybody asks for the description of a chunk
        group = self._metadata.row_group(block)
        self._bounded(least_bytes(self._metadata, block, self._chunks), block)
        held = read_chunks(self._file, group, self._chunks, block)
        with pq.ParquetFile(
            held.opened(), metadata=self._metadata, pre_buffer=False, page_checksum_verification=True
        ) as file:
            table = self._decoded(file, held, block)
            return [_stored(table.column(field.name), field.type) for field in self._plain.schema]

    def _decoded(self, file: Any, held: ChunkFile, block: int) -> Any:
        rows = int(self._sizes[block])
        repeated = longest_row(self._metadata, block, self._chunks)
        if repeated * _FEW > _AT_ONCE:  # look at the dictionaries themselves, which takes longer
            repeated = widest_row(held.opened, file, block, self._chunks, rows)
        width = max(1.0, repeated, least_bytes(self._metadata, block, self._chunks) / rows)
        step = max(1, int(_AT_ONCE // width))
        names = list(self._names)
        if step >= rows:
            return file.read_row_group(block, columns=names, use_threads=False)
        batches, taken = [], 0
        for batch in file.iter_batches(step, row_groups=[block], columns=names, use_threads=False):
            batches.append(batch)
            taken += batch.nbytes
            self._bounded(taken, block)
        return pa.Table.from_batches(batches)

    def _bounded(self, size: int, block: int) -> None:
        if size > _MOST:
            raise CorpusError(
                self._file.name,
                f"has a row group of {int(self._sizes[block])} rows that unpacks to more than {_MOST >> 30} GiB, "
                "which is more than a block may have; write it anew with smaller row groups, or choose columns=",
                block=block,
            )


def _stored(column: Any, kind: Any) -> Any:
    """Return a column as it is stored. Indices into dictionaries are checked before anything follows them."""
    if has_dictionary(column.type):
        check_columns(column.chunks)
    if kind.equals(column.type):
        return column
    return pa.chunked_array([stored_column(chunk) for chunk in column.chunks], kind)


@final
class _BlockRows:
    """Rows of a row group, mostly of one batch; of several where one could not hold all of its text."""

    __slots__ = ("_edges", "_empty", "_parts")

    def __init__(self, name: str, block: int, names: Sequence[str], batches: Sequence[Any], empty: Any) -> None:
        self._edges = [0, *accumulate(batch.num_rows for batch in batches)]
        self._parts = [
            ArrowRows(name, block, names, batch.columns, first)
            for batch, first in zip(batches, self._edges, strict=False)
        ]
        self._empty = empty

    def take(self, rows: Sequence[int]) -> list[Any]:
        if len(self._parts) == 1:
            return self._parts[0].take(rows)
        return [row for part, local in self._runs(rows) for row in self._parts[part].take(local)]

    def arrow(self, rows: Int64Array) -> Any:
        parts = [self._parts[part].arrow(np.array(local)) for part, local in self._runs(rows.tolist())]
        return pa.Table.from_batches(parts) if parts else self._empty

    def _runs(self, rows: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return rows as runs of one batch each: (batch, rows of it)."""
        runs = groupby(rows, lambda row: bisect_right(self._edges, row) - 1)
        return [(part, [row - self._edges[part] for row in run]) for part, run in runs]
