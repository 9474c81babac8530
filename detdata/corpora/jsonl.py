"""JSON lines, plain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, final

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.lines import outline_lines, split_rows
from detdata.corpora.protocol import Buffer, Options, Outline, Progress


@final
class JsonLines:
    """JSON objects, one a line."""

    name: ClassVar[str] = "jsonl"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".jsonlines")
    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = True
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are."""
        return outline_lines(file, options.rows_per_block, progress)

    def open(self, file: DataFile, outline: Outline, options: Options) -> _Shard:
        """Open a file for reading."""
        return _Shard(file, outline, options)

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: every line has its own names."""
        return


@final
class _Shard:
    def __init__(self, file: DataFile, outline: Outline, options: Options) -> None:
        self._file = file
        self._starts = outline.arrays["starts"]
        self._sizes = outline.block_sizes
        self._columns = options.columns

    def load(self, block: int) -> Buffer:
        start, stop = int(self._starts[block]), int(self._starts[block + 1])
        return self._file.read(start, stop - start)

    def view(self, block: int, buffer: Buffer) -> _Rows:
        lines = split_rows(bytes(buffer))
        if len(lines) != int(self._sizes[block]):
            raise CorpusError(
                self._file.name, f"has {len(lines)} rows where {int(self._sizes[block])} are known of", block=block
            )
        return _Rows(self._file.name, block, lines, self._columns)


@final
class _Rows:
    def __init__(self, name: str, block: int, lines: Sequence[bytes], columns: tuple[str, ...] | None) -> None:
        self._name, self._block, self._lines, self._columns = name, block, lines, columns

    def take(self, rows: Sequence[int]) -> list[Any]:
        return [self._row(row) for row in rows]

    def arrow(self, rows: Int64Array) -> None:
        return

    def _row(self, row: int) -> Any:
        try:
            value = json.loads(self._lines[row])
        except ValueError as error:
            raise CorpusError(self._name, f"is no JSON: {error}", block=self._block, row=row) from error
        if self._columns is None:
            return value
        missing = [name for name in self._columns if name not in value]
        if missing:
            raise CorpusError(
                self._name, f"has no {', '.join(map(repr, missing))}, only {sorted(value)}", block=self._block, row=row
            )
        return {name: value[name] for name in self._columns}
