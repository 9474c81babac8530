"""Processes that the laws of corpora start: what they do, and how one waits for them."""

from __future__ import annotations

import mmap
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from detdata.corpora import Corpus, CorpusError
from detdata.testing.corpora_cases import CorpusCases, quiet_folder

_PATIENCE = 120.0  # seconds without a word: it hangs
_MOST_ROWS = 10_000
_MEMORY = 4 << 30  # bytes that a process which reads damaged files may take beyond what it has


class Child:
    """A process that runs `target(send, *arguments)`, and what it sends. Ended at the end of `with`."""

    class Ended(NamedTuple):
        """It sends nothing more. how: why."""

        how: str

    def __init__(self, method: str, target: Callable[..., None], *arguments: Any) -> None:
        context: Any = multiprocessing.get_context(method)
        self._from, there = context.Pipe(duplex=False)
        self._process = context.Process(target=run, args=(there, target, *arguments), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.join(_PATIENCE)
        self._process.kill()
        self._process.join()
        self._process.close()
        self._from.close()

    def receive(self) -> Any:
        """Return the next thing that was sent, or Ended."""
        try:
            if self._from.poll(_PATIENCE):
                return self._from.recv()
        except EOFError:
            self._process.join(10)
            code = self._process.exitcode
            return Child.Ended(f"was killed by signal {-code}" if code is not None and code < 0 else f"exited: {code}")
        return Child.Ended(f"said nothing for {_PATIENCE:.0f} seconds")


def run(connection: Connection, target: Callable[..., None], *arguments: Any) -> None:
    """Run the target of a Child."""
    with connection, quiet_folder():
        target(connection.send, *arguments)


def read_rows(send: Callable[[Any], None], corpus: Corpus, ids: Sequence[int]) -> None:
    """Send rows of a corpus, or what went wrong."""
    try:
        send(corpus.take(ids))
    except Exception as error:  # noqa: BLE001  told by the process that waits
        send(f"{type(error).__name__}: {error}")


def view_buffers(send: Callable[[Any], None], corpus: Corpus, buffers: Sequence[str]) -> None:
    """Send the rows of stored buffers of the blocks of a corpus of one file, or what went wrong."""
    (entry,) = corpus.entries
    try:
        shard = corpus._form.open(entry.file.fresh(), entry.outline, corpus._options)
        for block, size in enumerate(entry.outline.block_sizes.tolist()):
            with Path(buffers[block]).open("rb") as file:
                empty = not Path(buffers[block]).stat().st_size
                content = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            send(shard.view(block, content).take(range(size)))
    except Exception as error:  # noqa: BLE001  told by the process that waits
        send(f"{type(error).__name__}: {error}")


def read_all(send: Callable[[Any], None], suite: type[CorpusCases], paths: Sequence[str], index: str) -> None:
    """Send for each file (what went wrong or None, the rows that were read before). index: as `open_corpus` has it.

    Of a file that claims to have a great many rows, the first ones and the last one.
    """
    _limit_memory()
    for name in paths:
        rows: list[Any] = []
        error = None
        try:
            corpus = suite().opened(Path(name), index=index)
            most = min(len(corpus), _MOST_ROWS)
            for row in corpus.read(0, most):
                rows.append(row)  # noqa: PERF402  kept up to the error
            corpus.take([len(corpus) - 1])
            corpus.take_columns(range(most), "arrow")
        except CorpusError as found:
            error = ("CorpusError", found.file, repr(found))
        except Exception as found:  # noqa: BLE001  told by the process that waits
            error = (type(found).__name__, None, repr(found))
        send((error, rows))


def _limit_memory() -> None:
    """Make a length that is taken from a damaged file a MemoryError instead of the end of this machine."""
    if sys.platform != "linux":
        return
    import resource

    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
