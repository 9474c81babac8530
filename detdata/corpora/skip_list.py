"""The recorded list of broken rows: found by reading a corpus once, kept as JSON. Fixed in docs/spec.md, section 9."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.skips import Skips
from detdata.disk import sync_folder
from detdata.errors import UnknownFormat

if TYPE_CHECKING:
    from detdata.corpora.corpus import Corpus
    from detdata.corpora.opened import Entry

FORMAT = "detdata.skips/1"
_LARGEST = 1 << 28  # bytes of a list
_CHUNK = 1024  # rows that are made at a time


@dataclass(frozen=True, slots=True)
class SkipList:
    """A list as it was read. name: of its file. rows: of each file of the corpus. skip: ascending numbers of rows."""

    name: str
    rows: list[int]
    skip: list[int]

    def fit(self, entries: Sequence[Entry]) -> Skips:
        """Return the skips for these files. Raises CorpusError if the list was written for others."""
        here = [entry.outline.rows for entry in entries]
        if self.rows != here:
            raise CorpusError(
                self.name,
                f"was written for {_files(self.rows)}, and here are {_files(here)}; make it anew for this corpus",
            )
        try:
            return Skips.of(self.skip, sum(here))
        except (IndexError, ValueError) as error:
            raise CorpusError(self.name, f"does not fit this corpus: {error}") from error


def find_broken(corpus: Corpus) -> list[tuple[int, str]]:
    """Return the number of each row that cannot be read, and why, by reading the whole corpus once.

    A block that cannot be decoded makes all of its rows broken. Raises CorpusUnreadable for a file that is missing or
    has changed: that is not a row's fault.
    """
    broken: list[tuple[int, str]] = []
    for rows in _chunks(corpus):
        if _trouble(corpus, rows) is None:
            continue
        for row in rows:
            error = _trouble(corpus, range(row, row + 1))
            if error is None:
                continue
            if error.row is None:  # no row's fault: the block's, and so all of its rows' that are left
                broken += [(other, str(error)) for other in rows if other >= row]
                break
            broken.append((row, str(error)))
    return broken


def _chunks(corpus: Corpus) -> Iterator[range]:
    """Yield all rows in ranges that are short, and each of one block."""
    edge = 0
    for size in corpus.block_sizes.tolist():
        for start in range(edge, edge + size, _CHUNK):
            yield range(start, min(start + _CHUNK, edge + size))
        edge += size


def _trouble(corpus: Corpus, rows: range) -> CorpusError | None:
    try:
        corpus.take(rows)
    except CorpusUnreadable:
        raise
    except CorpusError as error:
        return error
    return None


def write_skips(path: str | os.PathLike[str], entries: Sequence[Entry], ids: Sequence[int]) -> None:
    """Write the list of rows to skip, whole or not at all, for these files. Raises OSError."""
    record = {"format": FORMAT, "rows": [entry.outline.rows for entry in entries], "skip": sorted(set(map(int, ids)))}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("x", encoding="ascii") as file:
            file.write(json.dumps(record, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def read_skips(path: str | os.PathLike[str], entries: Sequence[Entry]) -> Skips:
    """Return the skips of a list, for these files. Raises CorpusError if it is of other files; UnknownFormat."""
    return load_skips(path).fit(entries)


def load_skips(path: str | os.PathLike[str]) -> SkipList:
    """Return a list of rows to skip. Raises CorpusError if it cannot be read or is damaged; UnknownFormat."""
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise CorpusUnreadable(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > _LARGEST:
        raise CorpusError(name, f"has more than {_LARGEST >> 20} MiB; it is no list of rows to skip")
    record: Any
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnknownFormat(f"{name}: is no list of rows to skip: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or set(record) != {"format", "rows", "skip"}:
        raise UnknownFormat(f"{name}: is no list of rows to skip of format {FORMAT!r}")
    rows, skip = record["rows"], record["skip"]
    for key, numbers in (("rows", rows), ("skip", skip)):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise CorpusError(name, f"{key} must be a list of row numbers, and is not")
    if any(one >= other for one, other in pairwise(skip)):
        raise CorpusError(name, "skip must be ascending, each row once, and is not")
    return SkipList(name, rows, skip)


def _files(rows: Sequence[int]) -> str:
    listed = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
    return f"{len(rows)} file(s) of {listed} rows"
