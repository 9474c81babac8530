"""Weights of a mixture, exactly, and what each source is due after any number of whole blocks.

Weights are fractions, read as they are: a float counts for the very number that it holds. Draws come in blocks of a
power of two, large enough for each source to be due at least once a block. After m blocks a source of share w is due
m·block·w draws, rounded down or up so that all of them add up (largest remainders, Hamilton's method), so it is never
off by 1 at a block's edge. Python integers all along, which never overflow. Fixed in docs/spec.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import Any, final

import numpy as np

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat

SMALLEST_BLOCK = 256
LARGEST_BLOCK = 2**31
_LARGEST_NUMBER = 2**1100  # above and below any float: a spec must not make the arithmetic crawl
_WEIGHT = re.compile(r"(0|[1-9][0-9]{0,350})(/[1-9][0-9]{0,350})?")


def as_weight(value: Any, name: str) -> Fraction:
    """Return one weight exactly: integers, floats, fractions and decimals, finite and not negative.

    Raises TypeError, ValueError.

    >>> as_weight(0.25, "weight"), as_weight(3, "weight")
    (Fraction(1, 4), Fraction(3, 1))
    """
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "as_integer_ratio"):
        if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
            raise ArgumentTypeError(f"{name} must be a number, got {brief(value)} of type {type(value).__name__}")
        value = as_int(value, name)
    try:
        weight = Fraction(*map(int, value.as_integer_ratio()))
    except (OverflowError, ValueError) as error:  # what infinities and NaN raise
        raise ArgumentValueError(f"{name} must be finite, got {value}") from error
    if weight < 0:
        raise ArgumentValueError(f"{name} must not be negative, got {value}; 0 leaves the source out")
    if max(weight.numerator, weight.denominator) >= _LARGEST_NUMBER:
        raise ArgumentValueError(f"{name} has a numerator or denominator of more than 1100 bits; round it")
    return weight


def read_weight(text: object, name: str) -> Fraction:
    """Return the weight that a spec writes as `"7"` or `"7/10"`, lowest terms. Raises UnknownFormat.

    >>> read_weight("7/10", "weight")
    Fraction(7, 10)
    """
    weight = Fraction(text) if isinstance(text, str) and _WEIGHT.fullmatch(text) else None
    if weight is None or str(weight) != text:
        raise UnknownFormat(f'{name} must be written as "7" or "7/10", in lowest terms, got {brief(text)}')
    return as_weight(weight, name)


def as_weights(weights: object, names: Sequence[str], name: str = "weights") -> dict[str, Fraction]:
    """Return name -> weight of a dict, each name one of `names`. Raises TypeError, ValueError."""
    if not isinstance(weights, Mapping):
        raise ArgumentTypeError(f"{name} must be a dict of name: weight, got {brief(weights)}")
    known = set(names)
    for key in weights:
        if key not in known:
            raise ArgumentValueError(f"{name} names {brief(key)}, which is no source; the sources are {brief(names)}")
    return {key: as_weight(value, f"{name}[{key!r}]") for key, value in weights.items()}


@final
class Quotas:
    """What sources of these weights, each above 0, are due after whole blocks.

    weights: name -> weight. block: draws of a block: a power of two from 256 to 2**31, at least the sum of the weights
    divided by the smallest. Raises ValueError where that is more.

    >>> quotas = Quotas({"a": Fraction(1, 3), "b": Fraction(2, 3)})
    >>> quotas.block, quotas.before(1)
    (256, [85, 171])
    """

    __slots__ = ("block", "parts", "total")

    def __init__(self, weights: Mapping[str, Fraction]) -> None:
        scale = lcm(*(weight.denominator for weight in weights.values()))
        parts = [weight.numerator * (scale // weight.denominator) for weight in weights.values()]
        divisor = gcd(*parts)
        self.parts = tuple(part // divisor for part in parts)
        self.total = sum(self.parts)
        smallest = min(self.parts)
        self.block = max(SMALLEST_BLOCK, 1 << (-(-self.total // smallest) - 1).bit_length())
        if self.block > LARGEST_BLOCK:
            name = list(weights)[self.parts.index(smallest)]
            raise ArgumentValueError(
                f"weights: that of {name!r} is {float(Fraction(smallest, self.total)):.3g} of their sum, but a source "
                "must be drawn once in 2**31 draws at least; give it more, or 0 to leave it out"
            )

    def before(self, blocks: int) -> list[int]:
        """Return how many draws each source is due in the first `blocks` blocks. O(sources log sources).

        Never fewer for more blocks, as a source is due at least one draw a block.
        """
        draws = blocks * self.block
        whole, rest = map(list, zip(*(divmod(draws * part, self.total) for part in self.parts), strict=True))
        missing = draws - sum(whole)
        if missing:
            by_rest = sorted(range(len(rest)), key=lambda index: -rest[index])  # stable: of equal ones the first
            for index in by_rest[:missing]:
                whole[index] += 1
        return whole

    def block_of(self, index: int, rank: int) -> int:
        """Return the first of the two blocks, next to each other, of which one holds draw `rank` of a source.

        Its quota is off by less than 1, and by the block after next it has grown by at least 2.
        """
        return rank * self.total // (self.block * self.parts[index])
