"""Files that this library writes, among data too, and that are never data: manifests, caches, indexes, what kills left.

Each is known by its name and its first bytes together; only a temporary file, which may be empty, by its name alone,
and that has 16 random digits in it.
"""

# What is left behind is found by single system calls.
# ruff: noqa: PTH108, PTH118, PTH123

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from contextlib import suppress
from typing import BinaryIO

MANIFEST_ENDINGS = (".lock.json", ".lock.json.gz")
CACHE_ENDINGS = (".digests", ".pieces", ".rows")
INDEX_ENDING = ".detdata-index"
RANGE_ENDING = ".range"
OWN_ENDINGS = (*MANIFEST_ENDINGS, *CACHE_ENDINGS, INDEX_ENDING, RANGE_ENDING)
HEAD_BYTES = 512  # enough of a file to know it by

_MANIFEST_START = re.compile(rb'\s*\{\s*"format":\s*"detdata\.manifest/')
_CACHE_NAME = re.compile(r"(?s:.*/)?[0-9a-f]{32}\.(digests|pieces|rows|range)")
_CACHE_START = re.compile(rb'detdata\.(digests|unfinished|range)/[0-9]+\n|\[\{"format": "detdata\.rows/')
_INDEX_START = b"detdata.index/"
_TEMPORARY = re.compile(
    r"(?s:.*/)?\.tmp-[0-9a-f]{16}\.(lock\.json|lock\.json\.gz|digests|pieces|rows|detdata-index|range)"
)
_OLD = 600.0  # seconds: nobody has written to it for so long that nobody will


def is_own(path: str, head: bytes) -> bool:
    """Return whether a file is one of ours. path: with `/`; it ends in one of OWN_ENDINGS. head: its first 512 bytes.

    >>> is_own("a/.tmp-0123456789abcdef.lock.json", b""), is_own("a/x.lock.json", b"{}"), is_own("a/x.digests", b"")
    (True, False, False)
    """
    if is_temporary(path):
        return True
    if path.endswith(MANIFEST_ENDINGS):
        return is_manifest_head(head)
    if path.endswith(INDEX_ENDING):
        return head.startswith(_INDEX_START)
    return _CACHE_NAME.fullmatch(path) is not None and _CACHE_START.match(head) is not None


def is_manifest_head(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a dataset manifest, plain or gzipped.

    >>> is_manifest_head(b'{"format": "detdata.manifest/1",')
    True
    """
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        except zlib.error:
            return False
    return _MANIFEST_START.match(head) is not None


def open_own(path: str | os.PathLike[str], *, to_write: bool = False) -> BinaryIO | None:
    """Return a file of ours, open without a buffer; None where it cannot be opened or is none.

    A pipe that stands in its place is not waited for.

    >>> open_own("no such file") is None
    True
    """
    flags = (os.O_RDWR if to_write else os.O_RDONLY) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return open(descriptor, "r+b" if to_write else "rb", buffering=0)
        os.close(descriptor)
    except OSError:
        pass
    return None


def read_own(path: str | os.PathLike[str]) -> bytes | None:
    """Return the content of a file of ours; None where it cannot be read or is none.

    >>> read_own("no such file") is None
    True
    """
    file = open_own(path)
    if file is None:
        return None
    with file, suppress(OSError):
        return file.read()
    return None


def temporary_beside(folder: str, ending: str) -> str:
    """Return a path in `folder` that is nobody's, for a file that is to be renamed to one with that ending.

    >>> is_temporary(temporary_beside("x", ".digests"))
    True
    """
    return os.path.join(folder, f".tmp-{os.urandom(8).hex()}{ending}")


def is_temporary(path: str) -> bool:
    """Return whether a path, with `/`, has just such a name: left by a process that was killed, it is nobody's data.

    >>> is_temporary("a/.tmp-0123456789abcdef.lock.json"), is_temporary(".tmp-notes.lock.json")
    (True, False)
    """
    return _TEMPORARY.fullmatch(path.replace(os.sep, "/")) is not None


def remove_leftovers(folder: str, endings: tuple[str, ...]) -> None:
    """Remove temporary files with these endings that nobody has written to for ten minutes. Never raises OSError.

    >>> remove_leftovers("no/such/folder", MANIFEST_ENDINGS)
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.endswith(endings) and is_temporary(entry.name)):
                continue
            with suppress(OSError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if entry.is_file(follow_symlinks=False) and age > _OLD:
                    os.unlink(entry.path)
