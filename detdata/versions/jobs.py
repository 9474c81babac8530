"""The digests of many files, by threads of this process or by any `concurrent.futures.Executor`.

Large files go side by side, since reading and hashing them frees Python's lock; small ones go one after another in this
thread, because two threads on small files take longer than one (the lock changes hands at every system call). On an
executor small files go in batches. In tree mode a large file goes in runs of pieces, so that it isn't bound to one core
or machine. Jobs are made as they are handed out: memory doesn't grow with their number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from detdata.algorithms import hex_function
from detdata.versions.errors import DatasetError
from detdata.versions.files import NO_FOLLOW, SMALL, FileStat, digest_file, digest_many, digest_piece, stat_file
from detdata.versions.ignore import Symlinks
from detdata.versions.pieces import Joiner, check_piece_size
from detdata.versions.remote import digest_remote
from detdata.versions.small_files import digest_small
from detdata.versions.stats import Stats
from detdata.versions.unfinished import Journal, Unfinished

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

THREADED = 2**20  # bytes from which threads gain: at 256 KiB two take 1.5 times as long as one, at 1 MiB two thirds
LARGE = 4 * 2**20  # bytes from which a file is a job of its own on an executor
_AT_ONCE = 512  # small files between two looks at the clock and the progress
_BATCH_FILES = 1000  # small files of a job on an executor …
_BATCH_BYTES = 64 * 2**20  # … and their bytes
_REQUESTS = 8  # files of a store read at a time: each waits for answers most of its time
_RUN = 8 * 2**20  # bytes of pieces that are a job, at least: a job costs more than a small piece
_JOURNAL = 64 * 2**20  # bytes from which a file in pieces is worth a journal
_EARLY = 1024  # runs of pieces that may wait for one ahead of them before no more are handed out
_AHEAD = 64  # jobs handed to an executor ahead of the results: neither side waits, and memory stays bounded

Done: TypeAlias = Callable[[Sequence[tuple[int, str]]], None]  # index of a file, its hex digest


@dataclass(frozen=True, slots=True)
class Job:
    """A function of this library with its arguments, picklable, and which files its answer is for."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    files: tuple[int, ...]
    first: int = -1  # of a file in pieces, which is the first of this job's


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
    stats: Stats,
    todo: Sequence[int],
    done: Done,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
    unfinished: Unfinished | None = None,
) -> None:
    """Hash the files of the indexes `todo` and call `done` with the digests, in whatever order they are ready.

    done and on_bytes run in the calling thread, but for on_bytes of large files without an executor, which runs in the
    thread that reads; what it raises stops that file's reading. unfinished: where large files in pieces keep the
    digests of pieces that are done. Raises ValueError for a piece size that files aren't hashed with; DatasetError for
    the first file that cannot be hashed: jobs not yet begun are then given up, and those that run are waited for.
    """
    check_piece_size(way.piece_size)
    if not todo:  # not even a list of sizes, where everything is known
        return
    sizes = stats.sizes()
    least = THREADED if executor is None else LARGE
    large = sorted((i for i in todo if sizes[i] >= least), key=lambda i: -sizes[i])
    small = [i for i in todo if sizes[i] < least]
    if executor is not None:
        collector = _Collector(way, sizes, done, on_bytes, unfinished)
        jobs = chain(_large_jobs(collector, paths, stats, large), _batches(way, paths, sizes, small))
        _run(executor, jobs, collector)
        return
    if large:
        stopped = threading.Event()

        def count(size: int) -> None:
            if stopped.is_set():  # nobody wants this digest any more: end at the next block, not in an hour
                raise InterruptedError
            if on_bytes is not None:
                on_bytes(size)

        collector = _Collector(way, sizes, done, None, unfinished)
        with _pool(workers or threads(), stopped) as pool:
            _run(pool, _large_jobs(collector, paths, stats, large, count), collector)
    _one_by_one(way, paths, stats, small, done, on_bytes)


def _one_by_one(
    way: Way,
    paths: Sequence[str],
    stats: Stats,
    files: Sequence[int],
    done: Done,
    on_bytes: Callable[[int], None] | None,
) -> None:
    """Hash files in this thread: many small ones at a time, and what is left one by one."""
    sizes = stats.sizes()
    at_once = not way.piece_size and (way.symlinks == "follow" or (way.symlinks == "refuse" and NO_FOLLOW != 0))
    small = [i for i in files if sizes[i] <= SMALL] if at_once else []
    left = [i for i in files if sizes[i] > SMALL] if at_once else files
    one_shot = hex_function(way.algorithm)
    for start in range(0, len(small), _AT_ONCE):
        part = small[start : start + _AT_ONCE]
        hexes: list[str | None] = []
        try:
            digest_small(way.root, [paths[i] for i in part], stats.rows(part), one_shot, hexes, way.symlinks)
        finally:
            done([(i, hex) for i, hex in zip(part, hexes, strict=False) if hex is not None])  # fewer, if interrupted
        odd = [i for i, hex in zip(part, hexes, strict=True) if hex is None]
        if on_bytes is not None:
            on_bytes(sum([sizes[i] for i in part]) - sum([sizes[i] for i in odd]))
        _one_at_a_time(way, paths, stats, odd, done, on_bytes)
    _one_at_a_time(way, paths, stats, left, done, on_bytes)


def _one_at_a_time(
    way: Way,
    paths: Sequence[str],
    stats: Stats,
    files: Sequence[int],
    done: Done,
    on_bytes: Callable[[int], None] | None,
) -> None:
    for i in files:
        path = _full(way, paths[i])
        done([(i, digest_file(path, way.algorithm, way.piece_size, way.symlinks, None, stats[i]).hex)])
        if on_bytes is not None:
            on_bytes(stats[i].size)


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
    step = check_piece_size(way.piece_size)
    jobs = (Job(digest_remote, (way.root, path, way.algorithm, step), (i,)) for i, path in enumerate(paths))
    collector = _Collector(way, sizes, done, on_bytes)
    if executor is not None:
        _run(executor, jobs, collector)
        return
    with _pool(workers or _REQUESTS) as pool:
        _run(pool, jobs, collector)


