"""How and with what a dataset is hashed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from os import PathLike

from detdata.versions.ignore import Rules


@dataclass(frozen=True, slots=True)
class HashProgress:
    """How far hashing is: what a `progress` function is called with, in whatever thread reads.

    files and bytes are those done, of total_files and total_bytes; trusted: files among them taken from the cache.

    >>> now = HashProgress(files=3, total_files=4, bytes=75, total_bytes=100, trusted=1)
    >>> f"{now.bytes / now.total_bytes:.0%}"
    '75%'
    """

    files: int
    total_files: int
    bytes: int
    total_bytes: int
    trusted: int


@dataclass(frozen=True, slots=True)
class Ways:
    """How a dataset is hashed: what its manifest records."""

    algorithm: str
    content: str
    piece_size: int
    rules: Rules


@dataclass(frozen=True, slots=True)
class Means:
    """With what it is hashed: nothing of it changes a digest.

    executor: None for threads of this process. cache: folder of remembered digests, or None; quick: trust them, not
    only write them. workers: large files read at a time. exclude_files: absolute paths of files that are no data.
    """

    executor: Executor | None = None
    cache: str | PathLike[str] | None = None
    quick: bool = True
    workers: int | None = None
    progress: Callable[[HashProgress], None] | None = None
    exclude_files: tuple[str, ...] = ()
