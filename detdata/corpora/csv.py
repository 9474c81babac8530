"""CSV and TSV: the first line names the columns, and each column has one type in the whole file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, final

from detdata.checks import brief
from detdata.corpora.csv_rows import Column, CsvRows, Dialect
from detdata.corpora.csv_scan import header_of, scan
from detdata.corpora.csv_types import ARROW_TYPES, READERS, STRICT_READERS
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.line_rows import LineShard
from detdata.corpora.protocol import Options, Outline, Progress
from detdata.errors import ArgumentTypeError, ArgumentValueError


@final
class Csv:
    """Values between delimiters, quoted as RFC 4180 has it, under the names of the first line."""

    name: ClassVar[str] = "csv"
    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = True
    shares: ClassVar[bool] = False  # loading only reads
    options: ClassVar[tuple[str, ...]] = ("column_types", "delimiter")
    outline_options: ClassVar[tuple[str, ...]] = ("delimiter",)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are, and in `meta` the names and types of its columns."""
        delimiter = _delimiter(options, file.name)
        names, start = header_of(file, delimiter)
        return scan(file, names, start, delimiter, options.rows_per_block, progress)

    def open(self, file: DataFile, outline: Outline, options: Options) -> LineShard:
        """Open a file for reading. Raises CorpusError for a missing column."""
        meta = outline.meta
        try:
            dialect = Dialect(str(meta["delimiter"]), len(meta["columns"]), _chosen(outline, options))
        except CorpusError as error:
            raise CorpusError(file.name, error.reason) from None
        return LineShard(file, outline, partial(CsvRows, file.name, dialect))

    def schema(self, outline: Outline, options: Options) -> Any:
        """Return name → type of the columns that are asked for. Raises CorpusError for a missing one."""
        return {column.name: column.kind for column in _chosen(outline, options)}


def _delimiter(options: Options, name: str) -> str:
    given = options.get("delimiter")
    if given is None:
        return "\t" if name.lower().endswith((".tsv", ".tsv.gz", ".tsv.zst")) else ","
    if not isinstance(given, str) or len(given) != 1 or not given.isascii() or given in '"\r\n':
        raise ArgumentValueError(f"delimiter must be one ASCII character, no quote and no line end; got {brief(given)}")
    return given


def _chosen(outline: Outline, options: Options) -> tuple[Column, ...]:
    names: list[str] = outline.meta["columns"]
    asked = _asked_types(options)
    wanted = names if options.columns is None else options.columns
    missing = [name for name in (*wanted, *asked) if name not in names]
    if missing:
        raise CorpusError(None, f"has no column {', '.join(map(repr, missing))}, only {brief(names)}")
    chosen = []
    for name in wanted:
        number = names.index(name)
        known = str(outline.meta["types"][number])
        kind = asked.get(name, known)
        chosen.append(Column(name, number, kind, (READERS if kind == known else STRICT_READERS).get(kind)))
    return tuple(chosen)


def _asked_types(options: Options) -> Mapping[str, str]:
    given = options.get("column_types", {})
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(f"column_types must be a dict of name to type, got {brief(given)}")
    for name, kind in given.items():
        if kind not in ARROW_TYPES:
            raise ArgumentValueError(
                f"column_types[{name!r}] must be one of {', '.join(map(repr, ARROW_TYPES))}; got {brief(kind)}"
            )
    return given
