"""Corpus: rows of files at rest by number, each found by arithmetic and a small index."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, final

import numpy as np

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int
from detdata.corpora.columns import Columns, columns_of
from detdata.corpora.costs import CostNote, cost_of
from detdata.corpora.errors import CorpusUnreadable
from detdata.corpora.expecting import Blocks
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.layout import Layout, Place
from detdata.corpora.protocol import Buffer, Format, Options, Outline, Rows, Shard
from detdata.corpora.skips import Skips
from detdata.corpora.version import version_of
from detdata.errors import ArgumentTypeError, ArgumentValueError, OutOfRange
from detdata.look_ahead import Notice

_OPEN_SHARDS = 64  # files that are open at a time in a process
_CHUNK = 1024  # rows that `read` makes at a time


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a corpus. identity: what it was when its outline was made."""

    file: DataFile
    outline: Outline
    identity: Identity


@final
class Corpus:
    """A map-style dataset of the rows in files, at any size: made by `open_corpus`, goes straight into `Loader`.

    Rows are numbered from 0 over all files in their order. Safe under fork, spawn, forkserver, in threads, and
    pickled: what is open and what is held of decoded blocks belongs to one process. Immutable but for that.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = file.write_text('{"x": 1}\\n{"x": 2}\\n{"x": 3}\\n')
    >>> from detdata import open_corpus
    >>> corpus = open_corpus(file)
    >>> len(corpus), corpus[1], corpus.take([2, 0])
    (3, {'x': 2}, [{'x': 3}, {'x': 1}])
    """

    def __init__(
        self,
        form: Format,
        entries: Sequence[Entry],
        options: Options,
        *,
        cache_bytes: int,
        skips: Skips | None = None,
        maps: tuple[Callable[[Any], Any], ...] = (),
        name: str | None = None,
    ) -> None:
        self._form = form
        self._entries = tuple(entries)
        self._options = options
        self._cache_bytes = cache_bytes
        self._skips = skips
        self._maps = maps
        self._layout = Layout.of([entry.outline.block_sizes for entry in self._entries])
        self._name = os.urandom(8).hex() if name is None else name  # of this one among those that share a folder
        self._note = CostNote(cost_of(form, [entry.outline for entry in self._entries]), self._layout)
        self._opened = self._open()

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        state = (self._form, self._entries, self._options, self._cache_bytes, self._skips, self._maps, self._name)
        return _rebuild, state

    def __repr__(self) -> str:
        blocks = self._layout.block_edges.size - 1
        return f"<Corpus: {len(self)} rows, {self._form.name}, {len(self._entries)} file(s), {blocks} block(s)>"

    def __len__(self) -> int:
        """Rows in all."""
        return self._layout.rows

    @property
    def format(self) -> str:
        """The name of the format of its files."""
        return self._form.name

    @property
    def files(self) -> tuple[str, ...]:
        """The names of its files, in the order of their rows."""
        return tuple(entry.file.name for entry in self._entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its files with their outlines."""
        return self._entries

    @property
    def block_sizes(self) -> Int64Array:
        """Rows of each block, int64[blocks], in the order of rows: what `BlockShuffle` takes."""
        return self._layout.block_sizes

    @property
    def blocks_loaded(self) -> int:
        """How many blocks this process has loaded so far; of a Loader's workers, ask the Loader."""
        return self._process().blocks.loads

    def locate(self, row: int) -> Place:
        """Return where a row lies: (file, block of the file, row of the block). O(log blocks).

        Raises IndexError. Of a row that is skipped it is the place of the row that stands in for it.
        """
        file, block, at = self._layout.find(self._filled_one(self._one(row)))
        return Place(self._entries[file].file.name, block, at)

    def blocks_of(self, rows: Any) -> Int64Array:
        """Return the block of each row, counted over all files; int64[n]. O(n log blocks)."""
        return self._layout.blocks_of(self._filled(as_int64(rows, "rows", below=len(self), what="row")))

    def expect(self, notice: Notice) -> bool:
        """Take note of what will be needed, in the process that reads: a Loader calls this, see `detdata.look_ahead`.

        Returns whether that is of any use here: not where blocks are mapped, nor for several workers where loading a
        block decodes nothing, so that each may as well read it itself.
        """
        of_use = self._form.keeps and (notice.readers < 2 or getattr(self._form, "shares", True))
        if of_use:
            opened = self._process()
            opened.blocks.expect(opened, notice)
        return of_use

    def __getitem__(self, row: Any) -> Any:
        """Return a row, or the list of rows of a slice. Negative numbers count from the end, as in a list."""
        if isinstance(row, slice):
            return self.take(range(*row.indices(len(self))))
        if isinstance(row, (int, np.integer)) and not isinstance(row, bool) and -len(self) <= row < 0:
            row += len(self)
        return self._take_one(self._filled_one(self._one(row)))

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Return rows: how torch's DataLoader asks for a batch."""
        return self.take(rows)

    def __iter__(self) -> Iterator[Any]:
        """Yield all rows in order."""
        return self.read(0)

    def take(self, ids: Any) -> list[Any]:
        """Return the rows with these numbers: int or integers in [0, len), any order, repeats allowed.

        Grouped by block inside; each block is decoded at most once a call. Raises IndexError, CorpusError.
        Memory: the rows, and the blocks that the cache may hold.
        """
        wanted = self._filled(as_int64(ids, "ids", below=len(self), what="row").reshape(-1))
        if wanted.size == 1:
            return [self._take_one(int(wanted[0]))]
        result: list[Any] = [None] * wanted.size
        for rows, places, local in self._groups(wanted):
            for place, row in zip(places.tolist(), rows.take(local.tolist()), strict=True):
                result[place] = row
        return self._mapped(result)

    def take_columns(self, ids: Any, kind: Literal["arrow", "numpy", "torch"] = "arrow") -> Any:
        """Return the rows with these numbers as columns, in the order of `ids`.

        kind: "arrow" gives a pyarrow.Table; "numpy" a dict of arrays, one element a row; "torch" a dict of tensors,
        for columns of numbers. Functions of `map` are not applied. Raises as `take`; ValueError for a kind that
        cannot hold a column.
        """
        wanted = self._filled(as_int64(ids, "ids", below=len(self), what="row").reshape(-1))
        return columns_of(Columns(kind, wanted.size), self._groups(wanted), self.files[0] if self._entries else None)

    def read(self, start: int, stop: int | None = None) -> Iterator[Any]:
        """Yield rows start … stop - 1 in order, block by block; nothing before the block of `start` is read.

        start: 0 … len; stop: by default the end. Raises IndexError at once, CorpusError on the way.
        """
        begin = as_int(start, "start", low=0)
        end = len(self) if stop is None else as_int(stop, "stop", low=0)
        for name, value in (("start", begin), ("stop", end)):
            if value > len(self):
                raise OutOfRange(f"{name} {value} is outside 0 … {len(self)}, the rows of the corpus")
        return self._read(begin, end)

    def map(self, function: Callable[[Any], Any]) -> Corpus:
        """Return the same corpus with `function` applied to each row as it is given. For workers it must be picklable.

        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> _ = file.write_text('{"x": 1}\\n{"x": 2}\\n')
        >>> from detdata import open_corpus
        >>> open_corpus(file).map(lambda row: row["x"] * 10)[1]
        20
        """
        if not callable(function):
            raise ArgumentTypeError(f"function must be callable, got {type(function).__name__}")
        return Corpus(
            self._form,
            self._entries,
            self._options,
            cache_bytes=self._cache_bytes,
            skips=self._skips,
            maps=(*self._maps, function),
        )

    def version(self, **how: Any) -> str:
        """Return the version of the data: the digest that `hash_dataset` gives for its files.

        how: arguments of `hash_dataset`, such as cache= and workers=. Files that were listed in another order than
        that of their names have another version, as their rows have other numbers. Cost: reading the files.
        Raises DatasetError; CorpusError if a file is no longer the one that was opened.
        """
        digest = version_of([entry.file for entry in self._entries], how)
        for entry in self._entries:
            _check(entry.file, entry.identity)
        return digest

    # What a row costs is decided below.

    def _one(self, row: Any) -> int:
        number = as_int(row, "row", low=-(2**62))
        if not 0 <= number < len(self):
            raise OutOfRange(f"row {number} is outside 0 … {len(self) - 1}")
        return number

    def _filled_one(self, row: int) -> int:
        return row if self._skips is None else int(self._skips.fill(np.array([row]))[0])

    def _filled(self, rows: Int64Array) -> Int64Array:
        return rows if self._skips is None else self._skips.fill(rows)

    def _mapped(self, rows: list[Any]) -> list[Any]:
        for function in self._maps:
            rows = [function(row) for row in rows]
        return rows

    def _take_one(self, row: int) -> Any:
        block = int(self._layout.block_edges.searchsorted(row, side="right")) - 1
        local = row - int(self._layout.block_edges[block])
        return self._mapped(self._rows(block, 1).take((local,)))[0]

    def _groups(self, wanted: Int64Array) -> Iterator[tuple[Rows, Int64Array, Int64Array]]:
        """Yield (rows of a block, places in `wanted`, rows of the block at these places) for each block."""
        blocks = self._layout.blocks_of(wanted)
        local = wanted - self._layout.block_edges[blocks]
        by_block = np.argsort(blocks, kind="stable")
        found = blocks[by_block]
        cuts = np.flatnonzero(np.diff(found, prepend=-1)).tolist()
        for begin, end in pairwise([*cuts, wanted.size]):
            places = by_block[begin:end]
            yield self._rows(int(found[begin]), end - begin), places, local[places]

    def _read(self, begin: int, end: int) -> Iterator[Any]:
        while begin < end:
            chunk = min(begin + _CHUNK, end)
            edges = self._layout.block_edges
            block = int(edges.searchsorted(begin, side="right")) - 1
            chunk = min(chunk, int(edges[block + 1]))
            if self._skips is None:
                first = begin - int(edges[block])
                yield from self._mapped(self._rows(block).take(range(first, first + chunk - begin)))
            else:
                yield from self.take(np.arange(begin, chunk))
            begin = chunk

    def _rows(self, block: int, asked: int = 0) -> Rows:
        """Return the rows of a block. asked: how many of them are asked for by their numbers; 0: reading forward."""
        opened = self._process()
        if asked and self._note.text is not None:
            self._count(opened.blocks, asked)
        rows = opened.blocks.rows(opened, block)
        if not self._form.keeps:  # a view of a mapping: the file may have changed since the view was made
            opened.check(block)
        return rows

    def _count(self, blocks: Blocks, asked: int) -> None:
        if blocks.told:
            self._note.count_used(asked * blocks.readers, blocks.past)
        else:
            self._note.count(blocks.loads)

    def _process(self) -> _Opened:
        if self._opened.pid != os.getpid():
            self._opened = self._open()
        return self._opened

    def _open(self) -> _Opened:
        return _Opened(self._form, self._entries, self._options, self._layout, Blocks(self._cache_bytes, self._name))


class _Opened:
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

    def load(self, block: int) -> Buffer:
        """Return a block as one buffer, of a file that has not changed before or meanwhile."""
        number, at = self._layout.in_file(block)
        shard, file = self._shard(number)
        identity = self._entries[number].identity
        _check(file, identity)
        buffer = shard.load(at)
        _check(file, identity)
        return buffer

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a block that was loaded, here or elsewhere."""
        number, at = self._layout.in_file(block)
        return self._shard(number)[0].view(at, buffer)

    def check(self, block: int) -> None:
        """Raise CorpusUnreadable if the file of a block has changed."""
        number, _ = self._layout.in_file(block)
        _check(self._shard(number)[1], self._entries[number].identity)

    def _shard(self, number: int) -> tuple[Shard, DataFile]:
        held = self._shards.get(number)
        if held is None:
            entry = self._entries[number]
            file = entry.file.fresh()
            if file.path is not None:
                file.read(0, min(1, entry.identity.size))  # opened: from here on it is one and the same file
            _check(file, entry.identity)
            held = self._shards[number] = self._form.open(file, entry.outline, self._options), file
            while len(self._shards) > _OPEN_SHARDS:
                with suppress(KeyError):  # another thread was faster
                    self._shards.popitem(last=False)  # closed when nobody reads it any more
        return held


def _check(file: DataFile, expected: Identity) -> None:
    found = file.identity()
    if found != expected:
        size = "" if found.size == expected.size else f" ({expected.size} bytes then, {found.size} now)"
        raise CorpusUnreadable(
            file.name,
            f"has changed since the corpus was opened{size}; nothing was read from it. Open the corpus anew, and check "
            "its version() against that of the run",
        )


def _rebuild(
    form: Format,
    entries: tuple[Entry, ...],
    options: Options,
    cache_bytes: int,
    skips: Skips | None,
    maps: tuple[Callable[[Any], Any], ...],
    name: str,
) -> Corpus:
    return Corpus(form, entries, options, cache_bytes=cache_bytes, skips=skips, maps=maps, name=name)


def check_cache_bytes(value: object) -> int:
    """Return a byte limit for blocks. Raises TypeError, ValueError.

    >>> check_cache_bytes(1 << 20)
    1048576
    """
    number = as_int(value, "cache_bytes", low=0)
    if number > 2**50:
        raise ArgumentValueError(f"cache_bytes must be at most 2**50, got {number}")
    return number
