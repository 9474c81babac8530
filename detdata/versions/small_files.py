"""Digests of small files: what is done for each of a hundred thousand files, and nothing besides.

Such a file costs four system calls (open, read, fstat, close) after the one of its listing, in some 5 µs, of which its
digest is a quarter. There is no stat before reading: what is after it as it was when it was listed was so in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from detdata.algorithms import Bytes
from detdata.versions.files import NO_FOLLOW, OPEN_FLAGS
from detdata.versions.ignore import Symlinks
from detdata.versions.names import SYSTEM_IS_UTF8, to_system
from detdata.versions.stats import values_of

# A folder of which nothing is wanted but a way to its files: not even the right to list it.
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


def digest_small(
    root: str,
    paths: Sequence[str],
    listed: Iterable[Sequence[int]],
    one_shot: Callable[[Bytes], str],
    hexes: list[str | None],
    symlinks: Symlinks = "follow",
) -> None:
    """Append the hex digest of each of `paths` below `root` to `hexes`, whole files of at most 64 KiB.

    listed: stat values of each as tuples in the order of FileStat. one_shot: what `hex_function` returned. None is
    appended for a file that cannot be read, is none, or isn't what was listed: `digest_file` knows what to do about it,
    or what to say. symlinks: "follow", else a link gives None too. If this is interrupted, `hexes` has what is done.

    >>> hexes = []
    >>> digest_small("no such folder", ["a"], [(0, 0, 0, 0, 0)], str, hexes)
    >>> hexes
    [None]
    """
    flags = OPEN_FLAGS if symlinks == "follow" else OPEN_FLAGS | NO_FOLLOW
    names: Iterable[str] = paths if SYSTEM_IS_UTF8 else map(to_system, paths)
    folder: int | None = None
    if os.open in os.supports_dir_fd:  # a short way to each file, and not all of it from / on
        with suppress(OSError):
            folder = os.open(to_system(root), _WAY)
    if folder is None:
        names = [f"{to_system(root)}/{name}" for name in names]
    try:
        _digest_each(folder, names, flags, listed, one_shot, hexes)
    finally:
        if folder is not None:
            os.close(folder)


def _digest_each(
    folder: int | None,
    names: Iterable[str],
    flags: int,
    listed: Iterable[Sequence[int]],
    one_shot: Callable[[Bytes], str],
    hexes: list[str | None],
) -> None:
    for name, values in zip(names, listed, strict=True):
        size = values[2]
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
            try:
                data = os.read(descriptor, size + 1)  # one more: a file that grew is found here
                found = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            hexes.append(None)
            continue
        same = values_of(found) == values and len(data) == size and stat.S_ISREG(found.st_mode)
        hexes.append(one_shot(data) if same else None)
