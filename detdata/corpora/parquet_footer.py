"""The footers of Parquet files, and the bytes that a row group needs: found, checked and read, each of them once."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

from detdata.corpora.arrow_rows import arrow_errors
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 8  # bytes behind the footer: how long it is, and the magic
_GUESS = 1 << 16  # bytes asked for at first of a file that is far away: mostly the whole footer
_GAP = 1 << 16  # bytes between two chunks of such a file that are rather read than asked around
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_WIDE = 8  # bytes of a value of another type, at least


def read_footer(file: DataFile) -> Any:
    """Return the pyarrow.parquet.FileMetaData of a file; nothing but its footer is read. Raises CorpusError.

    pyarrow is shown the footer alone, so no length in it can send it elsewhere.
    """
    size = file.identity().size
    tail = file.read(max(0, size - _GUESS), min(size, _GUESS)) if file.path is None else b""
    if not tail:
        tail = file.read(max(0, size - _TAIL), min(size, _TAIL))
    if tail.endswith(_ENCRYPTED):
        raise CorpusError(file.name, "is encrypted, and encrypted Parquet is not read")
    if size < _TAIL + len(_MAGIC) or not tail.endswith(_MAGIC):
        raise CorpusError(
            file.name, "is cut off, was never finished, or is no Parquet: it does not end with its footer"
        )
    length = int.from_bytes(tail[-_TAIL:-4], "little")
    whole = length + _TAIL
    if not 0 < length <= size - _TAIL - len(_MAGIC):
        raise CorpusError(file.name, f"has a footer of {length} bytes, which cannot be: the file has {size}")
    footer = tail[-whole:] if whole <= len(tail) else file.read(size - whole, whole)
    with arrow_errors(file.name, what="Parquet"):
        return pq.read_metadata(pa.BufferReader(_MAGIC + footer))


def chunks_of(metadata: Any, fields: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return the numbers of the chunks that hold the columns of these names. fields: of the Arrow schema, all of them.

    A column that has members has a chunk for each. Names of members are not looked at: a dot in a name is a dot.
    """
    found: list[int] = []
    first = 0
    for field in fields:
        after = first + _leaves(field.type)
        if field.name in names:
            found += range(first, after)
        first = after
    if first != metadata.num_columns:
        raise pa.ArrowInvalid(f"its schema has {first} columns of values, and its footer {metadata.num_columns}")
    return found


def _leaves(kind: Any) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields)) if kind.num_fields else 1


def least_bytes(metadata: Any, number: int, chunks: Sequence[int]) -> int:
    """Return how many bytes the values of these chunks of a row group take in memory at least, however few in the file.

    As for `longest_row`, pyarrow must have been asked before whether the descriptions of its chunks are sound.
    """
    group, total = metadata.row_group(number), 0
    for i in chunks:
        chunk = group.column(i)
        width = _WIDTHS.get(chunk.physical_type) or metadata.schema.column(i).length or _WIDE
        total += max(chunk.num_values, group.num_rows) * max(1, width)
    return total


def longest_row(metadata: Any, number: int, chunks: Sequence[int]) -> float:
    """Return the bytes of a row if each value that a dictionary may repeat were as long as its whole chunk."""
    group, total = metadata.row_group(number), 0.0
    for i in chunks:
        chunk = group.column(i)
        if chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY":
            items = max(1.0, chunk.num_values / max(1, group.num_rows))  # in a row, on the average
            total += items * max(chunk.total_uncompressed_size, chunk.total_compressed_size)
    return total


def read_chunks(file: DataFile, group: Any, chunks: Sequence[int], block: int) -> ChunkFile:
    """Read these chunks of a row group, those that lie side by side at once. Raises CorpusError."""
    size = file.identity().size
    places = []
    for number in chunks:
        chunk = group.column(number)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        if not (len(_MAGIC) <= start <= size and 0 <= length <= size - start):
            raise CorpusError(
                file.name,
                f"tells of column {chunk.path_in_schema} at bytes {start} … {start + length}, and has {size}",
                block=block,
            )
        places.append((start, start + length))
    gap = _GAP if file.path is None else 0
    pieces = [(start, file.read(start, stop - start)) for start, stop in _joined(sorted(places), gap)]
    return ChunkFile(file, size, pieces)


def _joined(places: list[tuple[int, int]], gap: int) -> Iterator[tuple[int, int]]:
    begin = end = -1
    for start, stop in places:
        if begin < 0:
            begin, end = start, stop
        elif start <= end + gap:
            end = max(end, stop)
        else:
            yield begin, end
            begin, end = start, stop
    if begin >= 0:
        yield begin, end


@final
class ChunkFile:
    """A file of which some pieces are in memory. pieces: (first byte, bytes); whatever else is asked for is read."""

    __slots__ = ("_file", "_pieces", "_size")

    def __init__(self, file: DataFile, size: int, pieces: Sequence[tuple[int, bytes]]) -> None:
        self._file, self._size, self._pieces = file, size, pieces

    def opened(self) -> Any:
        """Return it as a file of pyarrow, at its beginning."""
        return pa.PythonFile(_Reader(self._file, self._size, self._pieces), "r")


class _Reader(io.RawIOBase):
    def __init__(self, file: DataFile, size: int, pieces: Sequence[tuple[int, bytes]]) -> None:
        self._file, self._size, self._pieces = file, size, pieces
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, length: int = -1) -> bytes:
        start = self._at
        most = max(0, self._size - start)
        length = most if length < 0 else min(length, most)
        self._at += length
        for first, piece in self._pieces:
            if first <= start and start + length <= first + len(piece):
                return piece[start - first : start - first + length]
        return self._file.read(start, length)
