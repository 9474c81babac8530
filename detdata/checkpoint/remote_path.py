"""Names of objects behind a URL of fsspec, with the few requests that checkpoints need; each is tried three times.

An object store has no folders and no renames; it replaces one object in one step, and shows nothing of an upload before
that is complete. What lies between two slashes is called a folder here all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError, MissingExtra

PART = 1 << 26  # bytes of a part of an upload: 10,000 of them, the most that S3 takes, are 625 GiB
PAUSES_S = (0.5, 2.0)  # between the tries
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(://|::)")  # two letters: `C:` is a drive
_HERE = {"file", "local"}
_NO_OBJECTS = {  # what they write can be seen half-written
    "arrow_hdfs", "ftp", "git", "github", "hdfs", "http", "https", "sftp", "smb", "ssh", "tar", "webhdfs", "zip",
}  # fmt: skip
_FINAL = (PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, TypeError, ImportError)
_ODD = re.compile(r"[*?\[\]\x00-\x1f]")  # fsspec would take them for patterns
_T = TypeVar("_T")


class StoreError(DetdataError, OSError):
    """The store could not be reached, or refused: that says nothing about what is in it."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A name behind a URL. `str()` gives the URL; `/`, `name` and `parent` are those of a Path.

    Every request is tried three times, with pauses, unless trying again cannot help. Raises FileNotFoundError for what
    is not there, and StoreError for all else that goes wrong.

    >>> folder = RemotePath("memory://runs/a") / "ckpt_latest"
    >>> str(folder), folder.name, str(folder.parent)
    ('memory://runs/a/ckpt_latest', 'ckpt_latest', 'memory://runs/a')
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """What comes after the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        """What comes before the last slash."""
        return RemotePath(self.url.rpartition("/")[0])

    def connect(self) -> None:
        """See that there is a package for the protocol; sends nothing. Raises MissingExtra, ValueError."""
        self._resolve()

    def absolute(self) -> RemotePath:
        """Return itself: no folder of a process comes into it."""
        return self

    def exists(self) -> bool:
        """Whether there is such an object, or anything below it."""
        return bool(self._entries())

    def is_dir(self) -> bool:
        """Whether there is anything below it."""
        return bool(self._list())

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield what lies directly below it: objects and folders. Nothing if there is no such folder."""
        yield from sorted((self / name for name in {name for name, _ in self._list()}), key=str)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each object directly below it, by one listing."""
        return {name: int(entry["size"]) for name, entry in self._list() if entry["type"] == "file"}

    def size(self) -> int:
        """Return the size of the object in bytes."""

        def ask() -> int:
            system, key = self._resolve()
            system.invalidate_cache(key)
            info = system.info(key)
            if info["type"] != "file":
                raise FileNotFoundError(self.url)
            return int(info["size"])

        return self._tried("cannot be looked at", ask)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, which the object must have."""

        def get() -> bytes:
            system, key = self._resolve()
            data: bytes = system.cat_file(key, start=start, end=end) if end > start else b""
            if len(data) != end - start:
                raise OSError(f"{len(data)} bytes came from {start} on, {end - start} were asked for")
            return data

        return self._tried("cannot be read", get)

    def put(self, data: bytes) -> None:
        """Make it the object with the content `data`, in one step: others see the old object or the new one."""

        def pipe() -> None:
            system, key = self._resolve()
            system.pipe_file(key, data)

        self._tried("cannot be written", pipe)

    def upload(self, fill: Callable[[BinaryIO], _T]) -> _T:
        """Make it the object that `fill` writes, sent in parts as it comes; return what `fill` returned.

        Nobody sees the object before it is complete. fill: called anew for each try.
        """

        def send() -> _T:
            system, key = self._resolve()
            file = system.open(key, "wb", block_size=PART)
            try:
                result = fill(cast("BinaryIO", file))
                file.close()
            except BaseException:
                _give_up(file)
                raise
            return result

        return self._tried("cannot be written", send)

    def remove(self, names: Iterable[str]) -> None:
        """Remove the objects of these names below it; those that have gone are as good as removed."""
        system, key = self._resolve()
        keys = [f"{key}/{name}" for name in names]
        if keys:
            with contextlib.suppress(FileNotFoundError):
                self._tried("cannot be removed", lambda: system.rm(keys))

    def _list(self) -> list[tuple[str, dict[str, Any]]]:
        """Return name and entry of what lies directly below; a store may list a marker for the folder, too."""
        key = self._resolve()[1].strip("/")
        named = [(entry["name"].strip("/"), entry) for entry in self._entries()]
        return [(name.rpartition("/")[2], entry) for name, entry in named if name != key]

    def _entries(self) -> list[dict[str, Any]]:
        def ask() -> list[dict[str, Any]]:
            system, key = self._resolve()
            system.invalidate_cache(key)
            try:
                return list(system.ls(key, detail=True))
            except FileNotFoundError:
                return []

        return self._tried("cannot be listed", ask)

    def _resolve(self) -> tuple[Any, str]:
        """Return fsspec's file system and the name in it; after a fork it is another one, as it has to be."""
        try:
            import fsspec  # type: ignore[import-untyped]  # ships no annotations
        except ImportError as error:
            raise MissingExtra(f"checkpoints at {self.url} need the package fsspec", "remote") from error
        try:
            system, key = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise MissingExtra(f"{self.url}: {error}; and fsspec itself", "remote") from error
        except ValueError as error:
            raise ArgumentValueError(f"{self.url}: {error}; fsspec lists the protocols it knows") from error
        return system, key.rstrip("/")

    def _tried(self, what: str, request: Callable[[], _T]) -> _T:
        for pause in (*PAUSES_S, None):
            try:
                return request()
            except (FileNotFoundError, DetdataError, MemoryError):
                raise
            except Exception as error:
                # Not only OSErrors: packages let those of their HTTP library and of their credentials through.
                if pause is None or isinstance(error, _FINAL):
                    raise StoreError(f"{self.url} {what}: {str(error) or type(error).__name__}") from error
                time.sleep(pause * (1 + os.urandom(1)[0] / 256))  # many ranks, not all at once
        raise NotImplementedError  # the last try has returned or raised


