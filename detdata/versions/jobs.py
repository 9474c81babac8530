"""The digests of many files, by threads of this process or by any `concurrent.futures.Executor`.

Large files go side by side, since reading and hashing them frees Python's lock; small ones go one after another in this
thread, because two threads on small files take longer than one (the lock changes hands at every system call). On an
executor small files go in batches and, in tree mode, a large file in pieces, so that it isn't bound to one machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from detdata.algorithms import hex_function
from detdata.arrays import Int64Array
from detdata.versions.errors import DatasetError
from detdata.versions.files import (
    FileStat,
    digest_file,
    digest_many,
    digest_piece,
    digest_small,
    stat_file,
)
from detdata.versions.ignore import Symlinks
from detdata.versions.pieces import join_pieces
from detdata.versions.remote import digest_remote

LARGE = 4 * 2**20  # bytes from which a file is a job of its own
_BATCH_FILES = 1000  # small files of a job on an executor …
_BATCH_BYTES = 64 * 2**20  # … and their bytes
_REQUESTS = 8  # files of a store read at a time: each waits for answers most of its time
_AHEAD = 64  # jobs handed to an executor ahead of the results: neither side waits, and memory stays bounded

Done: TypeAlias = Callable[[int, str], None]  # (index of the file, hex digest)


@dataclass(frozen=True, slots=True)
class Job:
    """A function of this library with its arguments, picklable, and which files its answer is for."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    files: tuple[int, ...]
    piece: int = -1  # of a file in pieces, which one


@dataclass(frozen=True, slots=True)
class Way:
    """How every file is hashed."""

    root: str
    algorithm: str
    piece_size: int
    symlinks: Symlinks


def threads() -> int:
    """Return how many threads read large files: one a core, four at most, as memory bandwidth ends there."""
    return min(4, os.cpu_count() or 1)


def digest_all(
    way: Way,
    paths: Sequence[str],
    stats: Int64Array,
    todo: Sequence[int],
    done: Done,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Hash the files of the indexes `todo` and call `done` with each digest, in whatever order they are ready.

    done and on_bytes run in the calling thread, but for on_bytes of large files without an executor, which runs in the
    thread that reads; what it raises stops that file's reading. Raises DatasetError for the first file that cannot be
    hashed; jobs not yet begun are then given up, and those that run are waited for.
    """
    sizes: list[int] = stats[:, 2].tolist()
    large = sorted((i for i in todo if sizes[i] >= LARGE), key=lambda i: -sizes[i])
    small = [i for i in todo if sizes[i] < LARGE]
    if executor is not None:
        jobs = [*_large_jobs(way, paths, sizes, large), *_batches(way, paths, sizes, small)]
        _run(executor, jobs, _Collector(way, sizes, done, on_bytes))
        return
    if large:
        stopped = threading.Event()

        def count(size: int) -> None:
            if stopped.is_set():  # nobody wants this digest any more: end at the next block, not in an hour
                raise InterruptedError
            if on_bytes is not None:
                on_bytes(size)

        jobs = list(_large_jobs(way, paths, sizes, large, count, stats))
        with _pool(workers or threads(), stopped) as pool:
            _run(pool, jobs, _Collector(way, sizes, done, None))
    _one_by_one(way, paths, stats, small, done, on_bytes)


def _one_by_one(
    way: Way,
    paths: Sequence[str],
    stats: Int64Array,
    files: Sequence[int],
    done: Done,
    on_bytes: Callable[[int], None] | None,
) -> None:
    one_shot = hex_function(way.algorithm)
    plain = way.symlinks == "follow" and not way.piece_size
    for start in range(0, len(files), _BATCH_FILES):
        part = files[start : start + _BATCH_FILES]
        for i, listed in zip(part, stats[part].tolist(), strict=True):
            path = _full(way, paths[i])
            hex = digest_small(path, listed, one_shot) if plain else None
            if hex is None:
                hex = digest_file(path, way.algorithm, way.piece_size, way.symlinks, None, _listed(stats, i)).hex
            done(i, hex)
            if on_bytes is not None:
                on_bytes(listed[2])


def _listed(stats: Int64Array, i: int) -> FileStat | None:
    """What a file was when it was listed; None where an inode of 64 bits had to be wrapped and cannot be compared."""
    row = FileStat(*stats[i].tolist())
    return row if min(row.dev, row.inode) >= 0 else None


def digest_urls(
    way: Way,
    paths: Sequence[str],
    sizes: Sequence[int],
    done: Done,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Do as `digest_all` does for the files of a listing below the URL `way.root`, several at a time."""
    jobs = [Job(digest_remote, (way.root, path, way.algorithm, way.piece_size), (i,)) for i, path in enumerate(paths)]
    collector = _Collector(way, sizes, done, on_bytes)
    if executor is not None:
        _run(executor, jobs, collector)
        return
    with _pool(workers or _REQUESTS) as pool:
        _run(pool, jobs, collector)


@contextmanager
def _pool(workers: int, stopped: threading.Event | None = None) -> Iterator[Executor]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="detdata-hash")
    try:
        yield pool
    except BaseException:
        if stopped is not None:
            stopped.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _large_jobs(
    way: Way,
    paths: Sequence[str],
    sizes: Sequence[int],
    files: Sequence[int],
    on_bytes: Callable[[int], None] | None = None,
    stats: Int64Array | None = None,
) -> Iterator[Job]:
    for i in files:
        path = _full(way, paths[i])
        expect = None if stats is None else _listed(stats, i)  # None for another machine, which has other inodes
        if way.piece_size and sizes[i] > way.piece_size:
            for piece, start in enumerate(range(0, sizes[i], way.piece_size)):
                stop = min(start + way.piece_size, sizes[i])
                yield Job(digest_piece, (path, way.algorithm, start, stop, on_bytes, expect), (i,), piece)
        else:
            yield Job(digest_file, (path, way.algorithm, way.piece_size, way.symlinks, on_bytes, expect), (i,))


