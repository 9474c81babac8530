"""Which files a URL stands for: one object, a folder, or a glob; in the order of their names, byte by byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.remote import identity_listed, locate
from detdata.corpora.remote_file import RemoteFile, RemoteOptions, look_at, with_errors
from detdata.corpora.retrying import passes
from detdata.errors import DetdataError
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import IGNORE_FILE
from detdata.versions.own_files import INDEX_ENDING
from detdata.versions.patterns import MAGIC, parse_glob
from detdata.versions.remote import RemoteListing, list_remote
from detdata.versions.walk import Rules

_NO_DATA = Rules(exclude=(".*", f"*{INDEX_ENDING}", IGNORE_FILE))
_THREADS = 16  # requests at a time
_A = TypeVar("_A")
_B = TypeVar("_B")


def list_url(url: str, options: RemoteOptions) -> tuple[bool, list[RemoteFile]]:
    """Return (whether `url` is a folder, the files that it stands for). Names that begin with a dot are left out.

    What is there under just this name is never read as a glob. Raises CorpusError; MissingExtra (an ImportError) if
    the package for the protocol is missing. Cost: one request for one object; for a folder or a glob a listing.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe({"/listed/b.jsonl": b"", "/listed/a.jsonl": b"", "/listed/.c": b""})
    >>> [file.name for file in list_url("memory://listed", RemoteOptions())[1]]
    ['memory:///listed/a.jsonl', 'memory:///listed/b.jsonl']
    """
    try:
        kind, found = look_at(url, options)
    except CorpusUnreadable as error:
        if not MAGIC.search(url) or not isinstance(error.__cause__, FileNotFoundError):
            raise
        kind = "glob"
    if kind == "file":
        return False, [RemoteFile(url, options, found)]

    try:
        listing = with_errors(url, lambda: _listed(url))
    except DatasetError as error:
        raise CorpusError(error.path, error.reason) from error
    glob = parse_glob(listing.select[0]) if kind == "glob" else None
    files = [
        RemoteFile(f"{listing.root.rstrip('/')}/{path}", options, identity_listed(listing.root, size, tag))
        for path, size, tag in zip(listing.paths, listing.sizes, listing.tags, strict=True)
        if glob is None or glob.selects(path)  # not what lies in folders that it selects
    ]
    if not files and glob is not None:
        raise CorpusError(url, "matches no file")
    return kind == "directory", files


def _listed(url: str) -> RemoteListing:
    try:
        return list_remote(url, _NO_DATA)
    except DatasetError as error:
        cause = error.__cause__
        if isinstance(cause, Exception) and not isinstance(cause, DetdataError) and passes(cause):
            raise cause from None  # to be tried again
        raise


def side_by_side(function: Callable[[_A], _B], values: Sequence[_A], threads: bool) -> list[_B]:
    """Return what a function gives for each value; with 16 threads where it waits for a store most of the time.

    Raises what the first of the values raises that raises anything.

    >>> side_by_side(abs, [-1, 2], threads=True)
    [1, 2]
    """
    if not threads or len(values) < 2:
        return [function(value) for value in values]
    with ThreadPoolExecutor(min(_THREADS, len(values))) as pool:
        return list(pool.map(function, values))


def local_path(url: str) -> str | None:
    """Return the path of a URL that is of a file of this machine (`file://…`), else None.

    >>> local_path("file:///data/a.jsonl"), local_path("s3://bucket/a.jsonl")
    ('/data/a.jsonl', None)
    """
    if not url.startswith(("file://", "local://")):
        return None
    return os.fspath(locate(url)[1])
