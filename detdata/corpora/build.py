"""Indexes of many files at once, by several processes, each stored as soon as it is made."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from detdata.checks import as_int
from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.files import DataFile
from detdata.corpora.index_file import Index, index_key
from detdata.corpora.indexing import Keep, find_index, make, store_index, stores
from detdata.corpora.opening import Paths, form_and_options, list_files, whole_files
from detdata.corpora.protocol import Format, Options

_POLL = 0.1  # seconds between looks at how far the processes are


@dataclass(frozen=True, slots=True)
class Indexed:
    """What became of one file. name: of the file. rows: it has. made: whether its index was made now, and did not hold.

    index: where the index lies, or None for a format that needs none.

    >>> Indexed("a.parquet", 1000, made=False, index=None).rows
    1000
    """

    name: str
    rows: int
    made: bool
    index: str | None


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far it is. bytes: read so far, of total_bytes that all files have.

    >>> IndexProgress(files=1, total_files=2, bytes=10, total_bytes=20).files
    1
    """

    files: int
    total_files: int
    bytes: int
    total_bytes: int


def index_corpus(
    paths: Paths,
    format: str | Format | None = None,
    *,
    workers: int | None = None,
    index: Keep = "auto",
    index_folder: str | os.PathLike[str] | None = None,
    progress: Callable[[IndexProgress], None] | None = None,
    **options: Any,
) -> list[Indexed]:
    """Make the index of each file of a corpus that needs one and has none that holds; returns what became of each.

    paths, format, index, index_folder and options (seq_len, dtype, rows_per_block, the format's own) are those of
    `open_corpus`, and must be the same there. workers: processes, by default one for each core. progress: called with
    an IndexProgress now and then. An index that was stored stays when a later file is broken or the work is stopped.
    Raises CorpusError; OSError where an index can be stored nowhere. Cost: each file is read once.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = file.write_text('{"x": 1}\\n')
    >>> [(done.rows, done.made) for done in index_corpus(file) + index_corpus(file)]
    [(1, True), (1, False)]
    """
    files = list_files(paths, format)
    form, opts = form_and_options(files, format, **options)
    files = whole_files(form, files)
    many = min(len(files), as_int(workers, "workers", low=1, high=1024) if workers is not None else _cores())
    if not stores(form):
        return [Indexed(file.name, form.outline(file, opts).rows, made=False, index=None) for file in files]
    sizes = [file.identity().size for file in files]
    meter = _Meter(progress, len(files), sum(sizes))
    if many == 1:
        return _in_order(files, form, opts, index, index_folder, meter)
    context = multiprocessing.get_context("spawn")  # never a copy of whatever threads and locks this process has
    counter = context.Value("q", 0)
    with ProcessPoolExecutor(many, context, initializer=_start, initargs=(counter,)) as pool:
        with _interrupts(allowed=False):  # the processes start here
            jobs = [pool.submit(_one, file, form, opts, index, index_folder) for file in files]
        try:
            return _gather(jobs, meter, lambda: int(counter.value))
        except BrokenExecutor as error:
            raise CorpusUnreadable(
                None,
                "a process that made an index ended before its time: killed for want of memory perhaps, then try fewer "
                'workers; or it could not start, as in a script without `if __name__ == "__main__":`, then workers=1',
            ) from error
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _in_order(
    files: Sequence[DataFile],
    form: Format,
    options: Options,
    keep: Keep,
    folder: str | os.PathLike[str] | None,
    meter: _Meter,
) -> list[Indexed]:
    done = []
    for file in files:
        done.append(index_file(file, form, options, keep, folder, meter.add))
        meter.tell(len(done), meter.bytes)
    return done


def index_file(
    file: DataFile,
    form: Format,
    options: Options,
    keep: Keep,
    folder: str | os.PathLike[str] | None,
    progress: Callable[[int], None] | None = None,
) -> Indexed:
    """Make the index of one file if there is none that holds, and store it. Raises CorpusError, OSError."""
    key = index_key(form, options)
    held = find_index(file, key, folder)
    if held is not None:
        return Indexed(file.name, held[0].outline.rows, made=False, index=held[1])
    index = Index(*make(form, file, options, progress))
    trouble: OSError | None = None
    try:
        where = store_index(index, file, key, keep=keep, folder=folder)
        if where is not None:
            return Indexed(file.name, index.outline.rows, made=True, index=where)
    except OSError as error:
        trouble = error
    raise CorpusError(
        file.name,
        f"its index can be stored nowhere ({'no place was allowed' if trouble is None else trouble}); name a folder "
        "that can be written to: index_folder=, on the command line --index-folder",
    )


class _Meter:
    def __init__(self, progress: Callable[[IndexProgress], None] | None, files: int, size: int) -> None:
        self._progress, self._files, self._size = progress, files, size
        self._done = 0
        self.bytes = 0

    def add(self, size: int) -> None:
        self.tell(self._done, self.bytes + size)

    def tell(self, files: int, size: int) -> None:
        self._done, self.bytes = files, size
        if self._progress is not None:
            self._progress(IndexProgress(files, self._files, size, self._size))


def _gather(jobs: Sequence[Future[Indexed]], meter: _Meter, read: Callable[[], int]) -> list[Indexed]:
    left: Iterable[Future[Indexed]] = jobs
    while left:
        done, left = wait(left, timeout=_POLL, return_when="FIRST_EXCEPTION")
        meter.tell(sum(job.done() for job in jobs), read())
        for job in done:
            job.result()  # an error ends it all
    return [job.result() for job in jobs]


_counter: Any = None  # of a process that makes indexes: bytes that all of them have read


def _start(counter: Any) -> None:
    global _counter  # noqa: PLW0603 - it cannot be an argument: it is shared memory, which only a start hands over
    _counter = counter
    signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    """End a process without a traceback: Ctrl-C reaches all of them, and the first one tells of it."""
    sys.exit(128 + signal.SIGINT)


@contextmanager
def _interrupts(*, allowed: bool) -> Iterator[None]:
    """Hold Ctrl-C back or let it through meanwhile, here and in processes that are started here."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK if allowed else signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _one(file: DataFile, form: Format, options: Options, keep: Keep, folder: str | os.PathLike[str] | None) -> Indexed:
    def add(size: int) -> None:
        with _counter.get_lock():
            _counter.value += size

    with _interrupts(allowed=True):  # only here: an error here is no traceback, elsewhere in a process of a pool it is
        return index_file(file, form, options, keep, folder, add)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