def _batches(way: Way, paths: Sequence[str], sizes: Sequence[int], files: Sequence[int]) -> Iterator[Job]:
    batch: list[int] = []
    size = 0
    for i in files:
        if batch and (len(batch) == _BATCH_FILES or size + sizes[i] > _BATCH_BYTES):
            yield _batch(way, paths, batch)
            batch, size = [], 0
        batch.append(i)
        size += sizes[i]
    if batch:
        yield _batch(way, paths, batch)


def _batch(way: Way, paths: Sequence[str], files: Sequence[int]) -> Job:
    names = [paths[i] for i in files]
    return Job(digest_many, (way.root, names, way.algorithm, way.piece_size, way.symlinks), tuple(files))


class _Collector:
    """Takes the jobs' answers, puts the pieces of a file together, and tells `done`."""

    def __init__(self, way: Way, sizes: Sequence[int], done: Done, on_bytes: Callable[[int], None] | None) -> None:
        self.way, self.sizes, self.done, self.on_bytes = way, sizes, done, on_bytes
        self.pieces: dict[int, dict[int, bytes]] = {}
        self.before: dict[int, FileStat] = {}

    def begin(self, job: Job) -> None:
        """Note how a file in pieces is before its first piece is read."""
        if job.piece >= 0 and job.files[0] not in self.before:
            self.before[job.files[0]] = stat_file(job.arguments[0])

    def take(self, job: Job, answer: Any) -> None:
        """Take one job's answer."""
        if job.piece >= 0:
            self._take_piece(job, answer)
            return
        many = isinstance(answer, list)
        for place, (i, digest) in enumerate(zip(job.files, answer if many else [answer], strict=True)):
            path = f"{job.arguments[0]}/{job.arguments[1][place]}" if job.run is digest_many else job.arguments[0]
            _check_size(path, self.sizes[i], digest.size)
            self.done(i, digest.hex)
            if self.on_bytes is not None:
                self.on_bytes(digest.size)

    def _take_piece(self, job: Job, digest: bytes) -> None:
        (i,), (path, _, start, stop, *_) = job.files, job.arguments
        pieces = self.pieces.setdefault(i, {})
        pieces[job.piece] = digest
        if self.on_bytes is not None:
            self.on_bytes(stop - start)
        if len(pieces) < -(-self.sizes[i] // self.way.piece_size):
            return
        before, now = self.before.pop(i), stat_file(path)
        if before != now or now.size != self.sizes[i]:
            raise DatasetError(path, "changed while it was read; go on when nothing writes to it")
        ordered = [pieces[k] for k in range(len(pieces))]
        del self.pieces[i]
        self.done(i, join_pieces(self.way.algorithm, self.way.piece_size, self.sizes[i], ordered))


def _run(executor: Executor, jobs: Sequence[Job], collector: _Collector) -> None:
    waiting: dict[Future[Any], Job] = {}
    queue = iter(jobs)
    try:
        while True:
            for job in queue:
                collector.begin(job)
                waiting[executor.submit(job.run, *job.arguments)] = job
                if len(waiting) >= _AHEAD:
                    break
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                collector.take(waiting.pop(future), future.result())
    finally:
        for future in waiting:
            future.cancel()


def _full(way: Way, path: str) -> str:
    return f"{way.root}/{path}"


def _check_size(path: str, listed: int, read: int) -> None:
    if listed != read:
        raise DatasetError(path, f"changed after it was listed: {listed} bytes then, {read} when it was read")
