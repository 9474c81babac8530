"""Parquet and Arrow files, one bounded batch after the other."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from detdata.rows.errors import RowsError
from detdata.rows.opening import open_file

BATCH_BYTES = 4 << 20
BATCH_ROWS = 65_536
_MAGIC = b"ARROW1"
_FEATHER_1 = b"FEA1"

# Parquet's own annotations (JSON, UUID, …) become extension types in some releases of pyarrow; here they never do.
_OPTIONS = {
    name: value
    for name, value in {"arrow_extensions_enabled": False}.items()
    if name in inspect.signature(pq.ParquetFile.__init__).parameters
}


class Opened(NamedTuple):
    """An open table: its Arrow schema, and its record batches, which close the file at their end."""

    schema: Any
    batches: Iterator[Any]


def open_parquet(path: str, _name: str, columns: Sequence[str] | None) -> Opened:
    """Open a Parquet file. At most one row group's column chunks and some 4 MiB of rows are held at a time."""
    file = pq.ParquetFile(open_file(path), pre_buffer=False, buffer_size=1 << 20, **_OPTIONS)
    wanted = None if columns is None else [name for name in file.schema_arrow.names if name in columns]
    return Opened(file.schema_arrow, _parquet_batches(file, wanted))  # batches come in the order of `wanted`


def _parquet_batches(file: Any, columns: Sequence[str] | None) -> Iterator[Any]:
    with file:
        metadata = file.metadata
        size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        width = max(1, size // max(1, metadata.num_rows))
        rows = min(BATCH_ROWS, max(64, BATCH_BYTES // width))
        yield from file.iter_batches(batch_size=rows, columns=columns, use_threads=True)


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
    return Opened(reader.schema, _arrow_batches(source, reader, is_file=is_file))


def _arrow_batches(source: Any, reader: Any, *, is_file: bool) -> Iterator[Any]:
    with source:
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
        for batch in batches:
            batch.validate()  # buffers come as they lie in the file
            yield batch
