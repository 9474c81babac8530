"""Windows of tokens: a run of integers cut into rows of one length, wherever in a file the run lies.

Row i is tokens i · seq_len … (i + 1) · seq_len - 1 of the run, as int64. What is left at the end of a file and fills no
row is dropped; no row crosses files. With next_token a row has one token more, the first of the next row: its inputs
are row[:-1] and its targets row[1:], and every token but the first is a target once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Buffer, Options, Outline
from detdata.errors import ArgumentTypeError, ArgumentValueError

COLUMN = "tokens"  # what windows are called as columns
NEXT_TOKEN = "next_token"  # noqa: S105 - the name of an option
BLOCK_BYTES = 1 << 20  # of the file, about, that make a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Where the windows of a file are.

    start: first byte of the run. tokens: it has. dtype: of one. seq_len: tokens from one row's first to the next's.
    next_token: whether a row has one token more. rows_per_block: rows of every block but the last.

    >>> cut = Windows(start=0, tokens=10, dtype=np.dtype("uint16"), seq_len=4, next_token=True, rows_per_block=100)
    >>> cut.rows, cut.width
    (2, 5)
    """

    start: int
    tokens: int
    dtype: np.dtype[Any]
    seq_len: int
    next_token: bool
    rows_per_block: int

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return max(0, self.tokens - self.next_token) // self.seq_len

    @property
    def width(self) -> int:
        """Tokens of a row."""
        return self.seq_len + self.next_token

    def rows_of(self, block: int) -> int:
        """Rows of a block."""
        return min(self.rows_per_block, self.rows - block * self.rows_per_block)


def windows_of(start: int, tokens: int, dtype: np.dtype[Any], options: Options) -> Windows:
    """Return the windows of a run of tokens, as asked for. Raises ValueError for no seq_len, and for columns."""
    no_columns(options)
    if options.seq_len is None:
        raise ArgumentValueError("seq_len= is needed: how many tokens make a row")
    per_block = options.rows_per_block or max(1, BLOCK_BYTES // (options.seq_len * dtype.itemsize))
    return Windows(
        start=start,
        tokens=tokens,
        dtype=dtype,
        seq_len=options.seq_len,
        next_token=next_token_of(options),
        rows_per_block=per_block,
    )


def next_token_of(options: Options) -> bool:
    """Return whether rows are to have one token more. Raises TypeError; ValueError without seq_len."""
    asked = options.get(NEXT_TOKEN, False)
    if not isinstance(asked, bool):
        raise ArgumentTypeError(f"next_token must be True or False, got {brief(asked)}")
    if asked and options.seq_len is None:
        raise ArgumentValueError("next_token=True goes with seq_len=: a row then has seq_len + 1 tokens")
    return asked


def no_columns(options: Options) -> None:
    """Raise ValueError if columns were chosen, of rows that are arrays."""
    if options.columns is not None:
        raise ArgumentValueError("columns= cannot be chosen here: a row is one array")


def even_blocks(rows: int, rows_per_block: int) -> Int64Array:
    """Return the sizes of blocks that all have `rows_per_block` rows, but for the last.

    >>> even_blocks(7, 3).tolist(), even_blocks(0, 3).tolist()
    ([3, 3, 1], [])
    """
    sizes = np.full(-(-rows // rows_per_block), rows_per_block, np.int64)
    if sizes.size:
        sizes[-1] = rows - (sizes.size - 1) * rows_per_block
    return sizes


def outline_windows(cut: Windows) -> Outline:
    """Return where the rows of a file of windows are."""
    return Outline(block_sizes=even_blocks(cut.rows, cut.rows_per_block))


def part_of(file: DataFile, start: int, stop: int) -> Buffer:
    """Return bytes start … stop - 1 of a file: of a mapping of it where it can be mapped, else read."""
    if file.path is None:
        return file.read(start, stop - start)
    part = memoryview(file.map())[start:stop]
    if part.nbytes != stop - start:
        raise CorpusError(file.name, f"ends before byte {stop}")
    return part


@final
class WindowShard:
    """The windows of one file. file: where they are; cut: which. Loads whole blocks, or points into a mapping."""

    def __init__(self, file: DataFile, cut: Windows) -> None:
        self._file, self._cut = file, cut

    def load(self, block: int) -> Buffer:
        """Return the tokens of one block as they are in the file."""
        start, stop = self._span(block)
        return part_of(self._file, start, stop)

    def view(self, block: int, buffer: Buffer) -> WindowRows:
        """Return the windows of a block."""
        cut = self._cut
        start, stop = self._span(block)
        found = memoryview(buffer).nbytes
        if found != stop - start:
            raise CorpusError(self._file.name, f"has {found} bytes where {stop - start} were known of", block=block)
        shape, step = (cut.rows_of(block), cut.width), cut.dtype.itemsize
        return WindowRows(np.ndarray(shape, cut.dtype, buffer, 0, (cut.seq_len * step, step)))

    def _span(self, block: int) -> tuple[int, int]:
        cut = self._cut
        first = block * cut.rows_per_block * cut.seq_len
        stop = first + cut.rows_of(block) * cut.seq_len + cut.next_token
        return cut.start + first * cut.dtype.itemsize, cut.start + stop * cut.dtype.itemsize


@final
class WindowRows:
    """Windows of one block. windows: [rows, width], of the file's type; what is given is a copy, as int64."""

    __slots__ = ("_windows",)

    def __init__(self, windows: npt.NDArray[Any]) -> None:
        self._windows = windows

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows, int64[width] each."""
        if len(rows) == 1:
            return [self._windows[rows[0]].astype(np.int64)]
        return list(self._gather(rows))

    def arrays(self, rows: Int64Array) -> dict[str, Int64Array]:
        """Return rows as one array, int64[n, width]."""
        return {COLUMN: self._gather(rows)}

    def arrow(self, rows: Int64Array) -> Any:
        """Return rows as a column of lists of one length."""
        taken = self._gather(rows)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(taken.reshape(-1)), taken.shape[1])
        return pa.RecordBatch.from_arrays([lists], [COLUMN])

    def _gather(self, rows: Sequence[int] | Int64Array) -> Int64Array:
        if isinstance(rows, range) and rows.step == 1:
            return self._windows[rows.start : rows.stop].astype(np.int64)
        return self._windows[np.asarray(rows, np.intp)].astype(np.int64, copy=False)
