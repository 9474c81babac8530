"""The lines of one block as text, and files of lines open for reading: what JSON lines and plain text share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import numpy as np

from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.lines import LINE_END, not_blank
from detdata.corpora.protocol import Buffer, Outline, Rows

RowsOf: TypeAlias = Callable[[int, int, Buffer], Rows]  # (block, rows of it, its text) -> its rows

_CR = 13
_BLANK = " \t\r\n"


@final
class LineShard:
    """A plain file of lines, open for reading. rows_of: makes the rows of a block from its text."""

    def __init__(self, file: DataFile, outline: Outline, rows_of: RowsOf) -> None:
        self._file = file
        self._starts = outline.arrays["starts"]
        self._sizes = outline.block_sizes
        self._rows_of = rows_of

    def load(self, block: int) -> Buffer:
        """Return the text of a block as it lies in the file."""
        start, stop = int(self._starts[block]), int(self._starts[block + 1])
        return self._file.read(start, stop - start)

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a block's text."""
        return self._rows_of(block, int(self._sizes[block]), buffer)


@final
class Lines:
    """The rows of a block's text, found once and decoded when asked for, without their LF or CR LF.

    name, block: for errors. size: how many rows there must be. blank_rows: as in `outline_of_chunks`.
    Raises CorpusError if there are more or fewer rows.
    """

    __slots__ = ("_begins", "_blank_rows", "_buffer", "_ends", "_size", "block", "name")

    def __init__(self, name: str, block: int, size: int, buffer: Buffer, *, blank_rows: bool) -> None:
        self.name = name
        self.block = block
        self._size = size
        self._buffer = memoryview(buffer)
        self._blank_rows = blank_rows
        data = np.frombuffer(buffer, np.uint8)
        ends = np.flatnonzero(data == LINE_END)
        begins = np.concatenate([[0], ends + 1])
        ends -= data[np.maximum(ends - 1, 0)] == _CR
        if begins[-1] == data.size:
            begins = begins[:-1]
        else:
            ends = np.append(ends, data.size)
        if begins.size != size and not blank_rows and begins.size:
            rows = not_blank(data, begins)
            begins, ends = begins[rows], ends[rows]
        if begins.size != size:
            raise CorpusError(
                name, f"has {begins.size} rows where its index knows of {size}; was it changed?", block=block
            )
        self._begins, self._ends = begins, ends

    def cut(self, row: int) -> str:
        """Return what to say of a broken row that is the last of its file, without a line end; "" of others."""
        last = int(self._ends[row]) == len(self._buffer)
        return "; the file ends in it without a line end: was it cut short?" if last else ""

    def texts(self, rows: Sequence[int]) -> list[str]:
        """Return rows as text. Raises CorpusError with the row for one that is no UTF-8."""
        if len(rows) * 4 > self._size:
            try:
                every = self._every()
            except UnicodeDecodeError:
                pass  # one by one, to tell which
            else:
                return [every[row] for row in rows]
        return [self._one(row) for row in rows]

    def _one(self, row: int) -> str:
        try:
            return str(self._buffer[self._begins[row] : self._ends[row]], "utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(self.name, f"is no UTF-8: {error}{self.cut(row)}", block=self.block, row=row) from error

    def _every(self) -> list[str]:
        text = str(self._buffer, "utf-8")
        lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
        if text.endswith("\n"):
            lines.pop()
        if len(lines) != self._size:
            lines = [line for line in lines if line.strip(_BLANK)]
        return lines
