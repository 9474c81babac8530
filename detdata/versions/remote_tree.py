"""Walks what a store of fsspec holds. What cannot be listed is an error that names it, never left out.

fsspec's own `find` and `walk` take a folder that they may not list for an empty one. So folders are listed here one by
one, but for the object stores whose packages ask for all keys at once and let the answer's errors through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from detdata.errors import DetdataError, UnknownFormat
from detdata.versions.errors import DatasetError
from detdata.versions.names import check_relative

# Packages whose `find` is one listing without folders: a request for 1,000 keys, not one for each folder.
_FLAT = {"s3fs", "gcsfs", "adlfs"}
_LINKS = "links behind a URL are neither followed nor recorded; exclude it by a pattern"


class StoreFile(NamedTuple):
    """path: relative to the root. key: the store's own name. info: what the store says of it."""

    path: str
    key: str
    info: dict[str, Any]


class StoreErrors:
    """Turns what a store reports, inside a `with`, into a DatasetError that names the URL.

    >>> with StoreErrors("memory://a"):
    ...     raise PermissionError("403")
    Traceback (most recent call last):
    detdata.versions.errors.DatasetError: memory://a: cannot be read (403)
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, DetdataError) or not isinstance(error, Exception):
            return
        if isinstance(error, FileNotFoundError):
            raise DatasetError(self._name, "is not there any more") from error
        # Not only OSErrors: some packages let those of their HTTP library through.
        raise DatasetError(self._name, f"cannot be read ({str(error) or type(error).__name__})") from error


def walk_store(system: Any, url: str, top: str, enters: Callable[[str], bool]) -> Iterator[StoreFile]:
    """Yield all that lies below the key `top` and is no folder, in no particular order.

    system: fsspec's. url: what `top` is called in messages. enters: whether a folder, as a relative path, is of any
    interest; what isn't entered may be unreadable. Keys that end in a slash and have no content stand for folders and
    don't count. Raises DatasetError for a folder that cannot be listed, a link and a name that cannot be in a manifest.
    Cost: a request for each folder; for s3, gs and abfs one for each 1,000 keys.
    """
    with StoreErrors(url):
        system.invalidate_cache()  # what this process listed some time ago is no witness
    if type(system).__module__.partition(".")[0] in _FLAT:
        with StoreErrors(url):
            found = system.find(top, detail=True)
        for key, info in found.items():
            path = _below(top, key, url)
            if not _is_mark(path, info, url) and info.get("type") != "directory":
                yield StoreFile(path, key, info)
        return
    stack = [("", top)]
    while stack:
        folder, folder_key = stack.pop()
        with StoreErrors(_named(url, folder)):
            entries = system.ls(folder_key, detail=True)
        for info in entries:
            key = info["name"]
            if key.strip("/") == folder_key.strip("/") and not key.endswith("/"):
                continue  # some stores list the folder itself
            path = _below(top, key, url)
            if info.get("type") != "directory":
                if not _is_mark(path, info, url):
                    yield StoreFile(path, key, info)
                continue
            name = path.removesuffix("/")
            _check(name if name != folder else f"{folder}//", url)  # a folder without a name, as keys can have
            if enters(name):
                stack.append((name, key.removesuffix("/")))


def refuse_odd(file: StoreFile, url: str, protocols: tuple[str, ...]) -> None:
    """Raise DatasetError unless `file` is a regular file under a name that can be in a manifest."""
    _check(file.path, url)
    kind = file.info.get("type", "file")
    if file.info.get("islink") or kind == "link":
        plain = (
            f", or give the plain path {file.key}, where symlinks= says what they are" if "file" in protocols else ""
        )
        raise DatasetError(_named(url, file.path), f"is a symbolic link; {_LINKS}{plain}")
    if kind != "file":
        raise DatasetError(_named(url, file.path), "is no regular file; move it away, or exclude it by a pattern")


def _named(url: str, path: str) -> str:
    return f"{url.rstrip('/')}/{path}" if path else url


def _below(top: str, key: str, url: str) -> str:
    prefix = top.strip("/")
    path = key.lstrip("/")
    if prefix and not path.startswith(f"{prefix}/"):
        raise DatasetError(url, f"the store lists '{key}' in it, which does not lie there")
    return path.removeprefix(f"{prefix}/") if prefix else path


def _is_mark(path: str, info: dict[str, Any], url: str) -> bool:
    """Return whether a key is only a mark that says that there is a folder."""
    if not path.endswith("/"):
        return False
    if info.get("type") != "directory" and info.get("size"):
        raise DatasetError(_named(url, path), "has content, but a name that ends in a slash, as of a folder; rename it")
    return True


def _check(path: str, url: str) -> None:
    try:
        check_relative(path)
    except UnknownFormat as error:
        raise DatasetError(url, f"{error}; rename it, or exclude it by a pattern") from error