@contextmanager
def _pool(workers: int, stopped: threading.Event | None = None) -> Iterator[Executor]:
    from concurrent.futures import ThreadPoolExecutor  # with logging and more: not for small files

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
    collector: _Collector,
    paths: Sequence[str],
    stats: Stats,
    files: Sequence[int],
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Job]:
    """Jobs for threads of this process where on_bytes is given, else for machines that have other inodes."""
    way = collector.way
    for i in files:
        path, size = _full(way, paths[i]), collector.sizes[i]
        expect = None if on_bytes is None else stats[i]
        if not way.piece_size or size <= way.piece_size:
            yield Job(digest_file, (path, way.algorithm, way.piece_size, way.symlinks, on_bytes, expect), (i,))
            continue
        step = way.piece_size * max(1, _RUN // way.piece_size)
        known = collector.begin(i, path, stats[i])
        if on_bytes is not None:
            on_bytes(min(known * way.piece_size, size))
        for start in range(known * way.piece_size, size, step):
            stop = min(start + step, size)
            arguments = (path, way.algorithm, start, stop, on_bytes, expect, "follow", way.piece_size)
            yield Job(digest_piece, arguments, (i,), start // way.piece_size)


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


@dataclass(slots=True)
class _Tree:
    """A file in pieces that is on its way. early: digests of runs that came before those of the runs ahead of them."""

    path: str
    before: FileStat
    joiner: Joiner
    journal: Journal | None
    early: dict[int, bytes] = field(default_factory=dict)


class _Collector:
    """Takes the jobs' answers, puts the pieces of a file together, and tells `done`."""

    def __init__(
        self,
        way: Way,
        sizes: Sequence[int],
        done: Done,
        on_bytes: Callable[[int], None] | None,
        unfinished: Unfinished | None = None,
    ) -> None:
        self.way, self.sizes, self.done, self.on_bytes, self.unfinished = way, sizes, done, on_bytes, unfinished
        self.trees: dict[int, _Tree] = {}
        self.early = 0  # runs of pieces, of all files

    def begin(self, i: int, path: str, listed: FileStat) -> int:
        """Note how a file in pieces is before its first piece is read; return how many of them are known already."""
        before = stat_file(path)
        if before != listed:
            raise DatasetError(path, "changed since it was listed; go on when nothing writes to it")
        unfinished = self.unfinished if before.size >= _JOURNAL else None
        journal = None if unfinished is None else unfinished.journal(path, before)
        tree = _Tree(path, before, Joiner(self.way.algorithm, self.way.piece_size, before.size), journal)
        self.trees[i] = tree
        for digests in journal.known(tree.joiner.count) if journal else ():
            tree.joiner.add(digests)
        known = tree.joiner.taken
        if known and self.on_bytes is not None:
            self.on_bytes(min(known * self.way.piece_size, before.size))
        self._finish(i, tree)
        return known

    def take(self, job: Job, answer: Any) -> None:
        """Take one job's answer."""
        if job.first >= 0:
            self._take_pieces(job, answer)
            return
        many = isinstance(answer, list)
        for place, (i, digest) in enumerate(zip(job.files, answer if many else [answer], strict=True)):
            path = f"{job.arguments[0]}/{job.arguments[1][place]}" if job.run is digest_many else job.arguments[0]
            _check_size(path, self.sizes[i], digest.size)
            self.done([(i, digest.hex)])
            if self.on_bytes is not None:
                self.on_bytes(digest.size)

    def _take_pieces(self, job: Job, digests: bytes) -> None:
        (i,), (_, _, start, stop, *_) = job.files, job.arguments
        tree = self.trees[i]
        tree.early[job.first] = digests
        self.early += 1
        while (ready := tree.early.pop(tree.joiner.taken, None)) is not None:
            self.early -= 1
            tree.joiner.add(ready)
            if tree.journal is not None:
                tree.journal.add(ready)
        if self.on_bytes is not None:
            self.on_bytes(stop - start)
        self._finish(i, tree)

    def _finish(self, i: int, tree: _Tree) -> None:
        if tree.joiner.taken < tree.joiner.count:
            return
        if stat_file(tree.path) != tree.before:
            raise DatasetError(tree.path, "changed while it was read; go on when nothing writes to it")
        del self.trees[i]
        self.done([(i, tree.joiner.hex())])
        if tree.journal is not None and self.unfinished is not None:
            self.unfinished.finish(tree.journal)

    def close(self) -> None:
        """Leave the journals of files that are not finished as they are."""
        for tree in self.trees.values():
            if tree.journal is not None:
                tree.journal.close()


def _run(executor: Executor, jobs: Iterator[Job], collector: _Collector) -> None:
    from concurrent.futures import FIRST_COMPLETED, wait

    waiting: dict[Future[Any], Job] = {}
    try:
        while True:
            room = _AHEAD - len(waiting) if collector.early < _EARLY else 0
            for job in islice(jobs, room):
                waiting[executor.submit(job.run, *job.arguments)] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                collector.take(waiting.pop(future), future.result())
    finally:
        for future in waiting:
            future.cancel()
        collector.close()


def _full(way: Way, path: str) -> str:
    return f"{way.root}/{path}"


def _check_size(path: str, listed: int, read: int) -> None:
    if listed != read:
        raise DatasetError(path, f"changed after it was listed: {listed} bytes then, {read} when it was read")
