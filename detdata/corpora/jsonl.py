"""JSON lines, plain: one object a line, read as Python's json does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, final

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.line_rows import Lines, LineShard
from detdata.corpora.lines import file_chunks, outline_of_chunks
from detdata.corpora.protocol import Buffer, Options, Outline, Progress

_BLANK = " \t\r\n"
_MARK = "\ufeff"
_decode = json.JSONDecoder().raw_decode


@final
class JsonLines:
    """JSON objects, one a line."""

    name: ClassVar[str] = "jsonl"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".jsonlines")
    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = True
    shares: ClassVar[bool] = False  # loading only reads
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are."""
        return outline_of_chunks(file_chunks(file, progress), options.rows_per_block, name=file.name)

    def open(self, file: DataFile, outline: Outline, options: Options) -> LineShard:
        """Open a file for reading."""
        return LineShard(file, outline, partial(JsonRows, file.name, options.columns))

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: every line has its own names."""
        return


@final
class JsonRows:
    """The rows of one block of JSON lines. name: of the file. columns: names to give, or None for all.

    block, size, buffer: its number, how many rows it has, its text. Raises CorpusError for another number of rows.

    >>> JsonRows("a.jsonl", ("x",), 0, 2, b'{"x": 1, "y": 2}\\n\\n{"x": 3}').take([1, 0])
    [{'x': 3}, {'x': 1}]
    """

    __slots__ = ("_columns", "_lines")

    def __init__(self, name: str, columns: tuple[str, ...] | None, block: int, size: int, buffer: Buffer) -> None:
        self._columns = columns
        self._lines = Lines(name, block, size, buffer, blank_rows=False)

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows as dicts."""
        found = [self._value(text, row) for text, row in zip(self._lines.texts(rows), rows, strict=True)]
        if self._columns is None:
            return found
        return [self._chosen(value, row) for value, row in zip(found, rows, strict=True)]

    def arrow(self, rows: Int64Array) -> None:
        """Return None: lines have no columns of their own."""
        return

    def _value(self, text: str, row: int) -> Any:
        try:
            # Not json.loads, which takes half as long again for finding the text's ends.
            value, end = _decode(text if text.startswith("{") else text.lstrip(_BLANK))
            if end != len(text) and text[end:].strip(_BLANK):
                value = json.loads(text)  # leading blanks, or an error
        except RecursionError as error:
            raise self._error(row, "is nested too deep to be read; flatten it") from error
        except ValueError as error:
            mark = "; it begins with a byte order mark, as if a file had been put behind another" * (text[:1] == _MARK)
            raise self._error(row, f"is no JSON: {error}{mark}{self._lines.cut(row)}") from error
        if type(value) is not dict:
            raise self._error(row, f"is a {type(value).__name__}, and a row must be a JSON object")
        return value

    def _chosen(self, value: dict[str, Any], row: int) -> dict[str, Any]:
        try:
            return {name: value[name] for name in self._columns or ()}
        except KeyError as error:
            raise self._error(
                row, f"has no {error.args[0]!r}, only {', '.join(map(repr, value)) or 'nothing'}"
            ) from None

    def _error(self, row: int, reason: str) -> CorpusError:
        return CorpusError(self._lines.name, reason, block=self._lines.block, row=row)
