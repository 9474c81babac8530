"""Outlines of files, from a stored index where one holds, else made anew and stored."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from detdata.corpora.errors import CorpusUnreadable
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.index_file import (
    DigestingFile,
    Index,
    index_key,
    index_parts,
    parse_index,
    places,
    read_index,
    write_index,
)
from detdata.corpora.pairs import parts_of
from detdata.corpora.protocol import Format, Options, Outline, Progress
from detdata.corpora.remote_file import RemoteFile, ahead
from detdata.versions.files import SETTLE_NS
from detdata.versions.own_files import INDEX_ENDING

# Where a new index goes: beside its file if that folder can be written to, else into the cache; or into one of them;
# or nowhere, which makes it anew in each process that opens the corpus.
Keep: TypeAlias = Literal["auto", "beside", "cache", "no"]

_SMALL = 1 << 20  # bytes that an index may have whatever its file has
_TIMES = 32  # and so many times the bytes of its file


def outline_of(
    form: Format,
    file: DataFile,
    options: Options,
    *,
    keep: Keep = "auto",
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Outline, Identity]:
    """Return a file's outline and what the file was when it was made; never that of another file or version of it.

    keep: where to store a new one, if the format's outlines are worth storing; one that cannot be stored is given
    all the same. folder: the folder of caches, instead of the user's own. Raises CorpusError.
    """
    if not stores(form):
        return make(form, file, options, progress)[:2]
    key = index_key(form, options)
    held = None if keep == "no" else find_index(file, key, folder)
    if held is not None:
        return held[0].outline, held[0].identity
    index = Index(*make(form, file, options, progress))
    if not form.scans:
        return index.outline, index.identity
    with suppress(OSError):  # a read-only folder, a full disk
        store_index(index, file, key, keep=keep, folder=folder)
    return index.outline, index.identity


def stores(form: Format) -> bool:
    """Return whether a format may have indexes: where files are read for them, or `detdata index` stores them."""
    return form.scans or bool(getattr(form, "stores", False))


def find_index(
    file: DataFile, key: Mapping[str, Any], folder: str | os.PathLike[str] | None
) -> tuple[Index, str] | None:
    """Return the index of this file as it is now, and where it lies; None if there is none that holds.

    Of a remote file the one in the cache folder comes first, then the one beside the file in its store, which is kept
    in the cache folder from then on.
    """
    for path in places(file, key, folder):
        index = usable(path, file, key)
        if index is not None:
            return index, str(path)
    if not isinstance(file, RemoteFile):
        return None
    beside = file.other(file.name + INDEX_ENDING)
    found = None
    with suppress(CorpusUnreadable):  # there is none; or it is forbidden to ask for what there is not, as on S3
        size = beside.identity().size
        if size <= _TIMES * file.identity().size + _SMALL:
            found = parse_index(beside.fetch(0, size), key)
    index = None if found is None else _holding(found, file)
    if index is None:
        return None
    for path in places(file, key, folder):
        with suppress(OSError):
            write_index(path, index, key)
    return index, beside.name


def store_index(
    index: Index,
    file: DataFile,
    key: Mapping[str, Any],
    *,
    keep: Keep,
    folder: str | os.PathLike[str] | None,
) -> str | None:
    """Store an index where `keep` says, in the first place that takes it; return where, None for nowhere.

    Beside a remote file only if "beside" is asked for. Raises OSError if no place takes it.
    """
    if isinstance(file, RemoteFile) and keep == "beside":
        beside = file.other(file.name + INDEX_ENDING)
        beside.write(b"".join(index_parts(index, key)))
        return beside.name
    trouble = None
    for path in targets(list(places(file, key, folder)), file, keep):
        try:
            write_index(path, index, key)
        except OSError as error:  # the next place
            trouble = error
        else:
            return str(path)
    if trouble is not None:
        raise trouble
    return None


def usable(path: Path, file: DataFile, key: Mapping[str, Any]) -> Index | None:
    """Return the index at `path` if it is of this file as it is now; None for none, a stale and a broken one.

    A file that has the size but not the times of the one that was indexed is hashed to find out.
    """
    index = read_index(path, key)
    held = None if index is None else _holding(index, file)
    if held is not index and held is not None:
        with suppress(OSError):
            write_index(path, held, key)  # so that it is hashed once
    return held


def _holding(index: Index, file: DataFile) -> Index | None:
    """Return the index, tied to the file as it is now; None if it is not of this file."""
    now = file.identity()
    if now == index.identity:
        return index
    if now.size != index.identity.size or not index.digest:
        return None
    wait_until_settled(file)  # else an edit right after this would leave it the same file
    read = _closed_after(file)
    now = read.identity()
    if DigestingFile(ahead(read)).digest(now.size) != index.digest or read.identity() != now:
        return None
    return Index(index.outline, now, index.digest)


def make(
    form: Format, file: DataFile, options: Options, progress: Progress | None = None
) -> tuple[Outline, Identity, str]:
    """Return a new outline, what the file was, and its digest ("" if the format does not read the whole file)."""
    wait_until_settled(file)
    file = _closed_after(file)
    before = file.identity()
    source = DigestingFile(ahead(file)) if form.scans else file
    outline = form.outline(source, options, progress)
    digest = source.digest(before.size) if isinstance(source, DigestingFile) else ""
    after = file.identity()
    if before != after:
        raise CorpusUnreadable(
            file.name,
            f"changed while it was indexed ({before.size} bytes before, {after.size} after); go on when nothing writes "
            "to it",
        )
    return outline, before, digest


def _closed_after(file: DataFile) -> DataFile:
    """Return the file, to be read now and then closed: of many thousand files not all can be open."""
    return file if file.path is None else file.fresh()


def wait_until_settled(file: DataFile) -> None:
    """Wait until a local file was not written to for some ticks of the clock by which its times move."""
    for part in parts_of(file):
        if part.path is None:
            continue
        try:
            found = os.stat(part.path)
        except OSError:
            continue  # reading it will tell
        now = time.time_ns()  # a time that is ahead of this clock was set by somebody, and says nothing
        left = [latest + SETTLE_NS - now for latest in (found.st_mtime_ns, found.st_ctime_ns) if latest <= now]
        if max(left, default=0) > 0:
            time.sleep(max(left) / 1e9)


def targets(candidates: list[Path], file: DataFile, keep: Keep) -> list[Path]:
    """Return where a new index is to be stored, in the order of trying. candidates: what `places` gave."""
    beside = candidates[:1] if file.path is not None else []
    cache = candidates[len(beside) :]
    return {"auto": beside + cache, "beside": beside, "cache": cache, "no": []}[keep]
