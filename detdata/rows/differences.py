"""Which rows differ, where both tables are at hand: read side by side, compared value by value.

Values are compared by 64 bits each: two different ones are taken for equal once in 10^19.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from detdata.checks import as_int, visible
from detdata.rows.build import node_of
from detdata.rows.cutting import slices
from detdata.rows.reading import Batch, Files, decoding, read_table
from detdata.rows.report import keyed
from detdata.rows.unordered import ROWS_AT_ONCE, Values, joined, values_of


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that differs. row: its number in the tables; old, new: (file, row in it); columns: those that differ."""

    row: int
    old: tuple[str, int]
    new: tuple[str, int]
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return visible(f"row {self.new[1]:,} of {self.new[0]}: {', '.join(self.columns)}")


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """Rows that differ at equal positions. Rows count from 0.

    count: how many differ among those that both tables have. old_rows, new_rows: how many there are. rows: the first of
    those that differ. columns: how many rows differ in each column, for those that differ in any.
    """

    count: int
    old_rows: int
    new_rows: int
    rows: tuple[RowDifference, ...] = ()
    columns: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON."""
        rows = [
            {"row": row.row, "old": list(row.old), "new": list(row.new), "columns": list(row.columns)}
            for row in self.rows
        ]
        numbers = {"count": self.count, "old_rows": self.old_rows, "new_rows": self.new_rows}
        return {**numbers, "rows": rows, "columns": dict(self.columns)}

    def lines(self) -> list[str]:
        """Return what differs among the rows that both tables have, for people; nothing where no row does."""
        if not self.count:
            return []
        where = ""
        if self.rows:
            file, row = self.rows[0].new
            where = visible(f", near row {row:,} of {file}")
        lines = [f"{self.count:,} {'row' if self.count == 1 else 'rows'} changed{where}"]
        lines += [f"  {row}" for row in self.rows]
        if self.rows and self.count > len(self.rows):
            lines.append(f"  … and {self.count - len(self.rows):,} more")
        return lines

    def __str__(self) -> str:
        lines = self.lines()
        if self.old_rows != self.new_rows:
            lines.append(f"number of rows: {self.old_rows:,} -> {self.new_rows:,}")
        return "\n".join(lines) or "no row differs"


def first_row_differences(old_files: Files, new_files: Files, limit: int = 20) -> RowDifferences:
    """Compare the rows of two tables at equal positions, in the columns that both have with one type.

    old_files, new_files: pairs (name, path), as for `hash_rows`. limit: how many rows to name, at least 0.
    A row that was inserted makes all rows after it differ. Raises what `hash_rows` raises. Memory: a batch of each
    table. Cost: reading both, and what the order-free digest costs.

    >>> import pyarrow as pa, pyarrow.csv
    >>> for name, last in (("old.csv", "y"), ("new.csv", "z")):
    ...     pyarrow.csv.write_csv(pa.table({"a": ["x", last]}), name)
    >>> print(first_row_differences([("old.csv", "old.csv")], [("new.csv", "new.csv")]))
    1 row changed, near row 1 of new.csv
      row 1 of new.csv: a
    """
    limit = as_int(limit, "limit")
    (old_schema, old_batches), (new_schema, new_batches) = read_table(old_files), read_table(new_files)
    before, after = keyed(old_schema), keyed(new_schema)
    shared = [key for key in before if key in after and old_schema[before[key]][1] == new_schema[after[key]][1]]
    old = _Side(old_files, old_batches, [before[key] for key in shared])
    new = _Side(new_files, new_batches, [after[key] for key in shared])
    names = [name for name, _ in shared]
    found: list[RowDifference] = []
    totals = np.zeros(len(shared), np.int64)
    count = 0
    while (size := min(old.ready(), new.ready())) > 0:
        unlike = np.stack(
            [old.take(i, size).differ(new.take(i, size)) for i in range(len(shared))] or [np.zeros(size, np.bool_)]
        )
        totals += unlike.sum(axis=1)[: len(shared)]
        rows = np.flatnonzero(unlike.any(axis=0))
        count += rows.size
        for row in rows[: limit - len(found)].tolist():
            columns = tuple(name for name, differs in zip(names, unlike[:, row].tolist(), strict=False) if differs)
            found.append(RowDifference(old.row + row, old.place(row), new.place(row), columns))
        old.skip(size)
        new.skip(size)
    counts = {name: int(total) for name, total in zip(names, totals, strict=True) if total}
    return RowDifferences(count, old.rest(), new.rest(), tuple(found), counts)


class _Side:
    """One of the tables, read on as its rows are compared."""

    def __init__(self, files: Files, batches: Iterator[Batch], columns: Sequence[int]) -> None:
        self.row = 0  # number of the next row to compare, in the table
        self._files = files
        self._columns = columns
        self._chunks = self._read(batches)
        self._chunk = _Chunk(0, 0, 0, [])
        self._start = 0  # of the next row, in the chunk

    def ready(self) -> int:
        """Return how many rows can be compared now; 0 at the end."""
        while self._start == self._chunk.rows:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk, self._start = chunk, 0
        return self._chunk.rows - self._start

    def take(self, column: int, rows: int) -> Values:
        """Return the values of the next rows."""
        return self._chunk.values[column].part(self._start, rows)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file, and the row in it, of one of the rows that are ready."""
        return self._files[self._chunk.file][0], self._chunk.first + self._start + row

    def skip(self, rows: int) -> None:
        """Go on to the rows after these."""
        self._start += rows
        self.row += rows

    def rest(self) -> int:
        """Read on to the end; return the number of all rows."""
        while rows := self.ready():
            self.skip(rows)
        return self.row

    def _read(self, batches: Iterator[Batch]) -> Iterator[_Chunk]:
        counts = [0] * len(self._files)
        for batch in batches:
            for start in range(0, batch.rows, ROWS_AT_ONCE):
                rows = min(ROWS_AT_ONCE, batch.rows - start)
                with decoding(self._files[batch.file][0]):
                    values = [_values(batch.columns[i].slice(start, rows)) for i in self._columns]
                yield _Chunk(batch.file, counts[batch.file] + start, rows, values)
            counts[batch.file] += batch.rows


def _values(array: Any) -> Values:
    return joined([values_of(node_of(part, coded=True)) for part in slices(array, ROWS_AT_ONCE, coded=True)])


class _Chunk(NamedTuple):
    """Rows of one file. first: number of the first one in it; values: `rows` of each column."""

    file: int
    first: int
    rows: int
    values: list[Values]
