"""Corpus: rows of files at rest by number, each found by arithmetic and a small index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal, final

import numpy as np

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int
from detdata.corpora.columns import Columns, columns_of
from detdata.corpora.costs import Cost, CostNote, cost_of
from detdata.corpora.errors import CorpusError
from detdata.corpora.expecting import Blocks
from detdata.corpora.layout import Layout, Place
from detdata.corpora.opened import Entry, Opened, check_same, named
from detdata.corpora.protocol import Format, Options, Rows
from detdata.corpora.skips import Skips
from detdata.corpora.version import version_of
from detdata.errors import ArgumentTypeError, ArgumentValueError, OutOfRange
from detdata.look_ahead import Notice

_CHUNK = 1024  # rows that `read` makes at a time


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
        self._layout = Layout.of([entry.outline.block_sizes for entry in self._entries], self.files)
        self._name = os.urandom(8).hex() if name is None else name  # of this one among those that share a folder
        self._note = CostNote(_cost(form, self._entries), self._layout)
        local = all(entry.file.path is not None for entry in self._entries)
        self._shares = not local or bool(getattr(form, "shares", True))
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
    def reading(self) -> tuple[Options, Int64Array | None, tuple[Callable[[Any], Any], ...]]:
        """What beside its files decides its rows: options, numbers of the rows to skip, functions of `map`."""
        return self._options, None if self._skips is None else self._skips.ids, self._maps

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

        Returns whether that is of any use here: not where blocks are mapped, nor where loading a block is only reading
        it from a disk of this machine, which costs less than telling somebody to.
        """
        of_use = self._form.keeps and self._shares
        if of_use and notice.number >= 0:
            opened = self._process()
            opened.blocks.expect(opened, notice)
        return of_use

    def __getitem__(self, row: Any) -> Any:
        """Return a row, or the list of rows of a slice. Negative numbers count from the end, as in a list."""
        if isinstance(row, slice):
            return self.take(range(*row.indices(len(self))))
        if isinstance(row, (int, np.integer)) and not isinstance(row, bool) and -len(self) <= row < 0:
            row += len(self)
        return self._take_one(self._one(row))

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
        asked = as_int64(ids, "ids", below=len(self), what="row").reshape(-1)
        return [self._take_one(int(asked[0]))] if asked.size == 1 else self._take(asked)

    def take_columns(self, ids: Any, kind: Literal["arrow", "numpy", "torch"] = "arrow") -> Any:
        """Return the rows with these numbers as columns, in the order of `ids`.

        kind: "arrow" gives a pyarrow.Table; "numpy" a dict of arrays, one element a row; "torch" a dict of tensors,
        for columns of numbers. Functions of `map` are not applied. Raises as `take`; ValueError for a kind that
        cannot hold a column.
        """
        wanted = self._filled(as_int64(ids, "ids", below=len(self), what="row").reshape(-1))
        groups = ((rows, np.array(places), np.array(local)) for rows, places, local in self._groups(wanted))
        return columns_of(Columns(kind, wanted.size), groups, self.files[0] if self._entries else None)

    def read(self, start: int, stop: int | None = None) -> Iterator[Any]:
        """Yield rows start … stop - 1 in order, block by block; nothing before the block of `start` is read.

        start: 0 … len; stop: by default the end. Raises IndexError at once, CorpusError on the way.
        """
        begin = as_int(start, "start", low=None)
        end = len(self) if stop is None else as_int(stop, "stop", low=None)
        for name, value in (("start", begin), ("stop", end)):
            if not 0 <= value <= len(self):
                raise OutOfRange(f"{name} {value} is outside 0 … {len(self)}, the rows of the corpus")
        return self._read(begin, end)

    def map(self, function: Callable[[Any], Any]) -> Corpus:
        """Return the same corpus with `function` applied to each row as it is given. For workers it must be picklable.

        What it raises comes through, with a note of the row.

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
            check_same(entry.file, entry.identity)
        return digest

    # What a row costs is decided below.

    def _one(self, row: Any) -> int:
        number = as_int(row, "row", low=None)
        if not 0 <= number < len(self):
            raise OutOfRange(f"row {number} is outside 0 … {len(self) - 1}")
        return number

    def _filled_one(self, row: int) -> int:
        return row if self._skips is None else int(self._skips.fill(np.array([row]))[0])

    def _filled(self, rows: Int64Array) -> Int64Array:
        return rows if self._skips is None else self._skips.fill(rows)

    def _mapped(self, rows: list[Any], numbers: Sequence[int] | Int64Array) -> list[Any]:
        """Return the rows with these numbers as the functions of `map` make them."""
        if not self._maps:
            return rows
        made: list[Any] = []
        try:
            for row in rows:
                for function in self._maps:
                    row = function(row)  # noqa: PLW2901
                made.append(row)
        except Exception as error:
            error.add_note(f"in a function given to map(), at row {numbers[len(made)]} of the corpus")
            raise
        return made

    def _take_one(self, asked: int) -> Any:
        row = self._filled_one(asked)
        block = int(self._layout.block_edges.searchsorted(row, side="right")) - 1
        local = row - int(self._layout.block_edges[block])
        with self._unchanged(block):
            found = self._rows(block, 1).take((local,))
        return self._mapped(found, (asked,))[0]

    def _take(self, asked: Int64Array, *, forward: bool = False) -> list[Any]:
        wanted = self._filled(asked)
        if wanted.size and int(wanted[-1]) - int(wanted[0]) == wanted.size - 1 and bool((np.diff(wanted) == 1).all()):
            return self._mapped(self._run(int(wanted[0]), int(wanted[-1]) + 1, forward=forward), asked)
        result: list[Any] = [None] * asked.size
        for rows, places, local in self._groups(wanted, forward=forward):
            for place, row in zip(places, rows.take(local), strict=True):
                result[place] = row
        return self._mapped(result, asked)

    def _run(self, begin: int, end: int, *, forward: bool) -> list[Any]:
        """Return the rows begin … end - 1, beside each other in their blocks: there is nothing to sort."""
        edges, found = self._layout.block_edges, []
        while begin < end:
            block = int(edges.searchsorted(begin, side="right")) - 1
            first, stop = int(edges[block]), min(end, int(edges[block + 1]))
            with self._unchanged(block):
                found += self._rows(block, 0 if forward else stop - begin).take(range(begin - first, stop - first))
            begin = stop
        return found

    def _groups(self, wanted: Int64Array, *, forward: bool = False) -> Iterator[tuple[Rows, list[int], list[int]]]:
        """Yield (rows of a block, places in `wanted`, rows of the block at these places) for each block.

        A mapped file is checked before the first of its blocks and after the last: at each it would cost as much again.
        A batch of shuffled rows has one or two of a block, so what is done for each block is done for all in one go.
        """
        blocks = self._layout.blocks_of(wanted)
        by_block = np.argsort(blocks, kind="stable")
        found = blocks[by_block]
        local = (wanted[by_block] - self._layout.block_edges[found]).tolist()
        cuts = np.flatnonzero(np.diff(found, prepend=-1))
        numbers, files, places = found[cuts].tolist(), self._layout.files_of(found[cuts]).tolist(), by_block.tolist()
        opened, counts, before = self._process(), not forward and self._note.text is not None, -1
        for number, file, (begin, end) in zip(numbers, files, pairwise([*cuts.tolist(), wanted.size]), strict=True):
            if file != before and not self._form.keeps:
                self._check(before, file)
                before = file
            if counts:
                self._count(opened.blocks, end - begin)
            yield opened.blocks.rows(opened, number), places[begin:end], local[begin:end]
        self._check(before)

    def _read(self, begin: int, end: int) -> Iterator[Any]:
        edges = self._layout.block_edges
        while begin < end:
            block = int(edges.searchsorted(begin, side="right")) - 1
            first, stop = int(edges[block]), min(end, int(edges[block + 1]))
            rows = None
            for start in range(begin, stop, _CHUNK):
                numbers = range(start, min(start + _CHUNK, stop))
                if self._skips is not None:
                    yield from self._take(np.array(numbers), forward=True)
                    continue
                with self._unchanged(block):
                    if rows is None or not self._form.keeps:  # held, whatever the cache may have to hold meanwhile
                        rows = self._rows(block)
                    found = rows.take(range(start - first, numbers[-1] + 1 - first))
                yield from self._mapped(found, numbers)
            begin = stop

    def _rows(self, block: int, asked: int = 0) -> Rows:
        """Return the rows of a block. asked: how many of them are asked for by their numbers; 0: reading forward."""
        opened = self._process()
        if asked and self._note.text is not None:
            self._count(opened.blocks, asked)
        return opened.blocks.rows(opened, block)

    @contextmanager
    def _unchanged(self, block: int) -> Iterator[None]:
        """Check the file of a block before and after, if rows come from a mapping: it may change at any moment."""
        file = -1 if self._form.keeps else self._layout.in_file(block)[0]
        self._check(file)
        yield
        self._check(file)

    def _check(self, *files: int) -> None:
        for file in files:
            if file >= 0:
                self._process().check(file)

    def _count(self, blocks: Blocks, asked: int) -> None:
        if blocks.told:
            self._note.count_used(asked * blocks.readers, blocks.past)
        else:
            self._note.count(blocks.loads)

    def _process(self) -> Opened:
        if self._opened.pid != os.getpid():
            self._opened = self._open()
        return self._opened

    def _open(self) -> Opened:
        return Opened(self._form, self._entries, self._options, self._layout, Blocks(self._cache_bytes, self._name))


def _cost(form: Format, entries: Sequence[Entry]) -> Cost | None:
    try:
        with named(""):
            return cost_of(form, [entry.outline for entry in entries])
    except CorpusError:  # by an index that contradicts itself; whoever reads by it is told, and of which file
        return None


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
