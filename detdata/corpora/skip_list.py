"""The recorded list of broken rows: found by reading a corpus once, kept as JSON. Fixed in docs/spec.md, section 9."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.skips import Skips
from detdata.disk import sync_folder
from detdata.errors import UnknownFormat

if TYPE_CHECKING:
    from detdata.corpora.corpus import Corpus, Entry

FORMAT = "detdata.skips/1"
_LARGEST = 1 << 28  # bytes of a list


def find_broken(corpus: Corpus) -> list[tuple[int, str]]:
    """Return the number of each row that cannot be read, and why, by reading the whole corpus once.

    A block that cannot be decoded makes all of its rows broken. Raises CorpusUnreadable for a file that is missing or
    has changed: that is not a row's fault.
    """
    broken: list[tuple[int, str]] = []
    edge = 0
    for size in corpus.block_sizes.tolist():
        rows = range(edge, edge + size)
        edge += size
        try:
            corpus.take(rows)
        except CorpusUnreadable:
            raise
        except CorpusError as error:
            if error.row is None:
                broken += [(row, error.reason) for row in rows]
                continue
            for row in rows:
                try:
                    corpus.take([row])
                except CorpusUnreadable:
                    raise
                except CorpusError as single:
                    broken.append((row, str(single)))
    return broken


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
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise CorpusUnreadable(name, f"cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise CorpusError(name, f"has more than {_LARGEST >> 20} MiB; it is no list of rows to skip")
    record: Any
    try:
        record = json.loads(content)
    except ValueError as error:
        raise UnknownFormat(f"{name}: is no list of rows to skip: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or set(record) != {"format", "rows", "skip"}:
        raise UnknownFormat(f"{name}: is no list of rows to skip of format {FORMAT!r}")
    here = [entry.outline.rows for entry in entries]
    if record["rows"] != here:
        raise CorpusError(
            name, f"was written for files of {record['rows']} rows, and these have {here}; make it anew for this corpus"
        )
    return Skips.of(record["skip"], sum(here))
