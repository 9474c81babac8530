"""Arrow's IPC files (Feather too) and streams: a block is a record batch, and of a mapped file nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

from detdata.corpora.arrow_messages import (
    MOST_PACKED,
    Found,
    Messages,
    check_batch,
    check_dictionary,
    check_places,
    find_messages,
    needed,
)
from detdata.corpora.arrow_rows import (
    ArrowRows,
    arrow_errors,
    check_columns,
    has_dictionary,
    loose_type,
    stored_column,
    stored_type,
)
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.errors import ArgumentValueError

_VIEW_BYTES = 1024  # that a view of one column takes of memory, at most


@final
class Arrow:
    """Rows of Arrow's files and streams as dicts. Mapped where they are neither compressed nor use dictionaries."""

    name: ClassVar[str] = "arrow"
    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")
    scans: ClassVar[bool] = False
    stores: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are, from its footer and the metadata of its batches."""
        if options.rows_per_block is not None:
            raise ArgumentValueError("rows_per_block= is for formats without blocks; here a block is a record batch")
        found = find_messages(file)
        schema = _schema(file, *found.schema)
        _check_rows(file, found, schema)
        dictionaries = any(has_dictionary(field.type) for field in schema)
        arrays = _arrays("", found.batches)
        if dictionaries:
            arrays |= {**_arrays("dictionary_", found.dictionaries), "ids": found.ids, "deltas": found.deltas}
        return Outline(
            block_sizes=found.rows,
            arrays=arrays,
            meta={
                "schema": list(found.schema),
                "columns": [[field.name, str(stored_type(field.type))] for field in schema],
                "decoded": dictionaries or found.packed or found.swapped,
                "stream": found.stream,
            },
        )

    def open(self, file: DataFile, outline: Outline, options: Options) -> _Shard:
        """Open a file for reading."""
        return _Shard(file, outline, options.columns)

    def schema(self, outline: Outline, options: Options) -> list[str]:
        """Return names and types of the columns."""
        columns = {str(name): str(kind) for name, kind in outline.meta["columns"]}
        chosen = columns if options.columns is None else [name for name in options.columns if name in columns]
        return [f"{name}: {columns[name]}" for name in chosen]


def _arrays(prefix: str, messages: Messages) -> dict[str, Any]:
    return {
        f"{prefix}starts": messages.starts,
        f"{prefix}heads": messages.heads,
        f"{prefix}bodies": messages.bodies,
    }


def _messages(prefix: str, outline: Outline) -> Messages:
    parts = [outline.arrays[f"{prefix}{name}"].astype(np.int64) for name in ("starts", "heads", "bodies")]
    return Messages(*parts)


def _check_rows(file: DataFile, found: Found, schema: Any) -> None:
    """Raise CorpusError for a batch with more rows than its bytes can hold, if it has a column that takes any."""
    types = pa.types
    takes = (types.is_primitive, types.is_dictionary, types.is_string, types.is_binary, types.is_list)
    if any(test(stored_type(field.type)) for field in schema for test in takes):
        beyond = found.rows // (8 * MOST_PACKED if found.packed else 8) > found.batches.bodies
        if beyond.any():
            block = int(beyond.argmax())
            raise CorpusError(
                file.name,
                f"claims {int(found.rows[block])} rows in {int(found.batches.bodies[block])} bytes, which cannot be",
                block=block,
            )


def _schema(file: DataFile, start: int, length: int) -> Any:
    with arrow_errors(file.name):
        schema = pa.ipc.read_schema(pa.py_buffer(file.read(start, length)))
        names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CorpusError(file.name, f"has two columns {twice!r}, and a row can have one of a name")
    return schema


@final
class _Shard:
    def __init__(self, file: DataFile, outline: Outline, columns: tuple[str, ...] | None) -> None:
        self._file = file
        self._sizes = outline.block_sizes
        self._batches = _messages("", outline)
        self._decoded, self._stream = bool(outline.meta["decoded"]), bool(outline.meta["stream"])
        size = file.identity().size
        start, length = (int(value) for value in outline.meta["schema"])
        check_places(file.name, self._batches, size)
        if self._batches.starts.size != self._sizes.size:
            raise CorpusError(file.name, "is known to have another number of batches than of blocks; delete its index")
        self._head = file.read(start, length)
        schema = _schema(file, start, length)
        self._names = tuple(schema.names) if columns is None else columns
        missing = [name for name in self._names if name not in schema.names]
        if missing:
            raise CorpusError(file.name, f"has no column {missing[0]!r}, only {', '.join(schema.names)}")
        self._chosen = [schema.get_field_index(name) for name in self._names]
        self._plain = pa.schema([pa.field(field.name, stored_type(field.type)) for field in schema])
        self._loose = [loose_type(self._plain.field(number).type) for number in self._chosen]
        self._words: list[tuple[int, int, int]] = []
        if "ids" in outline.arrays:
            self._dictionaries = _messages("dictionary_", outline)
            check_places(file.name, self._dictionaries, size)
            arrays = (self._dictionaries.starts, outline.arrays["ids"], outline.arrays["deltas"])
            self._words = list(zip(*(array.tolist() for array in arrays), strict=True))
        self._map = None if file.path is None or self._decoded else pa.py_buffer(file.map())

    def load(self, block: int) -> Buffer:
        """Return a batch: of a mapped file as many bytes of it as its view takes of memory, else its message."""
        start, head, body = self._place(block)
        if self._map is not None:
            return self._map.slice(start, min(head + body, _VIEW_BYTES * len(self._names)))
        return self._decode(block) if self._decoded else self._file.read(start, head + body)

    def view(self, block: int, buffer: Buffer) -> ArrowRows:
        """Return the rows of a batch."""
        name = self._file.name
        with arrow_errors(name, block):
            if self._decoded:
                with pa.ipc.open_stream(pa.py_buffer(buffer)) as reader:
                    batch = reader.read_next_batch()
                columns = batch.columns
            else:
                if self._map is not None:
                    start, head, body = self._place(block)
                    buffer = self._map.slice(start, head + body)
                batch = pa.ipc.read_record_batch(pa.py_buffer(buffer), self._plain)
                columns = [batch.column(number) for number in self._chosen]
            check_columns(columns, loose=None if self._decoded else self._loose)
        if batch.num_rows != int(self._sizes[block]):
            raise CorpusError(
                name, f"has {batch.num_rows} rows where {int(self._sizes[block])} were known of", block=block
            )
        return ArrowRows(name, block, self._names, columns)

    def _place(self, block: int) -> tuple[int, int, int]:
        batches = self._batches
        return int(batches.starts[block]), int(batches.heads[block]), int(batches.bodies[block])

    def _decode(self, block: int) -> Buffer:
        """Return a batch, unpacked and with its dictionaries, as a stream of its own."""
        start, head, body = self._place(block)
        batch = self._file.read(start, head + body)
        check_batch(self._file.name, batch, head, block)
        parts = [self._head, *self._dictionary_parts(block, start), batch]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(self._chosen), use_threads=False)
        with arrow_errors(self._file.name, block):
            with pa.ipc.open_stream(pa.py_buffer(b"".join(parts)), options=options) as reader:
                found = reader.read_next_batch()
            check_columns(found.columns)
            columns = [stored_column(found.column(name)) for name in self._names]
            check_columns(columns)
            decoded = pa.RecordBatch.from_arrays(columns, list(self._names))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, decoded.schema) as writer:
                writer.write_batch(decoded)
            return sink.getvalue()

    def _dictionary_parts(self, block: int, start: int) -> Iterable[bytes]:
        for number in needed(self._words, start if self._stream else None) if self._words else ():
            at, head, body = (
                int(values[number])
                for values in (self._dictionaries.starts, self._dictionaries.heads, self._dictionaries.bodies)
            )
            part = self._file.read(at, head + body)
            check_dictionary(self._file.name, part, head, block)
            yield part
