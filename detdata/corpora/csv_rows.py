"""The rows of one block of CSV, each parsed when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.csv_grid import Grid, find_rows
from detdata.corpora.csv_types import ARROW_TYPES, Reader
from detdata.corpora.errors import CorpusError
from detdata.corpora.protocol import Buffer


class Column(NamedTuple):
    """A column that is asked for. number: its place in the file. kind: its type. reader: of its values; None: text."""

    name: str
    number: int
    kind: str
    reader: Reader | None


class Dialect(NamedTuple):
    """How a file is read. columns: how many it has. chosen: those to give, in this order."""

    delimiter: str
    columns: int
    chosen: tuple[Column, ...]


@final
class CsvRows:
    """The rows of one block. name: of the file. block, size, buffer: its number, how many rows it has, its text.

    Raises CorpusError for another number of rows.
    """

    __slots__ = ("_block", "_broken", "_buffer", "_dialect", "_grid", "_name")

    def __init__(self, name: str, dialect: Dialect, block: int, size: int, buffer: Buffer) -> None:
        self._name = name
        self._block = block
        self._dialect = dialect
        self._buffer = memoryview(buffer)
        text = np.frombuffer(buffer, np.uint8)
        delimiter = ord(dialect.delimiter)
        bounds = find_rows(text, delimiter, columns=dialect.columns, final=True)
        self._grid = Grid(text, bounds, delimiter)
        self._broken = (self._grid.counts != dialect.columns) | self._grid.lone_cr
        if bounds.begins.size != size:
            raise CorpusError(
                name, f"has {bounds.begins.size} rows where its index knows of {size}; was it changed?", block=block
            )

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows as dicts."""
        names = [column.name for column in self._dialect.chosen]
        return [dict(zip(names, values, strict=True)) for values in zip(*self._columns(rows), strict=True)]

    def arrow(self, rows: Int64Array) -> Any:
        """Return rows as a RecordBatch."""
        chosen = self._dialect.chosen
        found = zip(chosen, self._columns(rows.tolist()), strict=True)
        arrays = [pa.array(values, ARROW_TYPES[column.kind]) for column, values in found]
        return pa.record_batch(arrays, names=[column.name for column in chosen])

    def _columns(self, rows: Sequence[int]) -> list[Sequence[Any]]:
        """Return the values of the columns that are asked for, each of all rows."""
        texts = list(zip(*self._fields(rows), strict=True))
        return [self._read(column, texts[column.number], rows) for column in self._dialect.chosen]

    def _read(self, column: Column, texts: Sequence[str], rows: Sequence[int]) -> Sequence[Any]:
        read = column.reader
        if read is None:
            return texts
        values = []
        for row, text in zip(rows, texts, strict=True):
            try:
                values.append(read(text) if text else None)
            except (ValueError, KeyError):
                raise self._error(
                    row,
                    f"column {column.name!r} holds {brief(text)}, no {column.kind}; say what it is: "
                    f"column_types={{{column.name!r}: 'string'}}",
                ) from None
        return values

    def _fields(self, rows: Sequence[int]) -> list[list[str]]:
        grid, buffer, delimiter = self._grid, self._buffer, self._dialect.delimiter
        places = np.asarray(rows, np.int64)
        broken = self._broken[places]
        if broken.any():
            self._tell(int(places[broken][0]))
        found = []
        for row, begin, end in zip(rows, grid.begins[places].tolist(), grid.ends[places].tolist(), strict=True):
            try:
                line = str(buffer[begin:end], "utf-8")
            except UnicodeDecodeError as error:
                raise self._error(row, f"is no UTF-8: {error}") from error
            found.append(self._unquoted(row, begin, end) if grid.quoted and '"' in line else line.split(delimiter))
        return found

    def _unquoted(self, row: int, begin: int, end: int) -> list[str]:
        cuts = self._grid.cuts(row)
        fields = []
        for start, stop in zip([begin, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True):
            field = str(self._buffer[start:stop], "utf-8")
            if field[:1] == '"':
                value = field[1:-1]
                if len(field) < 2 or field[-1] != '"' or '"' in value.replace('""', ""):
                    raise self._error(row, f"has text after a quoted value: {brief(field)}")
                field = value.replace('""', '"')
            fields.append(field)
        return fields

    def _tell(self, row: int) -> NoReturn:
        if self._grid.lone_cr[row]:
            raise self._error(row, "has a CR that no LF follows; lines end with LF or CR LF, so put it in quotes")
        raise self._error(row, f"has {self._grid.counts[row]} fields, and {self._dialect.columns} columns are named")

    def _error(self, row: int, reason: str) -> CorpusError:
        return CorpusError(self._name, reason, block=self._block, row=row)
