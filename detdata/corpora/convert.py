"""convert_corpus: the rows of any corpus as memory-mapped Arrow files of bounded size, in the same order.

A part is written under a temporary name, synced, renamed and only then entered into the record `origin.json`, which is
itself replaced at one stroke. So whatever kills the process, the next call goes on behind the last part of the record,
and the files are byte for byte those of a run that was never interrupted: where a part ends is decided by the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import xxhash

from detdata.checks import as_int
from detdata.corpora.corpus import Corpus
from detdata.corpora.errors import CorpusError
from detdata.corpora.origin import NAME, Origin, Part, alone, asked_of, read_origin, write_origin
from detdata.corpora.schemas import table_of, widened
from detdata.disk import sync_folder
from detdata.errors import ArgumentTypeError, ArgumentValueError

_CHUNK = 1024  # rows looked at together, at most
_CHUNK_BYTES = 8 << 20  # or so many bytes of them: rows may be images
_BATCH_BYTES = 1 << 20  # about so much makes a record batch
_MOST_ROWS = 4096
_TEMPORARY = ".part.tmp"


@dataclass(frozen=True, slots=True)
class Converted:
    """What `convert_corpus` made. folder: of the parts. rows: in all. parts: files. resumed: rows that were there.

    >>> Converted("out", rows=1000, parts=1, resumed=0).rows
    1000
    """

    folder: str
    rows: int
    parts: int
    resumed: int


def convert_corpus(
    corpus: Corpus,
    folder: str | os.PathLike[str],
    *,
    part_bytes: int = 256 << 20,
    rows_per_batch: int | None = None,
    json_columns: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Converted:
    """Write the rows of a corpus as Arrow files in `folder`: uncompressed, to be mapped, in the same order.

    corpus: of rows that are dicts. folder: new, empty, or of an earlier call for the same data, which is gone on with.
    part_bytes: a part ends with the record batch in which it reaches this size. rows_per_batch: by default the power of
    two that makes about 1 MiB of the first rows. json_columns: kept as JSON text, for values of no one type.
    progress: called with (rows done, rows in all).

    The types of columns are those that hold every row: the corpus is read once to find them, and once to write. A key
    that a row has not is None in it then; integers in a column with fractions become floats, if that loses nothing.
    `origin.json` in the folder says what the parts were made of. Memory: one record batch. Disk: the rows.
    Raises CorpusError for rows that fit no table, and a folder that holds something else; ValueError; OSError.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = file.write_text('{"x": 1}\\n{"x": 2}\\n')
    >>> from detdata import open_corpus
    >>> convert_corpus(open_corpus(file), file.parent / "arrow").rows
    2
    """
    if not isinstance(corpus, Corpus):
        raise ArgumentTypeError(f"corpus must be what open_corpus gives, got {type(corpus).__name__}")
    if isinstance(json_columns, str):
        raise ArgumentTypeError(f"json_columns must be a list of names, got {json_columns!r}")
    limit = as_int(part_bytes, "part_bytes", low=1 << 16, high=1 << 40)
    each = None if rows_per_batch is None else as_int(rows_per_batch, "rows_per_batch", low=1, high=1 << 20)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with alone(target):
        origin = _origin(corpus, target, limit, each, frozenset(json_columns), progress)
        resumed = origin.rows
        writer = _Writer(target, origin, len(corpus), progress)
        writer.run(corpus)
        return Converted(os.fspath(folder), writer.origin.rows, len(writer.origin.parts), resumed)


def _origin(
    corpus: Corpus,
    target: Path,
    limit: int,
    each: int | None,
    as_json: frozenset[str],
    progress: Callable[[int, int], None] | None,
) -> Origin:
    """Return the record of this conversion: that of an earlier call, checked, or a new one."""
    version = corpus.version()
    found = read_origin(target / NAME)
    if found is None:
        strangers = sorted(name for name in os.listdir(target) if not name.startswith("."))
        if strangers:
            raise CorpusError(
                os.fspath(target),
                f"holds {strangers[0]!r} and no {NAME}: it is no conversion; name a new folder",
            )
        schema, fitting = find_schema(corpus, as_json, progress)
        unknown = sorted(as_json - set(schema.names))
        if unknown:
            raise ArgumentValueError(
                f"json_columns names {unknown[0]!r}, which no row has; there are {', '.join(map(repr, schema.names))}"
            )
        return Origin(
            source=version,
            files=corpus.files,
            format=corpus.format,
            asked=asked_of(corpus),
            rows_total=len(corpus),
            schema=schema,
            rows_per_batch=each or fitting,
            part_bytes=limit,
            json_columns=tuple(sorted(as_json)),
            parts=(),
        )
    asked = {
        "source": version,
        "format": corpus.format,
        "asked": asked_of(corpus),
        "part_bytes": limit,
        "json_columns": tuple(sorted(as_json)),
    }
    if each is not None:
        asked["rows_per_batch"] = each
    for name, value in asked.items():
        if getattr(found, name) != value:
            raise CorpusError(
                os.fspath(target / NAME),
                f"is of a conversion with {name} {getattr(found, name)!r}, and now it is {value!r}; ask for the "
                "same, or name a new folder",
            )
    for part in found.parts:
        path = target / part.file
        if not path.is_file() or path.stat().st_size != part.size or _digest(path) != part.digest:
            raise CorpusError(os.fspath(path), f"is not the part that {NAME} tells of; name a new folder")
    return found


def find_schema(
    corpus: Corpus, as_json: frozenset[str] = frozenset(), progress: Callable[[int, int], None] | None = None
) -> tuple[Any, int]:
    """Return the pyarrow.Schema that holds every row, and the number of rows that makes a record batch."""
    schema: Any = None
    fitting = 0
    for first, rows in _chunks(corpus, 0, _CHUNK, _CHUNK_BYTES):
        table = table_of(rows, first, as_json)
        schema = table.schema if schema is None else widened(schema, table.schema, first)
        if not fitting:
            ideal = max(1, min(_MOST_ROWS, _BATCH_BYTES * len(rows) // max(1, table.nbytes)))
            fitting = 1 << (ideal.bit_length() - 1)
        if progress is not None:
            progress(0, len(corpus))
    if not len(schema):
        raise CorpusError(corpus.files[0], "has rows without a single column: there is nothing to write")
    return schema, fitting


def _chunks(corpus: Corpus, start: int, size: int, most: int | None = None) -> Iterator[tuple[int, list[Any]]]:
    """Yield (number of the first row, rows): `size` of them, or fewer that have about `most` bytes together."""
    held: list[Any] = []
    weight = 0
    first = start
    for row in corpus.read(start):
        held.append(row)
        weight += 0 if most is None else _weight(row)
        if len(held) == size or (most is not None and weight >= most):
            yield first, held
            first, held, weight = first + len(held), [], 0
    if held:
        yield first, held


def _weight(row: Any) -> int:
    """Return about how many bytes a row has, by the lengths of its values alone."""
    values = row.values() if isinstance(row, dict) else ()
    return sum(getattr(each, "nbytes", 0) or len(each) for each in values if hasattr(each, "__len__"))


@final
class _Writer:
    """Writes parts one after the other. origin: the record as it is on disk."""

    def __init__(self, target: Path, origin: Origin, total: int, progress: Callable[[int, int], None] | None) -> None:
        self.target, self.origin, self.total, self.progress = target, origin, total, progress

    def run(self, corpus: Corpus) -> None:
        """Write what the record has not yet."""
        if not self.origin.parts:
            write_origin(self.target / NAME, self.origin)
        with suppress(FileNotFoundError):
            (self.target / _TEMPORARY).unlink()
        chunks = _chunks(corpus, self.origin.rows, self.origin.rows_per_batch)
        while self.origin.rows < self.total:
            part = self._part(chunks)
            self.origin = self.origin.with_part(part)
            write_origin(self.target / NAME, self.origin)
        if corpus.version() != self.origin.source:
            raise CorpusError(None, "the corpus has changed while it was converted; the parts hold rows of both states")

    def _part(self, chunks: Iterator[tuple[int, list[Any]]]) -> Part:
        name = f"part-{len(self.origin.parts):05d}.arrow"
        temporary = self.target / _TEMPORARY
        rows = size = 0
        with pa.OSFile(os.fsencode(temporary), "wb") as sink:
            with pa.ipc.new_file(sink, self.origin.schema) as writer:
                for first, chunk in chunks:
                    table = table_of(chunk, first, frozenset(self.origin.json_columns), self.origin.schema)
                    writer.write_table(table, max_chunksize=len(chunk))
                    rows += len(chunk)
                    if self.progress is not None:
                        self.progress(self.origin.rows + rows, self.total)
                    if sink.tell() >= self.origin.part_bytes:
                        break
            size = sink.tell()
        digest = _digest(temporary)
        _sync(temporary)
        temporary.rename(self.target / name)
        sync_folder(self.target)
        return Part(name, rows, size, digest)


def _digest(path: Path) -> str:
    hasher = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 22):
            hasher.update(block)
    return hasher.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
