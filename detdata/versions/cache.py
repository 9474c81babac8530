"""Digests of files seen before, so that a tree in which nothing changed needs no reading.

A digest is trusted while device, inode, size, mtime and ctime of its file are what they were. ctime is what makes this
safe against an edit that puts the mtime back: no ordinary program can set it. It can still be wrong where the clock
was moved or the block device written to behind the file system's back, and on file systems that keep no ctime or give
inodes away anew. A file whose times lie within the clock's grain of the moment it was read is not remembered, because
a second change in that grain would leave the same times ("racily clean", as git calls it).

One file for each root, selection and way of hashing, in a folder that may be deleted at any time. A file that is torn,
edited or of another format counts as none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from detdata.algorithms import digest_size
from detdata.versions.files import FileStat
from detdata.versions.own_files import CACHE_ENDINGS, read_own, remove_leftovers, temporary_beside
from detdata.versions.stats import Stats

GRAIN_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT); ext4's is some 4 ms
_MAGIC = b"detdata.digests/1\n"
_ROW = 40  # bytes of a file's dev, inode, size, mtime_ns and ctime_ns
_END = 16  # bytes of the checksum at the end


def default_folder() -> Path | None:
    """Return the folder of this user's caches for detdata: of $XDG_CACHE_HOME, else ~/.cache; None without a home.

    >>> str(default_folder()).endswith("detdata")
    True
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base) / "detdata" if base else Path.home() / ".cache" / "detdata"
    except RuntimeError:  # a container's user that nobody has heard of
        return None


def is_settled(found: FileStat, read_at: int) -> bool:
    """Return whether a file that is read from `read_at` on, ns of `time.time_ns`, can't change without other times.

    >>> is_settled(FileStat(1, 2, 3, mtime_ns=0, ctime_ns=10**9), read_at=2 * 10**9)
    False
    """
    return max(found.mtime_ns, found.ctime_ns) + GRAIN_NS <= read_at


@dataclass(frozen=True, slots=True)
class DigestCache:
    """Where the digests of one root, selection and way of hashing are remembered."""

    file: Path
    algorithm: str

    @staticmethod
    def of(folder: str | os.PathLike[str], key: Sequence[str], algorithm: str) -> DigestCache:
        """Return the cache in `folder` for whatever `key` names: root, selection, rules, piece size, system."""
        name = xxhash.xxh3_128_hexdigest("\0".join([algorithm, *key]).encode("utf-8", "surrogateescape"))
        return DigestCache(Path(folder) / f"{name}.digests", algorithm)

    def look_up(self, paths: list[str], stats: Stats) -> list[str | None]:
        """Return the remembered hex digest of each path whose stat values are the remembered ones, else None.

        paths, stats: as in a listing.
        """
        known = self._read()
        if known is None:
            return [None] * len(paths)
        names, old_stats, hexes = known
        if len(hexes) == len(paths) and names == _joined(paths):
            return [hex if ok else None for hex, ok in zip(hexes, old_stats.same(stats), strict=True)]
        old_paths = names.decode("utf-8", "surrogateescape").split("\0") if hexes else []
        index = {path: place for place, path in enumerate(old_paths)}
        there = [i for i, path in enumerate(paths) if path in index]
        places = [index[paths[i]] for i in there]
        found: list[str | None] = [None] * len(paths)
        for i, place, ok in zip(there, places, old_stats.take(places).same(stats.take(there)), strict=True):
            if ok:
                found[i] = hexes[place]
        return found

    def remember(self, paths: list[str], stats: Stats, hexes: Sequence[str | None], read_at: Sequence[int]) -> None:
        """Replace what is remembered, leaving out files without a digest and those too fresh to be sure of.

        read_at: nanoseconds of `time.time_ns` just before each file was read; for a digest that was itself
        taken from the cache, any time from which on it is known to be safe. Nothing happens where the cache cannot be
        written: it saves time, and no more.
        """
        rows = zip(hexes, stats.latest(), read_at, strict=True)
        # As is_settled says of one.
        keep = [i for i, (hex, last, at) in enumerate(rows) if hex is not None and last + GRAIN_NS <= at]
        if len(keep) < len(paths):
            paths, stats, hexes = [paths[i] for i in keep], stats.take(keep), [hexes[i] for i in keep]
        pieces = (
            _MAGIC,
            len(keep).to_bytes(8, "little"),
            stats.to_bytes(),
            bytes.fromhex("".join(hexes)),  # type: ignore[arg-type]  # None of what is kept is None
            _joined(paths),
        )
        checksum = xxhash.xxh3_128()
        for piece in pieces:
            checksum.update(piece)
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(temporary_beside(str(self.file.parent), self.file.suffix))
            try:
                with temporary.open("xb") as file:
                    file.writelines((*pieces, checksum.digest()))
                temporary.replace(self.file)
            finally:
                temporary.unlink(missing_ok=True)
            remove_leftovers(str(self.file.parent), CACHE_ENDINGS)

    def _read(self) -> tuple[bytes, Stats, list[str]] | None:
        """Return what is remembered: the paths as they are joined in the file, for there may be no need for each."""
        content = read_own(self.file)
        if content is None or not content.startswith(_MAGIC):
            return None
        body = memoryview(content)[:-_END]
        if xxhash.xxh3_128_digest(body) != content[-_END:]:
            return None
        start = len(_MAGIC) + 8
        count, width = int.from_bytes(body[len(_MAGIC) : start], "little"), digest_size(self.algorithm)
        middle = start + count * _ROW
        end = middle + count * width
        if end > len(body):
            return None
        names, stats, text = bytes(body[end:]), Stats.from_bytes(body[start:middle]), body[middle:end].hex()
        del content, body  # some 100 bytes a file, before as many are needed again
        if names.count(b"\0") != max(count - 1, 0) or (names and not count):
            return None
        return names, stats, [text[i : i + 2 * width] for i in range(0, len(text), 2 * width)]


def _joined(paths: Sequence[str]) -> bytes:
    return "\0".join(paths).encode("utf-8", "surrogateescape")
