"""Tables hashed side by side, with the digests that they have one after the other.

The ordered digest is a chain, but what is chained are digests of blocks of rows, each made by itself. Once it is known
how many rows come before a file, all blocks that lie wholly in it can be hashed anywhere. The rows before the first
and after the last of them share a block with rows of other files: these come back as they are, and are hashed where
the chain is; so that they are few, small files go in runs. The order-free digest is a sum, so each run has its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from detdata.algorithms import check_algorithm
from detdata.rows.build import node_of
from detdata.rows.cutting import slices
from detdata.rows.errors import RowsError
from detdata.rows.hasher import RowsHasher, add_rows, hash_rows
from detdata.rows.opening import open_file
from detdata.rows.ordered import ColumnBlock
from detdata.rows.reading import Files, decoding, line_types, read_table
from detdata.rows.schema import Schema
from detdata.rows.unordered import RowSums
from detdata.rows.version import BLOCK_ROWS, RowsVersion

_AHEAD = 8  # runs handed out ahead of the one whose turn it is: each may hold three blocks of rows
_RUN = 4 * BLOCK_ROWS  # rows of a run, at least: one block of them, on the average, is hashed here
_COUNTED = 256  # jobs in which rows are counted, at most


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows, in their order, none of two files unless they are a whole block, hashed.

    rows: how many; columns: their Arrow arrays, or the digests of the block. ends: (rows, digests of each column) up to
    where files end in the block.
    """

    rows: int
    columns: tuple[Any, ...]
    hashed: bool
    ends: tuple[tuple[int, tuple[bytes, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """The share of a run of files in the digests. sums: of all its rows; pieces: all its rows, in their order."""

    schema: Schema
    sums: RowSums
    pieces: tuple[Piece, ...]


def hash_rows_on(
    executor: Executor,
    files: Files,
    algorithm: str = "xxh3-128",
    *,
    stop: int | None = None,
    on_file: Callable[[int], None] | None = None,
) -> RowsVersion:
    """Return what `hash_rows` returns, files being read and hashed by `executor`.

    on_file: called in this thread with the number of each file that is done. `.prefix` has no order-free digest. Files
    whose number of rows stands nowhere in them (all but Parquet) are read twice, as is JSON for its types, here and
    before all else; a table of less than some 500,000 rows is one job. Raises what `hash_rows` raises. Memory: up to
    three blocks of 65,536 rows for each of eight jobs.

    >>> import pyarrow as pa, pyarrow.csv
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> pyarrow.csv.write_csv(pa.table({"a": ["x", "y"]}), "table.csv")
    >>> files = [("table.csv", "table.csv")] * 2
    >>> with ThreadPoolExecutor(2) as executor:
    ...     hash_rows_on(executor, files).digest == hash_rows(files).digest
    True
    """
    check_algorithm(algorithm)
    try:
        version = _hashed(executor, files, algorithm, stop, on_file)
    except RowsError:
        version = None
    # One after the other the error is the same, and the first one, wherever it happened; there is no hurry then.
    return hash_rows(files, algorithm, stop=stop) if version is None else version


def parquet_rows(name: str, path: str) -> int | None:
    """Return the number of rows that a Parquet file says it has; None for another one, and where it does not tell.

    >>> parquet_rows("table.csv", "table.csv") is None
    True
    """
    if not name.lower().endswith((".parquet", ".pq")):
        return None
    try:
        with open_file(path) as source:
            return int(pq.read_metadata(source).num_rows)
    except (pa.ArrowException, OSError):
        return None


def count_rows(files: Files, lines: Any) -> list[int]:
    """Return the number of rows of each file; all but Parquet is read for it. Raises RowsError."""
    counts = []
    for name, path in files:
        told = parquet_rows(name, os.fspath(path))
        counts.append(sum(batch.rows for batch in read_table([(name, path)], lines=lines)[1]) if told is None else told)
    return counts


def hash_run(files: Files, lines: Any, algorithm: str, first: int, counts: Sequence[int], stop: int | None) -> Part:
    """Return the share of some files that follow each other.

    first: the number of their first row in the table; counts: how many rows each has, as counted before. stop: a row at
    which no block may be closed unseen. Raises RowsError.
    """
    schema, batches = read_table(files, lines=lines)
    sums, pieces = RowSums(), list[Piece]()
    columns: list[ColumnBlock] = []
    found = [0] * len(files)
    row, last = first, first + sum(counts)
    stops, ends = set(accumulate(counts, initial=first)), list[tuple[int, tuple[bytes, ...]]]()
    for batch in batches:
        with decoding(files[batch.file][0]):
            add_rows(sums, batch.columns, batch.rows)
            found[batch.file] += batch.rows
            start = 0
            while start < batch.rows:
                begin = row - row % BLOCK_ROWS
                end = begin + BLOCK_ROWS
                count = min(end - row, batch.rows - start)
                arrays = tuple(column.slice(start, count) for column in batch.columns)
                if begin < first or end > last or (stop is not None and begin < stop < end):
                    pieces.append(Piece(count, arrays, hashed=False))
                else:
                    columns = columns or [ColumnBlock(algorithm) for _ in schema]
                    for column, array in zip(columns, arrays, strict=True):
                        for part in slices(array, BLOCK_ROWS):
                            column.update(node_of(part))
                    if row + count == end:
                        digests = tuple(column.digest() for column in columns)
                        pieces.append(Piece(BLOCK_ROWS, digests, hashed=True, ends=tuple(ends)))
                        columns, ends = [], []
                    elif row + count in stops:
                        ends.append((row + count - begin, tuple(column.digest() for column in columns)))
                start += count
                row += count
    for (name, _), count, counted in zip(files, found, counts, strict=True):
        if count != counted:
            raise RowsError(name, f"changed while it was read: it had {counted} rows, and {count} came")
    return Part(schema, sums, tuple(pieces))


def _hashed(
    executor: Executor, files: Files, algorithm: str, stop: int | None, on_file: Callable[[int], None] | None
) -> RowsVersion | None:
    """Return the version, or None if the files are no table of one kind."""
    lines = line_types(files)
    places = [(name, os.fspath(path)) for name, path in files]
    step = -(-len(places) // _COUNTED)
    counting = [(count_rows, (places[i : i + step], lines)) for i in range(0, len(places), step)]
    counts = list(chain(*_in_order(executor, counting)))
    runs = _runs(counts)
    starts = [0, *accumulate(counts)]
    jobs = [
        (
            hash_run,
            (places[run.start : run.stop], lines, algorithm, starts[run.start], counts[run.start : run.stop], stop),
        )
        for run in runs
    ]
    sums = RowSums()
    link: _Chain | None = None
    for run, part in zip(runs, _in_order(executor, jobs), strict=True):
        link = link or _Chain(part.schema, algorithm, [name for name, _ in places], counts, stop)
        if part.schema != link.schema:
            return None
        sums.add(part.sums)
        link.take(part.pieces)
        for number in run if on_file is not None else ():
            on_file(number)  # type: ignore[misc]  # there is one
    return None if link is None else replace(link.version(sums), ends=link.ends(), prefix=link.prefix)


def _runs(counts: Sequence[int]) -> list[range]:
    """Return stretches of files that have enough rows to be hashed together."""
    runs = []
    start = rows = 0
    for number, count in enumerate(counts):
        rows += count
        if rows >= _RUN:
            runs.append(range(start, number + 1))
            start, rows = number + 1, 0
    return [*runs, range(start, len(counts))] if start < len(counts) else runs


class _Chain:
    """The ordered digest, put together from the pieces of one run after the other."""

    def __init__(
        self, schema: Schema, algorithm: str, names: Sequence[str], counts: Sequence[int], stop: int | None
    ) -> None:
        self.schema = schema
        self.prefix: RowsVersion | None = None
        self._hasher = RowsHasher(schema, algorithm, unordered=False)
        self._names, self._counts, self._stop = names, counts, stop
        self._ends = list(accumulate(counts))
        self._marks = dict.fromkeys(self._ends, "")  # by the number of rows up to an end
        self._look()

    def take(self, pieces: Sequence[Piece]) -> None:
        """Add a run's rows."""
        for piece in pieces:
            if piece.hashed:
                for rows, digests in piece.ends:
                    self._marks[self._hasher.rows + rows] = self._hasher.mark(digests, rows)
                self._hasher.add_block(piece.columns)
                self._look()
                continue
            inside = 0 if self._stop is None else min(max(self._stop - self._hasher.rows, 0), piece.rows)
            for start, end in ((0, inside), (inside, piece.rows)):
                self._hasher.update([column.slice(start, end - start) for column in piece.columns], end - start)
                self._look()

    def ends(self) -> tuple[str, ...]:
        """Return the mark of the rows up to the end of each file."""
        return tuple(self._marks[end] for end in self._ends)

    def version(self, sums: RowSums | None) -> RowsVersion:
        """Return the version of the rows so far."""
        files = []
        rest = self._hasher.rows
        for name, count in zip(self._names, self._counts, strict=True):
            files.append((name, min(count, rest)))
            rest -= files[-1][1]
        return self._hasher.version(files, sums)

    def _look(self) -> None:
        if self._marks.get(self._hasher.rows) == "":
            self._marks[self._hasher.rows] = self._hasher.mark()
        if self.prefix is None and self._hasher.rows == self._stop:
            self.prefix = self.version(None)


def _in_order(executor: Executor, jobs: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Iterator[Any]:
    """Yield what jobs return, in their order, a few of them being on their way at a time."""
    waiting: deque[Future[Any]] = deque()
    try:
        for run, arguments in jobs:
            waiting.append(executor.submit(run, *arguments))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
