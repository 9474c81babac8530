"""What one process has open of a corpus: some of its files, each the very one that was there when it was opened."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.expecting import Blocks
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.layout import Layout
from detdata.corpora.protocol import Buffer, Format, Options, Outline, Rows, Shard
from detdata.errors import DetdataError

_OPEN_SHARDS = 64  # files that are open at a time in a process


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a corpus. identity: what it was when its outline was made."""

    file: DataFile
    outline: Outline
    identity: Identity


class Opened:
    """What one process has open, and the blocks that it holds."""

    def __init__(
        self, form: Format, entries: tuple[Entry, ...], options: Options, layout: Layout, blocks: Blocks
    ) -> None:
        self.pid = os.getpid()
        self.blocks = blocks
        self._form = form
        self._entries = entries
        self._options = options
        self._layout = layout
        self._shards: OrderedDict[int, tuple[Shard, DataFile]] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, block: int) -> Buffer:
        """Return a block as one buffer, of a file that has not changed before or meanwhile."""
        number, at = self._layout.in_file(block)
        shard, file = self._shard(number)
        identity = self._entries[number].identity
        check_same(file, identity)
        with named(file.name, at):
            buffer = shard.load(at)
        check_same(file, identity)
        return buffer

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a block that was loaded, here or elsewhere."""
        number, at = self._layout.in_file(block)
        shard, file = self._shard(number)
        with named(file.name, at):
            return shard.view(at, buffer)

    def check(self, number: int) -> None:
        """Raise CorpusUnreadable if a file has changed."""
        check_same(self._shard(number)[1], self._entries[number].identity)

    def _shard(self, number: int) -> tuple[Shard, DataFile]:
        with self._lock:
            held = self._shards.get(number)
            if held is not None:
                self._shards.move_to_end(number)
        if held is None:
            entry = self._entries[number]
            file = entry.file.fresh()
            if file.path is not None:
                file.read(0, min(1, entry.identity.size))  # opened: from here on it is one and the same file
            check_same(file, entry.identity)
            with named(file.name):
                held = self._form.open(file, entry.outline, self._options), file
            self._keep(number, held)
        return held

    def _keep(self, number: int, held: tuple[Shard, DataFile]) -> None:
        """Hold an open file, and let go of the one that was used least lately: closed when nobody reads it any more."""
        with self._lock:
            self._shards[number] = held
            last = self._shards.popitem(last=False)[0] if len(self._shards) > _OPEN_SHARDS else None
        if last is not None and not self._form.keeps:  # views of a mapping hold their file open
            edges = self._layout.file_edges
            self.blocks.forget(range(int(edges[last]), int(edges[last + 1])))


@contextmanager
def named(file: str, block: int | None = None) -> Iterator[None]:
    """Name the file when a format stumbles over an outline, as one from a forged index, or over itself."""
    try:
        yield
    except CorpusError as error:
        if error.file is None:  # a format does not always know which file it is at
            raise type(error)(file, error.reason, block=error.block, row=error.row) from error
        raise
    except (DetdataError, OSError, MemoryError):
        raise
    except Exception as error:
        raise CorpusUnreadable(
            file,
            f"cannot be read by what is known of it ({type(error).__name__}: {error}); if there is an index of it that "
            "detdata did not make, delete it",
            block=block,
        ) from error


def check_same(file: DataFile, expected: Identity) -> None:
    """Raise CorpusUnreadable if a file is not the one that it was."""
    found = file.identity()
    if found != expected:
        size = "" if found.size == expected.size else f" ({expected.size} bytes then, {found.size} now)"
        raise CorpusUnreadable(
            file.name,
            f"has changed since the corpus was opened{size}; nothing was read from it. Open the corpus anew, and check "
            "its version() against that of the run",
        )
