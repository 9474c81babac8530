"""Draws with replacement: an id comes the more often the larger its weight.

A position's id is one look-up: a hash of (seed, epoch, position) is scaled to the total of the weights and falls to an
id (detdata.orders.weight_table). So any position of any epoch costs the same, for 10 items and for 10**8.

What it is bad at: in an epoch of n draws from n ids of equal weight, 37 % of the ids do not come at all. Whoever wants
every id each epoch takes `Shuffle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, NoReturn, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, NoInverse
from detdata.keys import GOLDEN, fold, mix64
from detdata.orders.base import Order
from detdata.orders.labels import as_labels, numbered
from detdata.orders.shuffle import as_size
from detdata.orders.tables import Tables, rebuild_with, table_at_hand
from detdata.orders.weight_table import WeightTable, scaled
from detdata.records import Spec, register_format

FORMAT = "detdata.weighted/1"
_DIGITS = Context(prec=60, rounding=ROUND_HALF_EVEN, traps=[])  # 2**62 has 19: no rounding before the last one shows
_MAX_POWER = 2


@final
class Weighted(Order):
    """Each position draws an id by itself, with replacement, in proportion to the weights.

    weights: one for each id 0 … n - 1, at least 0 and finite, one of them above 0; integers or floats of up to 64 bits,
    a list or an array, also memory-mapped; any number of them. Taken exactly: the share of an id is off by less than
    (1 + n · share) / 2**60. An id of weight 0 never comes. seed: 0 … 2**63 - 1. size: draws in an epoch; None: n.

    Memory 8 bytes an id; `take` costs some 0.1 to 0.4 µs a position. Not invertible: `find` raises NotImplementedError.
    The spec holds the digest of the weights, not them: `Weighted.from_spec`. Raises ValueError, TypeError.

    >>> order = Weighted([1.0, 0.0, 3.0], seed=5, size=4000)
    >>> np.bincount(order.take(range(4000))).tolist()
    [1007, 0, 2993]
    """

    __slots__ = ("_seed", "_size", "_table")

    def __init__(self, weights: npt.ArrayLike | WeightTable, seed: int = 0, size: int | None = None) -> None:
        self._seed = as_seed(seed)
        self._size = None if size is None else as_size(size, "size")
        self._table = weights if isinstance(weights, WeightTable) else WeightTable.of(weights)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], weights: npt.ArrayLike) -> Weighted:
        """Return the order that `spec` describes, with its weights, which the spec names by their digest.

        Raises ValueError for other weights than those of the spec.

        >>> order = Weighted([1, 2], seed=3)
        >>> Weighted.from_spec(order.spec(), [1, 2]) == order
        True
        """
        return rebuild_with(spec, WeightTable.of(weights), cls, FORMAT, "weights")

    @property
    def size(self) -> int:
        """Draws in an epoch."""
        return self._table.size if self._size is None else self._size

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for: the number of weights."""
        return self._table.size

    @property
    def seed(self) -> int:
        """The seed of the draws."""
        return self._seed

    @property
    def weights(self) -> Int64Array:
        """The integers that stand for the weights, int64[n]: an id's share of the draws is its own over their sum.

        >>> Weighted([0.5, 1.5]).weights.tolist() == [2**59, 3 * 2**59]
        True
        """
        return self._table.units

    def spec(self) -> Spec:
        """Return the spec: format, number of ids, seed, size, and the digest of the weights."""
        return {
            "format": FORMAT,
            "n": self._table.size,
            "seed": self._seed,
            "size": self.size,
            "weights": self._table.digest,
        }

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        key = np.uint64(fold(FORMAT, "draw", self._seed, epoch))
        hashes = mix64((positions.reshape(-1).astype(np.uint64) + np.uint64(1)) * GOLDEN + key)
        return self._table.find(scaled(hashes, self._table.total)).reshape(positions.shape)

    def _find(self, ids: Int64Array, epoch: int) -> NoReturn:
        raise NoInverse(
            "a Weighted order draws with replacement, so an id comes at any number of positions, or at none, and has "
            "no one position or step; look for it among the draws: "
            "np.flatnonzero(order.take(range(order.size), epoch) == id)"
        )

    def _uses_each_once(self) -> bool:
        return False

    def _tables(self) -> Tables:
        return {self._table.digest: self._table}


def class_balanced(labels: npt.ArrayLike, seed: int = 0, size: int | None = None, *, power: float = 1.0) -> Weighted:
    """Return the draws in which every class comes equally often, however many samples each has.

    labels: the class of each sample, int[n], any integers. A sample of a class of m samples gets the weight m**-power,
    so a class is drawn in proportion to m**(1 - power): power=1 all classes equally often, power=0 as they are,
    power=0.5 in proportion to the square roots of their sizes. power: 0 … 2. Weights are the integers nearest to
    2**62 · m**-power, at least 1: the same on any machine. Raises ValueError, TypeError. Cost O(n log n).

    >>> order = class_balanced([7, 7, 7, 4], seed=1, size=1000)
    >>> np.bincount(order.take(range(1000)) == 3).tolist()
    [490, 510]
    """
    exponent = _as_power(power)
    group, counts = numbered(as_labels(labels))
    of_count = {count: _weight(count, exponent) for count in set(counts.tolist())}
    weights = np.array([of_count[count] for count in counts.tolist()], dtype=np.uint64)
    return Weighted(weights[group], seed, size)


def _as_power(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction, Decimal, np.integer, np.floating)):
        raise ArgumentTypeError(f"power must be a number in 0 … {_MAX_POWER}, got {brief(value)}")
    ratio = _ratio(value)
    if ratio is None or not 0 <= ratio <= _MAX_POWER:
        raise ArgumentValueError(f"power must be in 0 … {_MAX_POWER}, got {brief(value)}")
    return _DIGITS.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))


def _ratio(value: Any) -> Fraction | None:
    try:
        return Fraction(*value.as_integer_ratio()) if hasattr(value, "as_integer_ratio") else Fraction(int(value))
    except (OverflowError, ValueError):  # infinite, or no number
        return None


def _weight(count: int, power: Decimal) -> int:
    """Return the integer nearest to 2**62 * count**-power, at least 1. Decimal rounds ln and exp alike anywhere."""
    share = _DIGITS.exp(_DIGITS.multiply(_DIGITS.minus(power), _DIGITS.ln(Decimal(count))))
    return max(1, int(_DIGITS.to_integral_value(_DIGITS.multiply(share, Decimal(2**62)))))


def _build(spec: Spec) -> Weighted:
    table = table_at_hand(spec["weights"], WeightTable, "weights", "Weighted.from_spec(spec, weights)")
    if as_int(spec["n"], "n", low=1) != table.size:
        raise ArgumentValueError(f"n is {spec['n']}, but the weights that the spec names are {table.size}")
    return Weighted(table, spec["seed"], as_size(spec["size"], "size"))


register_format(FORMAT, ("n", "seed", "size", "weights"), _build)
