"""Train, validation and test parts by a hash of the id: the same for ever, also when data are added.

The 64-bit hash of an id (or of a sample's name) is compared with thresholds. So the part of an id hangs on the id and
the seed, and on nothing else: not on how many others there are, nor on their order. What it can't do: parts of an exact
size. Of n ids a part of share f gets n · f give or take a few times sqrt(n · f · (1 - f)). Fixed in docs/spec.md, 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, final, overload

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, UInt64Array, as_int64
from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.keys import GOLDEN, fold, fold_each, mix64
from detdata.orders.base import Order, as_order
from detdata.orders.compose import MAX_READ, Subset
from detdata.orders.shuffle import Sequential, Shuffle
from detdata.orders.tables import Tables
from detdata.records import Spec, from_spec, register_format

FORMAT = "detdata.split/1"
Share: TypeAlias = int | float | Fraction | Decimal
_CHUNK = 2**16  # ids hashed at once
_CLOSE = Fraction(1, 2**40)  # so far may the sum of fractions be from 1: they may have been rounded


@overload
def split_of(ids: int | np.integer[Any] | str | bytes, parts: Mapping[str, Share], seed: int = 0) -> str: ...  # type: ignore[overload-overlap]
@overload
def split_of(ids: npt.ArrayLike, parts: Mapping[str, Share], seed: int = 0) -> npt.NDArray[np.str_]: ...
def split_of(ids: Any, parts: Mapping[str, Share], seed: int = 0) -> Any:
    """Return the name of the part to which an id, or each of many, belongs.

    ids: an integer 0 … 2**63 - 1, or a name (a string, or bytes, which stand for the text that they are the UTF-8 of);
    or an array or list of either, of any shape. parts: name -> share, either fractions whose sum is 1 (to 2**-40), or
    whole numbers, of which each part gets its proportion. A float means the decimal that Python prints for it.
    seed: 0 … 2**63 - 1. Returns a string, or an array of strings in the shape of ids. Raises TypeError, ValueError.
    Cost a few ns an integer, about 1 µs a name.

    The part hangs on the id and the seed alone. A part keeps its ids as long as the sums of the shares before it and
    with it stay the same: so add, shrink and cut the last parts. The integer 5 and the name "5" are unrelated.

    >>> parts = {"train": 0.98, "validation": 0.02}
    >>> split_of("images/0042.jpg", parts)
    'train'
    >>> np.flatnonzero(split_of(range(200), parts) == "validation").tolist()
    [67, 126]
    """
    names, edges = _edges(parts)
    one = isinstance(ids, (str, bytes))
    number = np.searchsorted(edges, _hashes([ids] if one else ids, as_seed(seed)), side="right")
    found = np.array(names)[number]
    return str(found.item()) if one or found.ndim == 0 else found


def split(order: Order | int, parts: Mapping[str, Share], seed: int = 0) -> dict[str, Order]:
    """Return name -> the order of just the ids of that part, in the order in which `order` brings them.

    order: an order in which each id has its place, or n for a shuffle of each part of 0 … n - 1. parts, seed: as in
    `split_of`; it is the id's number that decides, so data that are added must come behind those that are there.
    Memory O(n); a part of an order costs what a `Subset` does. Raises ValueError, also for a part without an id.

    >>> parts = split(1000, {"train": 90, "validation": 10}, seed=3)
    >>> {name: order.size for name, order in parts.items()}
    {'train': 894, 'validation': 106}
    """
    names, edges = _edges(parts)
    number = as_seed(seed)
    whole = order if isinstance(order, Order) else Sequential(order)
    cuts = [0, *edges.tolist(), *[2**64] * (len(names) - edges.size)]
    found: dict[str, Order] = {}
    for name, (start, stop) in zip(names, pairwise(cuts), strict=True):
        try:
            part = SplitPart(whole, start, stop, number)
        except ArgumentValueError as error:
            raise ArgumentValueError(f"parts[{name!r}]: {error}; leave it out, or give it a larger share") from error
        found[name] = part if isinstance(order, Order) else Shuffle(part, number)
    return found


@final
class SplitPart(Order):
    """The ids of one part of a split: those whose hash lies in [start, stop). What `split` makes.

    order: an order in which each id has its place. start, stop: 0 … 2**64, of the hashes; seed: 0 … 2**63 - 1.
    A `Subset` whose spec is small however many ids there are, and stays the same when other parts are cut anew.
    Raises ValueError where no id falls to it, TypeError.

    >>> part = SplitPart(Sequential(10), 0, 2**63, seed=3)
    >>> part.take(range(part.size)).tolist()
    [0, 6, 7]
    """

    __slots__ = ("_order", "_seed", "_start", "_stop", "_subset")

    def __init__(self, order: Order, start: int, stop: int, seed: int = 0) -> None:
        self._order = as_order(order, "order")
        self._start = as_int(start, "start", high=2**64)
        self._stop = as_int(stop, "stop", low=self._start, high=2**64, why="; it begins at start")
        self._seed = as_seed(seed)
        if not order._uses_each_once():
            raise ArgumentTypeError(f"order: in a {type(order).__name__} an id has no place of its own; {_INSTEAD}")
        if order.size > MAX_READ:
            raise ArgumentValueError(
                f"order has {order.size} samples; a part is chosen by looking at each, of at most 2**31"
            )
        ids = _chosen(order, self._start, self._stop, self._seed)
        if not ids.size:
            share = (self._stop - self._start) / 2**64
            raise ArgumentValueError(f"none of the {order.size} samples falls to a part of {share:.4g} of them")
        self._subset = Subset(order, ids)

    @property
    def size(self) -> int:
        """Samples in an epoch."""
        return self._subset.size

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for."""
        return self._subset.id_bound

    @property
    def seed(self) -> int:
        """The seed of the split."""
        return self._seed

    def spec(self) -> Spec:
        """Return the spec: format, the order that is split, the range of hashes, and the seed."""
        return {
            "format": FORMAT,
            "order": self._order.spec(),
            "seed": self._seed,
            "start": self._start,
            "stop": self._stop,
        }

    def _tables(self) -> Tables:
        return self._order._tables()

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        return self._subset._take(positions, epoch)

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        return self._subset._find(ids, epoch)