def _give_up(file: Any) -> None:
    """Abort an upload, as far as the store lets us, and keep the file from completing it when it is collected."""
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(Exception):
        file.closed = True


AnyPath: TypeAlias = Path | RemotePath


def as_path(root: object, name: str = "root") -> AnyPath:
    """Return what a user calls a folder: a path of this machine, or a URL. `file://` is a path of this machine.

    Raises TypeError, ValueError saying what is wrong with it, and MissingExtra.

    >>> as_path("memory://bucket/run/"), as_path("file:///data/run").as_posix()
    (RemotePath(url='memory://bucket/run'), '/data/run')
    """
    if isinstance(root, RemotePath):
        return root
    if not isinstance(root, (str, os.PathLike)) or not os.fspath(root):
        raise ArgumentTypeError(f"{name} must be the path of a folder or a URL, got {root!r}")
    if isinstance(root, PurePath) and len(root.parts) > 1 and re.fullmatch(r"[A-Za-z0-9+.\-]{2,}:", root.parts[0]):
        raise ArgumentValueError(f"{name} is the Path {root}, which has lost a slash: give the URL as a string")
    if not isinstance(root, str) or _URL.match(root) is None:
        return Path(root)
    url = root.rstrip("/")
    protocol, separator, rest = url.partition("://")
    if protocol in _HERE:
        return Path(rest[1:] if re.match(r"/[A-Za-z]:", rest) else rest or "/")
    if "::" in url or protocol in _NO_OBJECTS:
        raise ArgumentValueError(
            f"{name} is {url}, and checkpoints need an object store, which shows an object when it is complete and "
            "replaces it in one step (s3://, gs://, abfs://, …), or a folder of this machine"
        )
    if not separator or not rest or _ODD.search(rest) or not {"", ".", ".."}.isdisjoint(rest.split("/")):
        raise ArgumentValueError(
            f"{name} is {url!r}: expected protocol://bucket/folder, without patterns (* ? [ ]), empty parts, . and .."
        )
    path = RemotePath(url)
    path.connect()
    return path
