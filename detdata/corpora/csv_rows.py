"""The rows of one block of CSV, each parsed when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.csv_grid import QUOTE, Grid, find_rows
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

    __slots__ = ("_all_text", "_block", "_buffer", "_dialect", "_grid", "_name")

    def __init__(self, name: str, dialect: Dialect, block: int, size: int, buffer: Buffer) -> None:
        self._name = name
        self._block = block
        self._dialect = dialect
        self._buffer = memoryview(buffer)
        text = np.frombuffer(buffer, np.uint8)
        delimiter = ord(dialect.delimiter)
        bounds = find_rows(text, delimiter, columns=dialect.columns, final=True)
        self._grid = Grid(text, bounds, delimiter)
        if bounds.begins.size != size:
            raise CorpusError(
                name, f"has {bounds.begins.size} rows where its index knows of {size}; was it changed?", block=block
            )
        as_they_are = [(at, None) for at in range(dialect.columns)]
        self._all_text = [(column.number, column.reader) for column in dialect.chosen] == as_they_are

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows as dicts."""
        names = [column.name for column in self._dialect.chosen]
        return [dict(zip(names, self._values(row), strict=True)) for row in rows]

    def arrow(self, rows: Int64Array) -> Any:
        """Return rows as a RecordBatch."""
        values = [self._values(row) for row in rows.tolist()]
        chosen = self._dialect.chosen
        arrays = [pa.array([row[at] for row in values], ARROW_TYPES[column.kind]) for at, column in enumerate(chosen)]
        return pa.record_batch(arrays, names=[column.name for column in chosen])

    def _values(self, row: int) -> list[Any]:
        fields = self._fields(row)
        if self._all_text:
            return fields
        values: list[Any] = []
        for name, number, kind, reader in self._dialect.chosen:
            text = fields[number]
            if reader is None:
                values.append(text)
            elif not text:
                values.append(None)
            else:
                try:
                    values.append(reader(text))
                except (ValueError, KeyError):
                    raise self._error(
                        row,
                        f"column {name!r} holds {brief(text)}, no {kind}; say what it is: "
                        f"column_types={{{name!r}: 'string'}}",
                    ) from None
        return values

    def _fields(self, row: int) -> list[str]:
        grid = self._grid
        if grid.lone_cr[row]:
            raise self._error(row, "has a CR that no LF follows; lines end with LF or CR LF, so put it in quotes")
        if grid.counts[row] != self._dialect.columns:
            raise self._error(row, f"has {grid.counts[row]} fields, and {self._dialect.columns} columns are named")
        begin, end = int(grid.begins[row]), int(grid.ends[row])
        try:
            if not grid.quoted:
                return str(self._buffer[begin:end], "utf-8").split(self._dialect.delimiter)
            cuts = grid.cuts(row)
            begins, ends = [begin, *(cut + 1 for cut in cuts)], [*cuts, end]
            return [self._field(bytes(self._buffer[a:b]), row) for a, b in zip(begins, ends, strict=True)]
        except UnicodeDecodeError as error:
            raise self._error(row, f"is no UTF-8: {error}") from error

    def _field(self, field: bytes, row: int) -> str:
        if field[:1] != b'"':
            return str(field, "utf-8")
        value = field[1:-1]
        if len(field) > 1 and field[-1] == QUOTE:
            if QUOTE not in value:
                return str(value, "utf-8")
            if QUOTE not in value.replace(b'""', b""):
                return str(value.replace(b'""', b'"'), "utf-8")
        raise self._error(row, f"has text after a quoted value: {brief(str(field, 'utf-8', 'replace'))}")

    def _error(self, row: int, reason: str) -> CorpusError:
        return CorpusError(self._name, reason, block=self._block, row=row)
