"""hash_dataset: the version of the data under some paths."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal

from detdata.versions.ignore import Symlinks
from detdata.versions.manifest import Manifest
from detdata.versions.means import HashProgress, Means
from detdata.versions.scan import Paths, scan_paths

if TYPE_CHECKING:
    from concurrent.futures import Executor


class DatasetWarning(UserWarning):
    """Something about a dataset that a person should know, and that doesn't make its version uncertain."""


def hash_dataset(
    paths: Paths,
    algorithm: str = "xxh3-128",
    *,
    content: Literal["bytes", "rows"] = "bytes",
    executor: Executor | None = None,
    cache: str | PathLike[str] | None = None,
    progress: Callable[[HashProgress], None] | None = None,
    workers: int | None = None,
    piece_size: int = 0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    symlinks: Symlinks = "follow",
    part: tuple[int, int] | None = None,
) -> Manifest:
    """Return the manifest of the data under `paths`: each file's path, size and digest, and one digest of it all.

    paths: a folder, a file, a glob or a list of these; here or behind fsspec URLs (`s3://…`, with detdata[remote]).
    algorithm: "xxh3-128" (against accidents, at the speed of reading), "sha256" or "blake3" (against tampering).
    content: "bytes", or "rows" for the logical rows of Parquet, Arrow, JSONL and CSV files, however they are stored.
    executor: any `concurrent.futures.Executor`; by default threads of this process, workers of them. Tables are read
    one after the other (Arrow has threads of its own), or side by side with an executor, or workers from 2 on.
    cache: a folder for digests of files whose device, inode, size, mtime and ctime are unchanged; makes a second run a
    listing, and lets an interrupted one go on. None: everything is read.
    progress: called with a HashProgress now and then. piece_size: 0, or bytes from 64 KiB to 1 TiB: files are hashed as
    trees of pieces of that size (other digests than without), so that one huge file is shared out, and with a cache
    goes on where it was after an interruption. include, exclude: gitignore patterns.
    symlinks: "follow", "record" (the link's own text) or "refuse". part: (i, n), i from 1: every n-th file only, to be
    merged with the others by `merge_manifests`.

    The digest doesn't depend on the root, the order of listing, times, permissions, host, threads or cache. Memory:
    some 300 bytes a file, and a buffer a thread. Waits until no file was written to in the last 20 ms: such a write may
    still be under way. Raises DatasetError (an OSError) for a file that cannot be read,
    changes meanwhile or is no regular file; RowsError (a ValueError) for what is no table; ValueError, TypeError.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_bytes(b"hello")
    >>> hash_dataset(folder).files
    (FileEntry(path='a.txt', size=5, digest='b5e9c1ad071b3e7fc779cfaa5e523818', kind='file'),)
    """
    scan = scan_paths(
        paths,
        algorithm,
        means=Means(executor, cache, workers=workers, progress=progress),
        content=content,
        piece_size=piece_size,
        include=include,
        exclude=exclude,
        symlinks=symlinks,
        part=part,
    )
    for note in scan.notes:
        warnings.warn(note, DatasetWarning, stacklevel=2)
    return scan.manifest
