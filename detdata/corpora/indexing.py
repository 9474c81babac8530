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
from detdata.corpora.index_file import DigestingFile, Index, index_key, places, read_index, write_index
from detdata.corpora.pairs import parts_of
from detdata.corpora.protocol import Format, Options, Outline, Progress
from detdata.versions.files import SETTLE_NS

# Where a new index goes: beside its file if that folder can be written to, else into the cache; or into one of them;
# or nowhere, which makes it anew in each process that opens the corpus.
Keep: TypeAlias = Literal["auto", "beside", "cache", "no"]


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
    if not form.scans:
        return make(form, file, options, progress)[:2]
    key = index_key(form, options)
    candidates = [] if keep == "no" else places(file, key, folder)
    for path in candidates:
        index = usable(path, file, key)
        if index is not None:
            return index.outline, index.identity
    outline, identity, digest = make(form, file, options, progress)
    for path in targets(candidates, file, keep):
        try:
            write_index(path, Index(outline, identity, digest), key)
            break
        except OSError:  # a read-only folder, a full disk: the next place, or none
            continue
    return outline, identity


def usable(path: Path, file: DataFile, key: Mapping[str, Any]) -> Index | None:
    """Return the index at `path` if it is of this file as it is now; None for none, a stale and a broken one.

    A file that has the size but not the times of the one that was indexed is hashed to find out.
    """
    index = read_index(path, key)
    if index is None:
        return None
    now = file.identity()
    if now == index.identity:
        return index
    if now.size != index.identity.size or not index.digest:
        return None
    if DigestingFile(file).digest(now.size) != index.digest or file.identity() != now:
        return None
    held = Index(index.outline, now, index.digest)
    with suppress(OSError):
        write_index(path, held, key)  # so that it is hashed once
    return held


def make(
    form: Format, file: DataFile, options: Options, progress: Progress | None = None
) -> tuple[Outline, Identity, str]:
    """Return a new outline, what the file was, and its digest ("" if the format does not read the whole file)."""
    wait_until_settled(file)
    before = file.identity()
    source = DigestingFile(file) if form.scans else file
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


def wait_until_settled(file: DataFile) -> None:
    """Wait until a local file was not written to for some ticks of the clock by which its times move."""
    for part in parts_of(file):
        if part.path is None:
            continue
        try:
            found = os.stat(part.path)
        except OSError:
            continue  # reading it will tell
        left = max(found.st_mtime_ns, found.st_ctime_ns) + SETTLE_NS - time.time_ns()
        if 0 < left <= SETTLE_NS:
            time.sleep(left / 1e9)


def targets(candidates: list[Path], file: DataFile, keep: Keep) -> list[Path]:
    """Return where a new index is to be stored, in the order of trying. candidates: what `places` gave."""
    beside = candidates[:1] if file.path is not None else []
    cache = candidates[len(beside) :]
    return {"auto": beside + cache, "beside": beside, "cache": cache, "no": []}[keep]
