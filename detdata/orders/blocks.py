"""A shuffle that keeps reads local: blocks in random order, rows shuffled within a window of a few blocks.

A corpus at rest comes in blocks (row groups, shards, record batches). Each epoch the blocks are permuted, the permuted
sequence is cut into windows of `window` blocks, and the rows of each window are shuffled among themselves. So a reader
that holds `window` blocks reads each block once an epoch.

Weaker than `Shuffle`: two rows of one block always fall into the same window, so they are at most a window's rows
apart. Windows are cut anew each epoch, so which blocks meet changes. Fixed in docs/spec.md, section 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import MAX_SIZE, as_int, as_seed
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.keys import fold
from detdata.orders.base import Order, as_order, kept_unused
from detdata.orders.compose import Concat, read_runs
from detdata.orders.shuffle import Sequential
from detdata.orders.tables import Tables
from detdata.orders.windows import within_windows
from detdata.permutation import permute, unpermute
from detdata.records import Spec, from_spec, register_format


@final
class BlockShuffle(Order):
    """Blocks in a new random order each epoch; rows shuffled within windows of `window` consecutive blocks.

    block_sizes: rows of each block, in corpus order (zeros allowed, the sum 1 … 2**62), or an order that has blocks:
    a `Concat` (one for each source) or a `BlockShuffle`; with `order=`, the blocks are of that order's positions.
    seed: 0 … 2**63 - 1; window: blocks that mix, at least 1. Memory O(blocks). `take` costs O(len(positions)) and
    some 0.2 ms for each window that it touches. Raises ValueError, TypeError.

    >>> BlockShuffle([3, 2, 3], seed=1, window=1).take(range(8)).tolist()
    [6, 5, 7, 2, 1, 0, 4, 3]
    """

    __slots__ = ("_edges", "_inner", "_known", "_seed", "_window")

    def __init__(
        self, block_sizes: npt.ArrayLike | Order, seed: int = 0, window: int = 16, *, order: Order | None = None
    ) -> None:
        if isinstance(block_sizes, Order):
            if order is not None:
                raise ArgumentTypeError("give one order: either as block_sizes or as order=, not both")
            order, block_sizes = block_sizes, _blocks_of(block_sizes)
        sizes = as_int64(block_sizes, "block_sizes", below=MAX_SIZE + 1, what="block size").reshape(-1)
        total = sum(sizes.tolist())  # Python integers: the sum may pass 2**63
        if not 0 < total <= MAX_SIZE:
            what = "no rows: the corpus is empty; check its path" if total == 0 else "at most 2**62 are possible"
            raise ArgumentValueError(f"block_sizes has {sizes.size} blocks with {total} rows in all: {what}")
        self._inner = Sequential(total) if order is None else as_order(order, "order")
        if self._inner.size != total:
            raise ArgumentValueError(f"block_sizes has {total} rows in all, but order has {self._inner.size}")
        self._edges: Int64Array = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._edges.flags.writeable = False
        self._seed = as_seed(seed)
        self._window = as_int(window, "window", low=1, high=MAX_SIZE)
        self._known: tuple[tuple[int, _Layout], ...] = ()

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self._inner.size

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._inner.id_bound

    @property
    def seed(self) -> int:
        """The seed of the shuffle."""
        return self._seed

    @property
    def block_sizes(self) -> Int64Array:
        """Rows of each block, int64[blocks]."""
        return np.diff(self._edges)

    def spec(self) -> Spec:
        """Return the spec; block sizes as runs, [size, count] of each."""
        sizes = self.block_sizes
        starts = np.flatnonzero(np.diff(sizes, prepend=sizes[0] - 1))
        runs = np.stack([sizes[starts], np.diff(np.append(starts, sizes.size))], axis=1).tolist()
        inner = None if isinstance(self._inner, Sequential) else self._inner.spec()
        return {
            "format": "detdata.block_shuffle/1",
            "blocks": runs,
            "order": inner,
            "seed": self._seed,
            "window": self._window,
        }

    def _tables(self) -> Tables:
        return self._inner._tables()

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        layout = self._layout(epoch)
        window = np.searchsorted(layout.windows, positions, side="right") - 1
        places = self._within(positions, window, layout, epoch, inverse=False)
        at = np.searchsorted(layout.starts, places, side="right") - 1  # which block of the permuted sequence
        rows = self._edges[layout.blocks[at]] + (places - layout.starts[at])
        return self._inner._take(rows, epoch)

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return kept_unused(self._inner._find(ids, epoch), lambda rows: self._positions(rows, epoch))

    def _uses_each_once(self) -> bool:
        return self._inner._uses_each_once()

    def _positions(self, rows: Int64Array, epoch: int) -> Int64Array:
        layout = self._layout(epoch)
        block = np.searchsorted(self._edges, rows, side="right") - 1
        at = unpermute(block.astype(np.int64), self._edges.size - 1, self._key("blocks", epoch))
        places = layout.starts[at] + (rows - self._edges[block])
        return self._within(places, at // self._window, layout, epoch, inverse=True)

    def _within(self, values: Int64Array, window: Any, layout: _Layout, epoch: int, *, inverse: bool) -> Int64Array:
        """Shuffle (or unshuffle) each value within its own window."""

        def at(number: int) -> tuple[int, int, int]:
            edges = layout.windows
            return int(edges[number]), int(edges[number + 1]), self._key("rows", epoch, number)

        return within_windows(values, np.asarray(window), at, inverse=inverse)

    def _layout(self, epoch: int) -> _Layout:
        """This epoch's sequence of blocks; of the last two epochs asked for it is kept. O(blocks).

        Kept here and not in a table by value, as comparing an order of many blocks costs as much as its spec.
        """
        for known, layout in self._known:
            if known == epoch:
                return layout
        sizes = self.block_sizes
        blocks = permute(np.arange(sizes.size, dtype=np.int64), sizes.size, self._key("blocks", epoch))
        starts = np.concatenate([[0], np.cumsum(sizes[blocks])]).astype(np.int64)
        layout = _Layout(blocks, starts, np.append(starts[: -1 : self._window], starts[-1]))
        self._known = ((epoch, layout), *self._known[:1])  # replaced whole, so threads see no half
        return layout

    def _key(self, use: str, *path: int) -> int:
        return fold("detdata.block_shuffle/1", use, self._seed, *path)


class _Layout(NamedTuple):
    """One epoch's sequence of blocks: `blocks[k]` comes k-th and starts at position `starts[k]`."""

    blocks: Int64Array  # int64[blocks]
    starts: Int64Array  # int64[blocks + 1]
    windows: Int64Array  # int64[windows + 1], the starts of the windows and the end


def _blocks_of(order: Order) -> Int64Array:
    if isinstance(order, (Concat, BlockShuffle)):
        return order.block_sizes
    raise ArgumentTypeError(
        f"block_sizes: a {type(order).__name__} has no blocks of its own; give their sizes, "
        "BlockShuffle(sizes, order=order), or take Shuffle(order) for a full shuffle"
    )


def _build(spec: Spec) -> BlockShuffle:
    size, count = read_runs(spec["blocks"], "blocks", below=MAX_SIZE + 1, what="block size")
    inner = None if spec["order"] is None else as_order(from_spec(spec["order"]), "order")
    return BlockShuffle(np.repeat(size, count), spec["seed"], spec["window"], order=inner)


register_format("detdata.block_shuffle/1", ("blocks", "order", "seed", "window"), _build)
