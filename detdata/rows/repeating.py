"""How many rows of a Parquet file fit into memory, where a few bytes stand for a long value that is there many times.

A chunk of a column tells how many bytes it takes in the file, and nothing of the values that its dictionary repeats.
So the dictionary itself is looked at, where it could matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from detdata.rows import schema as kinds

_MOST_BYTES = 16 << 20  # of values at a time, that come out of dictionaries; some six times as much is held
_UNSUSPECTED = 128 << 20  # bytes of values, if every one were as long as its whole chunk, that may be
_LONG = 1 << 10  # bytes in the file for each value, from which on so few are read at a time that they may be repeated


def check_chunks(file: Any, number: int) -> None:
    """Raise what pyarrow raises for a row group whose chunks are described wrongly. No value is read for it.

    Whoever asks for the description of such a chunk before that, ends the process: pyarrow lets nothing catch it.
    """
    if file.metadata.num_columns:
        next(file.reader.iter_batches(0, row_groups=[number], column_indices=None, use_threads=False), None)


def rows_at_once(opened: Callable[[], Any], file: Any, number: int, columns: Sequence[int], rows: int) -> int:
    """Return how many rows of a row group to read at a time, at most `rows`, at least one.

    As `widest_row`, which see, for as many rows as take a few times 16 MiB.
    """
    return max(1, min(rows, int(_MOST_BYTES // max(1.0, widest_row(opened, file, number, columns, rows)))))


def widest_row(opened: Callable[[], Any], file: Any, number: int, columns: Sequence[int], rows: int) -> float:
    """Return the bytes that a row may have of values that are repeated; 0 where `rows` rows cannot have too many.

    opened: gives the Parquet file, opened anew. file: its ParquetFile. number: of the row group, after `check_chunks`.
    columns: numbers of those of its chunks that are read. Cost: nothing where the values cannot be too many; else the
    first page and the dictionary of these chunks.
    """
    group = file.metadata.row_group(number)
    width, suspects = 0.0, dict[str, float]()
    for i in columns:
        chunk = group.column(i)
        items = max(1.0, chunk.num_values / max(1, group.num_rows))  # in a row, on the average
        size = max(chunk.total_uncompressed_size, chunk.total_compressed_size)
        if rows * items * size <= _UNSUSPECTED or size >= _LONG * chunk.num_values or not chunk.has_dictionary_page:
            continue
        if chunk.physical_type == "BYTE_ARRAY":
            suspects[chunk.path_in_schema] = items
        elif chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
            width += items * file.metadata.schema.column(i).length
    if suspects:
        width += _longest(opened, file.metadata, number, suspects)
    return width


def _longest(opened: Callable[[], Any], metadata: Any, number: int, chunks: dict[str, float]) -> float:
    """Return the bytes of a row of the longest values in the dictionaries of some chunks, by their items in a row."""
    total = 0.0
    for name, items in chunks.items():  # one after the other: their pages are not held together
        with pq.ParquetFile(opened(), metadata=metadata, read_dictionary=[name], buffer_size=1 << 16) as file:
            batch = next(file.iter_batches(1, row_groups=[number], columns=[name], use_threads=False), None)
            if batch is not None:
                total += items * max(map(_longest_in, batch.columns), default=0)
    return total


def _longest_in(array: Any) -> int:
    return max((_longest_value(one) for one in _dictionaries(array)), default=0)


def _dictionaries(array: Any) -> Iterator[Any]:
    """Yield the dictionaries in an array."""
    if kinds.is_extension(array.type):
        yield from _dictionaries(array.storage)
    elif array.type.id == kinds.DICTIONARY:
        yield array.dictionary
    elif array.type.id == kinds.STRUCT:
        for i in range(array.type.num_fields):
            yield from _dictionaries(array.field(i))
    elif array.type.num_fields:
        yield from _dictionaries(array.values)


def _longest_value(values: Any) -> int:
    if values.type.id not in kinds.STRINGS | kinds.BINARIES or not len(values):
        return 0
    return int(pc.max(pc.binary_length(values)).as_py() or 0)
