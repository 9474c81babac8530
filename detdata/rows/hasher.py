"""Rows in, version out: both digests of a table, made in one pass and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from detdata.algorithms import check_algorithm, new_hasher
from detdata.checks import as_int
from detdata.errors import ArgumentValueError
from detdata.rows.build import node_of
from detdata.rows.cutting import slices
from detdata.rows.hashing import prefixed
from detdata.rows.ordered import ColumnBlock
from detdata.rows.reading import Batch, Files, Stretch, decoding, read_stretches
from detdata.rows.schema import Schema
from detdata.rows.unordered import ROWS_AT_ONCE, RowMix, RowSums, values_of
from detdata.rows.version import BLOCK_ROWS, MARK, RowsVersion


def hash_rows(
    files: Files,
    algorithm: str = "xxh3-128",
    *,
    columns: Sequence[str] | None = None,
    unordered: bool = True,
    stop: int | None = None,
    progress: Callable[[int], None] | None = None,
    on_batch: Callable[[Batch], None] | None = None,
) -> RowsVersion:
    """Return the version of the rows of tables, one file's after another's.

    files: pairs (name, path); the name's suffix says how the file is read: .parquet .pq .arrow .arrows .ipc .feather
    .csv .tsv .jsonl .ndjson, the last four also with .gz or .zst. algorithm: "xxh3-128", "sha256" or "blake3".
    columns: those that count, or None for all. unordered: whether to make the order-free digest too, which costs more
    than the ordered one. stop: give also, as `.prefix`, the version of the first `stop` rows alone (None if there are
    fewer). progress: called after each batch, or group of rows read by column, with the number of rows so
    far; on_batch: with the batch itself, without its columns where they were read one by one.

    How the rows are stored does not count: row groups, record batches, compression, encodings, dictionaries, the width
    of offsets, what lies under a null, how the rows are spread over files. Values, names, order and types of columns,
    and the order of rows do; NaN is one value, -0.0 and 0.0 are two.
    Raises RowsError (a ValueError) naming the file; ValueError, TypeError for arguments. Memory: of Parquet, whatever
    the size of its row groups, the page and the dictionary of the column that is read, some MiB of values, and 8 to 16
    bytes a row of a group of up to 2^20 rows; of a larger group, pages and dictionaries of all columns. Else a record
    batch, or some blocks of text (JSON: of 1 MiB, or seven times the longest line; CSV: 40 of 128 KiB, of 8 MiB where
    a row is longer). Values that a dictionary repeats are written out some MiB at a time.
    Cost: reading, and about 0.2 s a GB of decoded values for the ordered digest, 1 to 2 s for the other.

    >>> import pyarrow as pa, pyarrow.csv
    >>> pyarrow.csv.write_csv(pa.table({"a": ["x", "y"]}), "table.csv")
    >>> version = hash_rows([("table.csv", "table.csv")])
    >>> version.schema, version.rows, version.digest
    ((('a', 'string'),), 2, 'cad337a856c7b6177636bc8572c34870')
    """
    stop = None if stop is None else as_int(stop, "stop")
    check_algorithm(algorithm)  # an unknown one is an error before any file is read
    schema, stretches = read_stretches(files, columns)
    hasher = RowsHasher(schema, algorithm, unordered=unordered)
    counts = [0] * len(files)
    ends: list[str] = []
    prefix = _version(hasher, files, counts) if stop == 0 else None
    for batch in _ways(stretches, hasher, stop):
        while len(ends) < batch.file:
            ends.append(hasher.mark())
        cut = batch.rows if stop is None else min(max(stop - hasher.rows, 0), batch.rows)
        for start, end in ((0, cut), (cut, batch.rows)):
            with decoding(files[batch.file][0]):
                if isinstance(batch, Batch):
                    hasher.update([column.slice(start, end - start) for column in batch.columns], end - start)
                elif end > start and batch.parts is not None:
                    hasher.update_by_column(batch.parts, batch.rows)
            counts[batch.file] += end - start
            if prefix is None and hasher.rows == stop:
                prefix = _version(hasher, files, counts)
        if progress is not None:
            progress(hasher.rows)
        if on_batch is not None:
            on_batch(batch if isinstance(batch, Batch) else Batch(batch.file, batch.rows, ()))
    ends += [hasher.mark()] * (len(files) - len(ends))
    return replace(_version(hasher, files, counts), ends=tuple(ends), prefix=prefix)


def _ways(stretches: Iterator[Stretch], hasher: RowsHasher, stop: int | None) -> Iterator[Stretch | Batch]:
    """Yield stretches that can be read by column, but for one in which `stop` lies, and the batches of all others."""
    for stretch in stretches:
        inside = stop is not None and hasher.rows < stop < hasher.rows + stretch.rows
        if stretch.parts is None or inside:
            yield from stretch.batches()
        else:
            yield stretch


def _version(hasher: RowsHasher, files: Files, counts: Sequence[int]) -> RowsVersion:
    return hasher.version([(name, count) for (name, _), count in zip(files, counts, strict=True)])


def add_rows(sums: RowSums, columns: Sequence[Any], rows: int) -> None:
    """Add `rows` rows to the sums: one Arrow array for each column."""
    mix = RowMix(rows)
    for number, column in enumerate(columns):
        _mix(mix, number, 0, column)
    mix.add_to(sums)


def _mix(mix: RowMix, number: int, row: int, array: Any) -> None:
    """Mix in the values that a column has from a row on."""
    for part in slices(array, ROWS_AT_ONCE, coded=True):
        mix.add(number, row, values_of(node_of(part, coded=True)))
        row += len(part)


class RowsHasher:
    """Both digests of the rows given so far.

    schema: (name, logical type) of each column. Not for several threads at once.

    >>> import pyarrow as pa
    >>> hasher = RowsHasher((("a", "int64"),), "xxh3-128")
    >>> hasher.update([pa.array([1, 2])], 2)
    >>> hasher.version([("here", 2)]).rows
    2
    """

    __slots__ = ("_algorithm", "_blocks", "_columns", "_marks", "_schema", "_schema_bytes", "_sums", "rows")

    def __init__(self, schema: Schema, algorithm: str, *, unordered: bool = True) -> None:
        self.rows = 0
        self._schema = schema
        self._algorithm = algorithm
        self._schema_bytes = len(schema).to_bytes(8, "little") + b"".join(
            prefixed(text) for column in schema for text in column
        )
        self._blocks = new_hasher(algorithm, b"detdata.rows/1\0" + self._schema_bytes)
        self._marks: list[tuple[str, ...]] = []
        self._columns = self._new_columns()
        self._sums = RowSums() if unordered else None

    def update(self, columns: Sequence[Any], rows: int) -> None:
        """Add rows: one Arrow array of `rows` values for each column, of the type that the schema names."""
        self.update_by_column(lambda i: iter((columns[i],)), rows)

    def update_by_column(self, parts: Callable[[int], Iterator[Any]], rows: int) -> None:
        """Add rows that come a column at a time: parts(i) gives the Arrow arrays of column i, of `rows` values in all.

        Memory: of the columns, an array; and for the order-free digest 8 bytes a row, 16 where there are nulls.
        """
        mix = None if self._sums is None else RowMix(rows)
        closed: list[list[bytes]] = []  # of each column, the digests of the blocks that end here
        for number, block in enumerate(self._columns):
            row, digests = self.rows, list[bytes]()
            for array in parts(number):
                if mix is not None:
                    _mix(mix, number, row - self.rows, array)
                start = 0
                while start < len(array):
                    count = min(BLOCK_ROWS - row % BLOCK_ROWS, len(array) - start)
                    for part in slices(array.slice(start, count), BLOCK_ROWS):
                        block.update(node_of(part))
                    start += count
                    row += count
                    if row % BLOCK_ROWS == 0:
                        digests.append(block.digest())
                        block = self._columns[number] = ColumnBlock(self._algorithm)  # noqa: PLW2901
            if row - self.rows != rows:
                raise ArgumentValueError(f"a column has {row - self.rows} values for {rows} rows")
            closed.append(digests)
        if mix is not None:
            mix.add_to(self._sums)  # type: ignore[arg-type]  # there is none without sums
        for place in range((self.rows + rows) // BLOCK_ROWS - self.rows // BLOCK_ROWS):
            self._add_digests([digests[place] for digests in closed])
        self.rows += rows

    def add_block(self, digests: Sequence[bytes]) -> None:
        """Add a whole block by the digest of each column in it; the order-free digest does not see its rows.

        Raises ValueError within a block.
        """
        if self.rows % BLOCK_ROWS:
            raise ArgumentValueError(f"a block begins every {BLOCK_ROWS} rows, not after {self.rows}")
        self._add_digests(digests)
        self.rows += BLOCK_ROWS

    def _add_digests(self, digests: Sequence[bytes]) -> None:
        self._blocks.update(b"".join(digests))
        self._marks.append(tuple(digest.hex()[:MARK] for digest in digests))

    def mark(self, digests: Sequence[bytes] = (), rows: int = 0) -> str:
        """Return the first 16 hex digits of the digest of the rows so far; more may follow.

        digests: those of each column over the first `rows` rows of the next block, to be counted in, at its beginning.
        """
        if not rows:
            return self._so_far()[0].hex()[:MARK]
        total = self._blocks.copy()
        total.update(b"".join(digests) + (self.rows + rows).to_bytes(8, "little"))
        return total.digest().hex()[:MARK]

    def version(self, files: Sequence[tuple[str, int]], sums: RowSums | None = None) -> RowsVersion:
        """Return the version of the rows so far; more may follow. sums: of all rows, if somebody else made them."""
        sums = self._sums if sums is None else sums
        total, last = self._so_far()
        marks = (*self._marks, *last)
        return RowsVersion(
            algorithm=self._algorithm,
            schema=self._schema,
            rows=self.rows,
            digest=total.hex(),
            unordered="" if sums is None else sums.digest(self.rows, self._schema_bytes),
            blocks=marks,
            files=tuple(files),
        )

    def _so_far(self) -> tuple[bytes, list[tuple[str, ...]]]:
        """Return the digest of the rows so far, and the marks of the block under way, if one is."""
        total = self._blocks.copy()
        marks = [self._close(total)] if self.rows % BLOCK_ROWS else []
        total.update(self.rows.to_bytes(8, "little"))
        return total.digest(), marks

    def _close(self, total: Any) -> tuple[str, ...]:
        """Add the digests of the block under way to `total`; return their marks."""
        digests = [column.digest() for column in self._columns]
        total.update(b"".join(digests))
        return tuple(digest.hex()[:MARK] for digest in digests)

    def _new_columns(self) -> list[ColumnBlock]:
        return [ColumnBlock(self._algorithm) for _ in self._schema]
