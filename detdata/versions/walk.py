"""Which files a dataset consists of: from what was asked for to a sorted list with stat values.

The order is that of the paths' bytes, so neither the file system's order nor the locale enters. What counts is fixed by
the selection and the rules, both recorded; what cannot be listed is an error that names it, never left out.
"""

# One path object for each file would cost more than its system call.
# ruff: noqa: PTH100, PTH112, PTH118

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.errors import DatasetError
from detdata.versions.ignore import Rules as Rules  # noqa: PLC0414 - listing and its rules are asked for together
from detdata.versions.names import check_relative, clash_notes, from_system, path_key, printable, sort_order
from detdata.versions.patterns import MAGIC, escape_glob, parse_glob
from detdata.versions.places import check_current_folder
from detdata.versions.stats import Stats
from detdata.versions.tree import Walker, any_match

_WINDOWS = os.name == "nt"


@dataclass(frozen=True, slots=True)
class Selection:
    """root: the folder that paths are relative to. select: paths and globs below it; `(".",)` is all of it."""

    root: Path
    select: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """All files of a dataset in byte order of their paths.

    paths: relative to root, n of them. stats: dev, inode, size in bytes, mtime_ns and ctime_ns of each (of
    the file that a followed link leads to). kinds: "file", or "link" for a recorded link. notes: for people.
    """

    root: str
    paths: list[str]
    stats: Stats
    kinds: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)


def select(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Selection:
    """Return what `paths` ask for: a folder, a file or a glob (`*`, `?`, `[…]`, `**`), or a list of these.

    The root is the folder itself for one folder, else the deepest folder that holds everything asked for. A path that
    exists is never read as a glob; a folder that a glob matches counts with all below it.
    Raises DatasetError for a path that isn't there and a glob that matches nothing; TypeError, ValueError.

    >>> import tempfile
    >>> select(tempfile.mkdtemp()).select
    ('.',)
    """
    if isinstance(paths, (str, os.PathLike)):
        asked: list[object] = [paths]
    elif isinstance(paths, (list, tuple)):
        asked = list(paths)
    else:
        raise ArgumentTypeError(f"paths must be a path or a list of paths, got {brief(paths)}")
    if not asked:
        raise ArgumentValueError("paths is an empty list; name at least one folder, file or glob")
    found = [_parse(item) for item in asked]
    try:
        root = os.path.commonpath([base for base, *_ in found])
    except ValueError as error:
        raise ArgumentValueError(f"paths: {error}; a dataset has one root, so hash them one by one") from error
    return Selection(Path(root), _without_repeats([_below(root, *item) for item in found]))


def _parse(item: object) -> tuple[str, str, str]:
    """Return the absolute folder that an item starts from, and the name or the glob that it selects there, if any."""
    text = os.fspath(item) if isinstance(item, (str, os.PathLike)) else item
    if not isinstance(text, str):
        raise ArgumentTypeError(f"paths must be text or pathlib paths, got {brief(item)} of type {type(item).__name__}")
    if not text or "\0" in text:
        raise ArgumentValueError(f"paths: {brief(text)} is no path; name a folder, a file or a glob")
    check_current_folder(text)
    try:
        os.lstat(text)
    except (FileNotFoundError, NotADirectoryError):
        if MAGIC.search(text):
            return _parse_glob(text.replace("\\", "/") if _WINDOWS else text)
        raise DatasetError(text, "there is no such file or folder") from None
    except OSError as error:
        raise DatasetError(text, f"cannot be looked at ({error.strerror})") from error
    path = _absolute(text)
    if os.path.isdir(path):
        return path, "", ""
    folder, name = os.path.split(path)
    return folder, name, ""


def _parse_glob(text: str) -> tuple[str, str, str]:
    parts = text.split("/")
    fixed = 0
    while not MAGIC.search(parts[fixed]) or os.path.lexists("/".join(parts[: fixed + 1])):
        fixed += 1
    folder = "/".join(parts[:fixed]) or ("/" if text.startswith("/") else ".")
    rest = [part for part in parts[fixed:] if part not in {"", "."}]
    if ".." in rest:
        raise ArgumentValueError(f"paths: {brief(text)} has '..' after a wildcard; write the folder it means")
    if not os.path.isdir(folder):
        raise DatasetError(text, f"matches nothing: there is no folder {printable(folder)}")
    pattern = from_system("/".join(rest))
    glob = parse_glob(pattern)
    if glob is None or not any_match(folder, glob):
        raise DatasetError(text, "matches nothing; `*` stays within a name, `**` stands for any number of folders")
    return _absolute(folder), "", pattern


def _absolute(path: str) -> str:
    parts = path.split("/")
    if ".." not in parts:
        return os.path.abspath(path)
    last = len(parts) - 1 - parts[::-1].index("..")
    # `link/..` is the parent of what the link leads to, which only the system knows.
    return os.path.abspath(os.path.join(os.path.realpath("/".join(parts[: last + 1])), *parts[last + 1 :]))


def _below(root: str, base: str, name: str, glob: str) -> str:
    """Return what a name or a glob in the folder `base` is called below `root`."""
    way = os.path.relpath(os.path.join(base, name), root)
    plain = "" if way == os.curdir else from_system(way).replace(os.sep, "/")
    if glob or MAGIC.search(plain):  # read as a glob it is, whole: what is no wildcard in it must not become one
        plain = escape_glob(plain)
    return "/".join(filter(None, (plain, glob))) or "."


def _without_repeats(select: list[str]) -> tuple[str, ...]:
    return (".",) if "." in select else tuple(sorted(set(select), key=path_key))


def list_files(
    root: str | os.PathLike[str], select: Sequence[str], rules: Rules, exclude_files: Iterable[str] = ()
) -> Listing:
    """Return all files that `select` and `rules` make data of, in byte order; none where nothing of it is there.

    exclude_files: absolute paths of files that don't count, such as the manifest in use. Never counted are manifests
    and caches of digests that lie in the data, by name and content, the root's `.detdataignore`, empty folders.
    Raises DatasetError for the first of everything that cannot be listed: folders and files that may not be read,
    links that lead nowhere or in a circle, pipes, sockets and devices (none of which is opened); UnknownFormat for a
    choice that leads out of the root. Cost: a stat for each file, some 5 µs; memory some 150 bytes a file.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b", "a"):
    ...     _ = (folder / name).write_bytes(b"123")
    >>> list_files(folder, (".",), Rules()).paths
    ['a', 'b']
    """
    top = os.fspath(root)
    check_current_folder(top)
    if not os.path.isdir(top):
        raise DatasetError(top, "there is no such folder")
    walker = Walker(top.rstrip("/"), rules, exclude_files)
    for choice in select:
        walker.take(choice if choice == "." else check_relative(choice))  # it may come from anyone's manifest
    if walker.troubles:
        troubles = sorted(set(walker.troubles), key=lambda trouble: path_key(trouble[0]))
        path, reason = troubles[0]
        raise DatasetError(f"{top}/{path}" if path else top, reason, len(troubles) - 1)
    order = sort_order(walker.paths)
    if len(select) > 1:
        paths = walker.paths
        order = [at for i, at in enumerate(order) if not i or paths[at] != paths[order[i - 1]]]
    paths, stats = walker.paths, Stats(walker.rows)
    if order != list(range(len(paths))):
        paths, stats = [paths[at] for at in order], stats.take(order)
    kinds = ["link" if at in walker.links else "file" for at in order] if walker.links else ["file"] * len(order)
    return Listing(top, paths, stats, kinds, clash_notes(paths))
