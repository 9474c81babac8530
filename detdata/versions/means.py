"""How and with what a dataset is hashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.ignore import Rules

if TYPE_CHECKING:
    from concurrent.futures import Executor

UNPROVED = (
    "files taken from the cache were not read: a change made with the clock moved, through a memory map, behind the "
    "file system's back or on one without ctime is not seen"
)


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
    only write them. workers: large files (tables, where the content is rows) read at a time. exclude_files: absolute
    paths of files that are no data. Raises TypeError, ValueError for what cannot be used.
    """

    executor: Executor | None = None
    cache: str | PathLike[str] | None = None
    quick: bool = True
    workers: int | None = None
    progress: Callable[[HashProgress], None] | None = None
    exclude_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.executor is not None and not _is_executor(self.executor):
            raise ArgumentTypeError(
                "executor must be a concurrent.futures.Executor, such as ThreadPoolExecutor(4), or None for threads of "
                f"this process; got {_told(self.executor)}"
            )
        if self.workers is not None:
            as_int(self.workers, "workers", low=1, why="; None lets detdata choose")
        if self.progress is not None and not callable(self.progress):
            raise ArgumentTypeError(
                f"progress must be a function of one HashProgress, or None; got {_told(self.progress)}"
            )
        if self.cache is not None:
            check_path(self.cache, "cache", "a folder for digests, or None to remember none")
            if Path(self.cache).is_file():
                raise ArgumentValueError(
                    f"cache must be a folder, and {brief(str(self.cache))} is a file; name another place, or None"
                )


def quick_notes(means: Means, trusted: bool) -> tuple[str, ...]:
    """Return what a person should know of a quick run; trusted: whether any file was taken from the cache.

    >>> quick_notes(Means(cache="c"), False)
    ('quick: nothing was in the cache that could be trusted; every file was read',)
    """
    if not (means.quick and means.cache is not None):
        return ()
    return (f"quick: {UNPROVED if trusted else 'nothing was in the cache that could be trusted; every file was read'}",)


def check_path(value: object, name: str, what: str) -> None:
    """Raise TypeError or ValueError unless `value` is a path of text; `what` says what it is for.

    >>> check_path("data", "root", "the folder that was hashed")
    """
    if not isinstance(value, (str, PathLike)):
        raise ArgumentTypeError(f"{name} must be a path, {what}; got {_told(value)}")
    text = value if isinstance(value, str) else value.__fspath__()
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{name} must be a path of text, {what}; got {_told(value)}: use os.fsdecode")
    if not text or "\0" in text:
        raise ArgumentValueError(f"{name} must be a path, {what}; {brief(text)} is none")


def _told(value: object) -> str:
    return f"{brief(value)} of type {type(value).__name__}"


def _is_executor(value: object) -> bool:
    from concurrent.futures import Executor  # with logging and more: not for those who have none

    return isinstance(value, Executor)
