"""Names of files that this library writes beside others: temporary ones, and what to do with those left behind."""

# Deciding what is a leftover takes single system calls.
# ruff: noqa: PTH108, PTH118

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import suppress

MANIFEST_ENDINGS = (".lock.json", ".lock.json.gz")
CACHE_ENDINGS = (".digests", ".pieces")

_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{16}\.(lock\.json|lock\.json\.gz|digests|pieces)")
_OLD = 600.0  # seconds: nobody has been writing to it for so long that nobody will


def temporary_beside(folder: str, ending: str) -> str:
    """Return a path in `folder` that is nobody's, for a file that is to be renamed to one with that ending.

    >>> is_temporary(temporary_beside("x", ".digests"))
    True
    """
    return os.path.join(folder, f".tmp-{secrets.token_hex(8)}{ending}")


def is_temporary(path: str) -> bool:
    """Return whether a path has just such a name: left by a process that was killed, it is nobody's data.

    >>> is_temporary("a/.tmp-0123456789abcdef.lock.json"), is_temporary(".tmp-notes.lock.json")
    (True, False)
    """
    return _TEMPORARY.fullmatch(path.rpartition("/")[2].rpartition(os.sep)[2]) is not None


def remove_leftovers(folder: str, endings: tuple[str, ...]) -> None:
    """Remove temporary files with these endings that nobody has written to for ten minutes. Never raises OSError."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.endswith(endings) and is_temporary(entry.name)):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and time.time() - found.st_mtime > _OLD:
                    os.unlink(entry.path)
