"""One pass over a CSV file: its columns, where each block of rows begins, what the columns hold."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from detdata.checks import brief
from detdata.corpora.csv_grid import Grid, find_rows
from detdata.corpora.csv_rows import Column, CsvRows, Dialect
from detdata.corpora.csv_types import TypeFinder
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.lines import BOM, UTF_16
from detdata.corpora.marks import LONGEST_ROW, Marks
from detdata.corpora.protocol import Outline, Progress

_READ = 1 << 18  # bytes looked at at a time: they and what is made of them stay in the cache of a core
_READ_COLUMN = 1 << 13  # the same for each column, where there are many: looking at one has a fixed cost
_MOST_READ = 1 << 26
_HEADER = (1 << 16, 1 << 20)  # bytes in which the end of the line of names is looked for


def header_of(file: DataFile, delimiter: str) -> tuple[list[str], int]:
    """Return (names of the columns, byte after their line). Raises CorpusError if there are none that can be used."""
    size = file.identity().size
    for length in _HEADER:
        text = file.read(0, min(size, length))
        if text.startswith(UTF_16):
            raise CorpusError(file.name, "is UTF-16, and UTF-8 is expected; convert it, for example by iconv")
        base = len(BOM) if text.startswith(BOM) else 0
        data = np.frombuffer(text, np.uint8)[base:]
        bounds = find_rows(data, ord(delimiter), columns=2, final=len(text) == size)  # 2: no empty line is the header
        if bounds.begins.size:
            break
    else:
        if not text[base:].strip(b"\r\n"):
            raise CorpusError(file.name, "has no line that names the columns")
        raise CorpusError(file.name, f"names no columns in its first {len(text)} bytes: is a quote never closed?")
    begin, end = base + int(bounds.begins[0]), base + int(bounds.ends[0])
    if bounds.toggles.size % 2 and end == len(text) == size:
        raise CorpusError(file.name, "ends inside a quoted name of a column; close the quote")
    names = _names(file.name, text[begin:end], delimiter)
    if len(names) == 1 and begin > base:
        raise CorpusError(file.name, "begins with an empty line; take it away: the first line names the columns")
    return names, text.find(b"\n", end) + 1 or size


def _names(name: str, line: bytes, delimiter: str) -> list[str]:
    data = np.frombuffer(line, np.uint8)
    found = int(Grid(data, find_rows(data, ord(delimiter), columns=2, final=True), ord(delimiter)).counts[0])
    dialect = Dialect(delimiter, found, tuple(Column(str(number), number, "string", None) for number in range(found)))
    try:
        names = list(CsvRows(name, dialect, 0, 1, line).take([0])[0].values())
    except CorpusError as error:
        raise CorpusError(name, f"its first line, which names the columns, {error.reason}") from error
    twice = sorted({column for column in names if names.count(column) > 1}) if len(set(names)) < len(names) else []
    if twice or "" in names:
        fault = f"names {', '.join(map(repr, twice))} twice" if twice and twice != [""] else "leaves a name empty"
        raise CorpusError(name, f"its first line, which names the columns, {fault}: {brief(names)}")
    return names


def scan(
    file: DataFile,
    names: list[str],
    start: int,
    delimiter: str,
    rows_per_block: int | None,
    progress: Progress | None,
) -> Outline:
    """Return the outline of a file whose rows begin at byte `start`: as `Marks.outline`, with meta.

    meta: delimiter, columns and types (a key of ARROW_TYPES each), in the order of the file.
    Raises CorpusError for a quote that is never closed and for a row of more than 128 MiB.
    Memory: such a row or 256 KiB, or 8 KiB a column up to 64 MiB, some times, and the index.
    """
    size = file.identity().size
    marks, types = Marks(start, rows_per_block), TypeFinder(len(names))
    if progress is not None:
        progress(start)
    usual = max(_READ, min(_MOST_READ, len(names) * _READ_COLUMN))
    held, place, want = b"", start, usual  # text from byte `place` on, where a row begins
    while place < size:
        more = file.read(place + len(held), min(want, size - place - len(held)))
        held += more
        final = place + len(held) == size
        data = np.frombuffer(held, np.uint8)
        bounds = find_rows(data, ord(delimiter), columns=len(names), final=final)
        if final and bounds.toggles.size % 2:
            _never_closed(file.name, marks.rows + bounds.begins.size - 1, place + int(bounds.toggles[-1]))
        longest = int((bounds.ends - bounds.begins).max(initial=0))
        if max(longest, 0 if bounds.rest else len(held)) > LONGEST_ROW:
            raise CorpusError(
                file.name,
                f"has a row of more than {LONGEST_ROW >> 20} MiB, from byte {place} on; is a quote never closed?",
            )
        marks.add(bounds.begins + place, place + bounds.rest)
        if bounds.begins.size and not types.done:
            types.add(Grid(data, bounds, ord(delimiter)))
        want = usual if bounds.rest else len(held)  # a row that is longer is looked at some times, not many
        held = held[bounds.rest :]
        place += bounds.rest
        if progress is not None:
            progress(len(more))
    outline = marks.outline(size, file.name)
    meta = {"delimiter": delimiter, "columns": names, "types": types.types()}
    return Outline(block_sizes=outline.block_sizes, arrays=outline.arrays, meta=meta)


def _never_closed(name: str, row: int, quote: int) -> NoReturn:
    raise CorpusError(name, f"ends inside a quoted value, which byte {quote} begins; close the quote", row=row)
