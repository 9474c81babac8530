"""CSV and TSV as tables: every value is text, no row is lost, and a quote that is never closed is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from detdata.rows.columnar import Opened, batch_groups
from detdata.rows.errors import RowsError
from detdata.rows.opening import open_input

_BLOCK = 8 << 20
_MARK = "end"


def open_csv(path: str, name: str, _columns: Sequence[str] | None) -> Opened:
    """Open a CSV or TSV file: the first line names the columns, every value is a string, none is null.

    An empty line is a row where there is one column, and none where there are more. A row may have at most a block's
    bytes (8 MiB). Memory: some blocks.
    """
    delimiter = "\t" if ".tsv" in name.lower()[-8:] else ","
    with _reader(_Marked(open_input(path, name), ""), delimiter, [], keep_empty=False) as first:
        names = first.schema.names
    marked = _Marked(open_input(path, name), delimiter.join([_MARK] * len(names)))
    reader = _reader(marked, delimiter, names, keep_empty=len(names) == 1)
    if reader.schema.names != names:
        raise RowsError(name, "begins with an empty line; take it away: the first line names the columns")
    return Opened(reader.schema, batch_groups(_batches(reader, name)))


def _reader(source: _Marked, delimiter: str, names: Sequence[str], *, keep_empty: bool) -> Any:
    reading = arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK)
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=not keep_empty)
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return arrow_csv.open_csv(pa.PythonFile(source, mode="r"), reading, parsing, converting)


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
