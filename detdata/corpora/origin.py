"""What converted files were made of, and how far the conversion is: `origin.json`. Fixed in docs/spec.md, section 9."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.disk import sync_folder
from detdata.errors import UnknownFormat
from detdata.records import digest

if TYPE_CHECKING:
    from detdata.corpora.corpus import Corpus

try:
    import fcntl
except ImportError:  # Windows: nothing is locked
    fcntl = None  # type: ignore[assignment]

NAME = "origin.json"
FORMAT = "detdata.origin/1"
_LARGEST = 1 << 28
_PART = re.compile(r"part-[0-9]{5,}\.arrow")


@dataclass(frozen=True, slots=True)
class Part:
    """One file of converted rows. digest: xxh3-128 of its bytes, as hex."""

    file: str
    rows: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Origin:
    """A conversion: what it is of, how it is made, and the parts that are there.

    source: version of the corpus. files: their names, as they were given. rows_total: of the corpus.
    asked: what was asked of it: see `asked_of`.
    """

    source: str
    files: tuple[str, ...]
    format: str
    asked: dict[str, Any]
    rows_total: int
    schema: Any
    rows_per_batch: int
    part_bytes: int
    json_columns: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Rows in all parts."""
        return sum(part.rows for part in self.parts)

    def with_part(self, part: Part) -> Origin:
        """Return the record with one part more."""
        return replace(self, parts=(*self.parts, part))


def asked_of(corpus: Corpus) -> dict[str, Any]:
    """Return what beside its files decides the rows of a corpus, as plain JSON. What was not asked for is left out."""
    options, skipped, functions = corpus.reading
    asked = {name: getattr(options, name) for name in ("columns", "seq_len", "dtype", "text_column")}
    asked |= {"options": {name: value for name, value in options.extra if value is not None}}
    if skipped is not None and skipped.size:
        asked["skip"] = digest(skipped.astype("<i8").tobytes())
    asked["functions"] = [getattr(each, "__qualname__", type(each).__qualname__) for each in functions]
    plain: dict[str, Any] = json.loads(json.dumps(asked, default=repr))
    return {name: value for name, value in plain.items() if value not in (None, {}, [])}


def write_origin(path: Path, origin: Origin) -> None:
    """Replace the record at one stroke. Raises OSError."""
    record = {
        "format": FORMAT,
        "source": {
            "version": origin.source,
            "files": list(origin.files),
            "format": origin.format,
            "asked": origin.asked,
            "rows": origin.rows_total,
        },
        "schema": base64.b64encode(origin.schema.serialize().to_pybytes()).decode("ascii"),
        "rows_per_batch": origin.rows_per_batch,
        "part_bytes": origin.part_bytes,
        "json_columns": list(origin.json_columns),
        "parts": [[part.file, part.rows, part.size, part.digest] for part in origin.parts],
        "complete": origin.rows == origin.rows_total,
    }
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def read_origin(path: Path) -> Origin | None:
    """Return the record at `path`, None where there is none. Raises UnknownFormat for what is no such record."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorpusUnreadable(os.fspath(path), f"cannot be read: {error.strerror}") from error
    try:
        if len(content) > _LARGEST:
            raise ValueError(f"has more than {_LARGEST >> 20} MiB")
        return _parse(json.loads(content))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise UnknownFormat(f"{path}: is no record of a conversion ({error}); name a new folder") from error


def _parse(record: dict[str, Any]) -> Origin:
    if record["format"] != FORMAT:
        raise ValueError(f"its format is {record['format']!r}, and {FORMAT!r} is known")
    parts = tuple(Part(str(file), int(rows), int(size), str(digest)) for file, rows, size, digest in record["parts"])
    odd = [part.file for part in parts if not _PART.fullmatch(part.file)]
    if odd:  # a path that leaves the folder
        raise ValueError(f"a part is called {odd[0]!r}")
    source = record["source"]
    return Origin(
        source=str(source["version"]),
        files=tuple(map(str, source["files"])),
        format=str(source["format"]),
        asked=dict(source["asked"]),
        rows_total=int(source["rows"]),
        schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(record["schema"], validate=True))),
        rows_per_batch=int(record["rows_per_batch"]),
        part_bytes=int(record["part_bytes"]),
        json_columns=tuple(map(str, record["json_columns"])),
        parts=parts,
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep every other conversion out of a folder meanwhile. Raises CorpusError if one is at work in it."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CorpusError(os.fspath(folder), "another process converts into this folder; wait for it") from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(descriptor)
