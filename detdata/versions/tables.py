"""Hashes the rows of listed tables: with progress, by an executor, and from the cache where no table has changed."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from detdata.algorithms import new_hasher
from detdata.errors import UnknownFormat
from detdata.rows import Batch, RowsError, RowsVersion, hash_rows, hash_rows_on, parquet_rows, system_trouble
from detdata.versions.cache import DigestCache
from detdata.versions.errors import DatasetError
from detdata.versions.files import stat_file
from detdata.versions.means import Means, Ways
from detdata.versions.meter import Meter
from detdata.versions.own_files import read_own, temporary_beside
from detdata.versions.walk import Listing, Selection

_SUFFIX = ".rows"  # of the record that the digests beside it stand for


def hash_tables(
    chosen: Selection, listing: Listing, ways: Ways, means: Means, *, stop: int | None = None
) -> tuple[RowsVersion, bool]:
    """Return the version of the listed tables' rows, and whether it was taken from the cache: all of it, or nothing.

    stop: as for `hash_rows`. Raises DatasetError for what the operating system does not let one read and for a file
    that changes meanwhile; RowsError for what is no table, or not one with the others; ValueError.
    """
    files = [(path, f"{chosen.root}/{path}") for path in listing.paths]
    sizes = listing.stats.sizes()
    kept = None if means.cache is None else _Kept.of(means, chosen, ways)
    known = kept.look_up(listing, stop) if kept is not None and means.quick else None
    if known is not None:
        meter = Meter(means, len(files), sum(sizes), len(files))
        meter.bytes = meter.total_bytes
        meter.add(0)
        return known, True
    listing.stats.settle()
    read_at = time.time_ns()  # before the first of them is read: the safe side
    meter = Meter(means, len(files), sum(sizes), 0)
    try:
        version = _hash(files, sizes, ways.algorithm, means, meter, stop)
    except RowsError as error:
        check_unchanged(str(chosen.root), listing)
        reason = system_trouble(error)
        if reason is None or error.path is None:
            raise
        where = f"{chosen.root}/{error.path}"
        raise DatasetError(where, f"cannot be read ({reason}); see to that, or exclude it by a pattern") from error
    check_unchanged(str(chosen.root), listing)
    if kept is not None:
        kept.remember(listing, version, read_at)
    return version, False


def _hash(
    files: list[tuple[str, str]], sizes: list[int], algorithm: str, means: Means, meter: Meter, stop: int | None
) -> RowsVersion:
    walk = _Walk(meter, files, sizes)
    if len(files) > 1 and (means.executor is not None or (means.workers or 1) > 1):
        with nullcontext(means.executor) if means.executor else ThreadPoolExecutor(means.workers) as executor:
            version = hash_rows_on(executor, files, algorithm, stop=stop, on_file=lambda _: walk.close())
    else:  # Arrow's own threads decode, and one block is held at a time
        on_batch = None if means.progress is None else walk.take
        version = hash_rows(files, algorithm, stop=stop, on_batch=on_batch)
    walk.end()
    return version


def check_unchanged(root: str, listing: Listing) -> None:
    """Raise DatasetError unless every listed file is as it was when it was listed."""
    for path, before in zip(listing.paths, listing.stats, strict=True):
        now = stat_file(f"{root}/{path}")
        first = 2 if min(before[:2]) < 0 else 0  # an inode of 64 bits had to be wrapped, and cannot be compared
        if before[first:] != now[first:]:
            raise DatasetError(f"{root}/{path}", "changed while it was read; go on when nothing writes to it")


class _Walk:
    """Tells how far reading is: bytes of a file in proportion to its rows, or to what its values take."""

    def __init__(self, meter: Meter, files: list[tuple[str, str]], sizes: list[int]) -> None:
        self.meter, self.files, self.sizes = meter, files, sizes
        self.file = self.told = self.seen = 0
        self.rows: int | None = None
        meter.add(0)

    def take(self, batch: Batch) -> None:
        """Count a batch."""
        while self.file < batch.file:
            self.close()
        if self.seen == 0:
            self.rows = parquet_rows(*self.files[self.file])
        size = self.sizes[self.file]
        if self.rows is None:  # text takes some as much room in memory as in the file
            self.seen += sum(column.nbytes for column in batch.columns)
            done = min(self.seen, size)
        else:
            self.seen += batch.rows
            done = min(size * self.seen // max(1, self.rows), size)
        self.meter.add(done - self.told)
        self.told = done

    def end(self) -> None:
        """Count what is left."""
        while self.file < len(self.files):
            self.close()
        self.meter.add(0)

    def close(self) -> None:
        """Count the rest of a file."""
        self.meter.files += 1
        self.meter.add(self.sizes[self.file] - self.told)
        self.file += 1
        self.told = self.seen = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """The version of the rows of one root, selection and way, remembered under the identities of its files.

    What the cache of digests keeps for each file is the digest of the whole record, which lies beside it: it is taken
    only if every file is as it was, all have the same digest, and the record has it too. So the two files need not be
    written at once, and when a file may be trusted is decided by the cache of digests alone.
    """

    digests: DigestCache
    record: Path

    @classmethod
    def of(cls, means: Means, chosen: Selection, ways: Ways) -> _Kept:
        key = ("rows", os.path.realpath(chosen.root), *chosen.select, repr(ways.rules), sys.platform)
        digests = DigestCache.of(means.cache or "", key, ways.algorithm)
        return cls(digests, digests.file.with_suffix(_SUFFIX))

    def look_up(self, listing: Listing, stop: int | None) -> RowsVersion | None:
        """Return the version if no file was changed, added or removed since, and the first `stop` rows' with it."""
        marks = set(self.digests.look_up(listing.paths, listing.stats))
        mark = marks.pop() if len(marks) == 1 else None
        if mark is None:
            return None
        try:
            text = read_own(self.record)
            if text is None or self._mark(text) != mark:
                return None
            whole, first = (None if item is None else RowsVersion.from_record(item) for item in json.loads(text))
        except (OSError, ValueError, UnknownFormat):
            return None
        if whole is None or [path for path, _ in whole.files] != listing.paths:
            return None
        if stop is not None and whole.rows > stop and (first is None or first.rows != stop):
            return None  # whether the rows have only grown is not to be told from the record
        return replace(whole, prefix=first)

    def remember(self, listing: Listing, version: RowsVersion, read_at: int) -> None:
        """Keep the version. Nothing happens where that cannot be: it saves time, and no more."""
        first = version.prefix
        text = json.dumps([version.to_record(), None if first is None else first.to_record()]).encode()
        with suppress(OSError):
            self.record.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(temporary_beside(str(self.record.parent), _SUFFIX))
            temporary.write_bytes(text)
            temporary.replace(self.record)
            times = [read_at] * len(listing.paths)
            self.digests.remember(listing.paths, listing.stats, [self._mark(text)] * len(listing.paths), times)

    def _mark(self, text: bytes) -> str:
        return new_hasher(self.digests.algorithm, text).digest().hex()
