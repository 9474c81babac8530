"""CSV and TSV as tables: every value is text, no row is lost, and a quote that is never closed is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from detdata.rows.columnar import Opened, batch_groups
from detdata.rows.errors import RowsError
from detdata.rows.opening import open_input

_BLOCKS = (1 << 17, 1 << 23)  # bytes; pyarrow reads 32 blocks ahead, and no row may be longer than one
_MARK = "end"


def open_csv(path: str, name: str, _columns: Sequence[str] | None) -> Opened:
    """Open a CSV or TSV file: the first line names the columns, every value is a string, none is null.

    An empty line is a row where there is one column, and none where there are more. A row may have at most 8 MiB.
    Memory: some 40 blocks, of 128 KiB; of 8 MiB where a row is longer, and where there is an error to be told.
    """
    delimiter = "\t" if ".tsv" in name.lower()[-8:] else ","
    names: list[str] = []
    for block in _BLOCKS:
        try:
            with _reader(_Marked(open_input(path, name), ""), delimiter, [], block) as first:
                names = first.schema.names
            break
        except pa.ArrowInvalid as error:
            if block == _BLOCKS[-1]:
                _tell(error, name)
                raise
    line = delimiter.join([_MARK] * len(names))

    def reader(block: int) -> Any:
        found = _reader(_Marked(open_input(path, name), line), delimiter, names, block)
        if found.schema.names != names:
            raise RowsError(name, "begins with an empty line; take it away: the first line names the columns")
        return found

    schema = pa.schema([(column, pa.string()) for column in names])
    return Opened(schema, batch_groups(_rows(reader, name)))


def _reader(source: _Marked, delimiter: str, names: Sequence[str], block: int) -> Any:
    reading = arrow_csv.ReadOptions(use_threads=False, block_size=block)
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(names) != 1)
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return arrow_csv.open_csv(pa.PythonFile(source, mode="r"), reading, parsing, converting)


def _rows(reader: Callable[[int], Any], name: str) -> Iterator[Any]:
    """Yield the rows by the smallest blocks that have room for each, beginning again where one has not."""
    given = 0
    for block in _BLOCKS:
        seen = 0
        try:
            for batch in _batches(reader(block), name):
                start = min(given - seen, batch.num_rows)
                seen += batch.num_rows
                if seen > given:
                    given = seen
                    yield batch.slice(start)
        except pa.ArrowInvalid as error:
            if block == _BLOCKS[-1]:
                _tell(error, name)
                raise
        else:
            return


def _tell(error: Exception, name: str) -> None:
    """Raise RowsError for what pyarrow says in terms of its own blocks."""
    if "straddl" in str(error):
        most = f"{_BLOCKS[-1] / 2**20:g} MiB"
        raise RowsError(
            name, f"has a row of more than {most}, or ends inside a quoted value; close the quote"
        ) from error
    if "Empty CSV" in str(error):
        raise RowsError(name, "has no line that names the columns, or a quote in it that is never closed") from error


def _batches(reader: Any, name: str) -> Iterator[Any]:
    """Yield the rows, but for the last, which must be the mark: an open quote would have taken it in."""
    with reader:
        held = None
        for batch in reader:
            if batch.num_rows:
                if held is not None:
                    yield held
                held = batch
    if held is None or any(column[-1].as_py() != _MARK for column in held.columns):
        raise RowsError(name, "ends inside a quoted value; close the quote")
    if held.num_rows > 1:
        yield held.slice(0, held.num_rows - 1)


class _Marked:
    """A file whose last line is ended, and with one more after it, if any; nothing is added to an empty file."""

    closed = False

    def __init__(self, source: Any, line: str) -> None:
        self._source = source
        self._line = f"{line}\n".encode() if line else b""
        self._last = b""  # byte read
        self._held = b""  # to be given next
        self._ended = False

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; the added line comes with those before it, if there is room."""
        wanted = max(1, size - len(self._line) - 1)
        while not self._ended and len(self._held) < wanted:
            data: bytes = self._source.read(wanted - len(self._held))
            self._ended = not data
            self._last = data[-1:] or self._last
            self._held += data
            if self._ended and self._last:
                self._held += (b"" if self._last in b"\r\n" else b"\n") + self._line
        cut = min(size, len(self._held))
        # pyarrow takes a CR at the end of one part and an LF at the start of the next for one line end, in quotes too.
        if cut > 1 and self._held[cut - 1 : cut] == b"\r" and not (self._ended and cut == len(self._held)):
            cut -= 1
        part, self._held = self._held[:cut], self._held[cut:]
        return part

    def close(self) -> None:
        self._source.close()
