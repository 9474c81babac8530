"""Plain text: every line is a row, under one name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, final

import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.line_rows import Lines, LineShard
from detdata.corpora.lines import file_chunks, outline_of_chunks
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.errors import ArgumentTypeError


@final
class Text:
    """Lines of UTF-8, each a row {"text": line}."""

    name: ClassVar[str] = "text"
    endings: ClassVar[tuple[str, ...]] = (".txt", ".text")
    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = True
    shares: ClassVar[bool] = False  # loading only reads
    options: ClassVar[tuple[str, ...]] = ("text_column",)
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the lines of a file are."""
        text_column(options, file.name)
        chunks = file_chunks(file, progress)
        return outline_of_chunks(chunks, options.rows_per_block, name=file.name, blank_rows=True)

    def open(self, file: DataFile, outline: Outline, options: Options) -> LineShard:
        """Open a file for reading. Raises CorpusError for a column that is not the text's."""
        return LineShard(file, outline, partial(TextRows, file.name, text_column(options, file.name)))

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: all files have the same one column."""
        return


def text_column(options: Options, name: str) -> str:
    """Return what the one column is called. name: of the file. Raises TypeError; CorpusError for other columns.

    >>> text_column(Options(extra=(("text_column", "line"),)), "a.txt")
    'line'
    """
    column = options.get("text_column", options.text_column)
    if not isinstance(column, str):
        raise ArgumentTypeError(f"text_column must be a name, got {brief(column)}")
    if options.columns is not None and options.columns != (column,):
        raise CorpusError(name, f"has one column, {column!r}; columns={list(options.columns)} were asked for")
    return column


@final
class TextRows:
    """The lines of one block of text. name: of the file. column: what a line is called.

    block, size, buffer: its number, how many lines it has, its text. Raises CorpusError for another number of lines.

    >>> TextRows("a.txt", "text", 0, 3, b"one\\r\\n\\ntwo").take([0, 1, 2])
    [{'text': 'one'}, {'text': ''}, {'text': 'two'}]
    """

    __slots__ = ("_column", "_lines")

    def __init__(self, name: str, column: str, block: int, size: int, buffer: Buffer) -> None:
        self._column = column
        self._lines = Lines(name, block, size, buffer, blank_rows=True)

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return lines as dicts of one value."""
        column = self._column
        return [{column: text} for text in self._lines.texts(rows)]

    def arrow(self, rows: Int64Array) -> Any:
        """Return lines as a RecordBatch of one column of strings."""
        texts = pa.array(self._lines.texts(rows.tolist()), pa.string())
        return pa.record_batch([texts], names=[self._column])