_INSTEAD = (
    'split its dataset: with used = split_of(range(n), parts) == "train", '
    "GroupShuffle(labels, …, ids=numpy.flatnonzero(used)) or Weighted(weights * used)"
)


def _chosen(order: Order, start: int, stop: int, seed: int) -> Int64Array:
    """The ids of `order` whose hash lies in [start, stop), sorted."""
    whole = order.size == order.id_bound  # then they are 0, 1 … and need not be made
    ids = None if whole else np.sort(order.take(np.arange(order.size, dtype=np.int64)))
    kept = [np.empty(0, dtype=np.int64)]
    for first in range(0, order.size, _CHUNK):
        end = min(first + _CHUNK, order.size)
        some = np.arange(first, end, dtype=np.int64) if ids is None else ids[first:end]
        hashes = _hashes(some, seed)
        inside = hashes >= np.uint64(start) if start < 2**64 else np.zeros(some.size, dtype=np.bool_)
        if stop < 2**64:
            inside &= hashes < np.uint64(stop)
        kept.append(some[inside])
    return np.concatenate(kept)


def _hashes(ids: Any, seed: int) -> UInt64Array:
    """The 64-bit hash of each id, which decides its part: of integers by mixing, of names by `fold`. Any shape."""
    if isinstance(ids, (list, tuple)) and ids and isinstance(ids[0], (str, bytes)):
        return fold_each(ids, FORMAT, seed)  # not by way of an array, which would make all as wide as the widest
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "USO":
        return fold_each(ids.ravel().tolist(), FORMAT, seed).reshape(ids.shape)
    numbers = as_int64(ids, "ids", below=2**63, what="sample id")
    flat = (numbers.reshape(-1).astype(np.uint64) + np.uint64(1)) * GOLDEN + np.uint64(fold(FORMAT, seed))
    hashes: UInt64Array = mix64(flat).reshape(numbers.shape)
    return hashes


def _edges(parts: Mapping[str, Share]) -> tuple[list[str], UInt64Array]:
    """Names of the parts, and where each but the last ends among the hashes, as far as that is below 2**64."""
    if not isinstance(parts, Mapping):
        raise ArgumentTypeError(f"parts must be a dict of name: share, got {brief(parts)}")
    names = list(parts)
    if not names:
        raise ArgumentValueError('parts is empty: give at least one name and share, as {"train": 98, "validation": 2}')
    if any(not isinstance(name, str) for name in names):
        raise ArgumentTypeError(f"parts: names must be strings, got {brief(names)}")
    shares = [_share(name, share) for name, share in parts.items()]
    total = sum(shares, Fraction(0))
    if all(share.denominator == 1 for share in shares) and total:
        shares = [share / total for share in shares]
    elif abs(total - 1) > _CLOSE:
        raise ArgumentValueError(
            f"parts: fractions must add up to 1, these make {float(total)}; or give whole numbers, of which each part "
            f"gets its proportion: {brief(dict(parts))}"
        )
    last = max(at for at, share in enumerate(shares) if share)  # what follows has nothing, even where sums are rounded
    ends = [int(end * 2**64) for end in accumulate(shares[:last])]
    return names, np.array([end for end in ends if end < 2**64], dtype=np.uint64)


def _share(name: str, value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction, Decimal, np.integer, np.floating)):
        raise ArgumentTypeError(f"parts[{name!r}] must be a number, got {brief(value)} of type {type(value).__name__}")
    try:
        # A float is read as it is printed: 0.98 is 98 of 100, and 0.98 and 0.02 are 1.
        exact: Any = str(value) if isinstance(value, (float, np.floating)) else value
        share = Fraction(int(exact) if isinstance(exact, np.integer) else exact)
    except (OverflowError, ValueError) as error:
        raise ArgumentValueError(f"parts[{name!r}] must be a finite number, got {brief(value)}") from error
    if share < 0:
        raise ArgumentValueError(f"parts[{name!r}] must be at least 0, got {brief(value)}")
    return share


def _build(spec: Spec) -> SplitPart:
    return SplitPart(as_order(from_spec(spec["order"]), "order"), spec["start"], spec["stop"], spec["seed"])


register_format(FORMAT, ("order", "seed", "start", "stop"), _build)
