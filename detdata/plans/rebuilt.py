"""Rebuild an order or a plan from its spec together with the lengths, weights or labels that it names by digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from detdata.errors import ArgumentTypeError
from detdata.orders.labels import GroupIndex, as_labels
from detdata.orders.tables import rebuild
from detdata.orders.weight_table import WeightTable
from detdata.plans.lengths import as_lengths, lengths_digest

_OF_LENGTHS = frozenset({"detdata.bucket_plan/1", "detdata.pack_plan/1"})


def from_spec(spec: Mapping[str, Any], tables: Sequence[Any] = ()) -> Any:
    """Rebuild the order or plan that `.spec()` described.

    spec: a dict of plain JSON with `"format"`. tables: the arrays that specs in it name by digest (the lengths of a
    BucketPlan or a PackPlan, the weights of a Weighted, the labels of a GroupShuffle), in any order; each is taken for
    what its digest says. Returns an equal object: `from_spec(x.spec()) == x`.
    Raises UnknownFormat (a ValueError) for a format that this release does not know, for missing and for unknown keys;
    ValueError for a table that is named and not given; TypeError if `spec` is no mapping. Cost: that of the
    constructors, and of the digests.

    >>> import detdata
    >>> detdata.from_spec({"format": "detdata.shuffle/1", "n": 10, "seed": 3}) == detdata.Shuffle(10, seed=3)
    True
    >>> plan = detdata.BucketPlan([3, 1, 2], 2)
    >>> from_spec(plan.spec(), [[3, 1, 2]]) == plan
    True
    """
    if not isinstance(tables, (list, tuple)):
        raise ArgumentTypeError(f"tables must be a list of arrays, got {type(tables).__name__}: write [lengths]")
    formats = set(_formats(spec)) if tables else set()
    held: dict[str, Any] = {}
    for table in tables:
        array = np.asarray(table)
        if formats & _OF_LENGTHS and array.ndim == 1 and array.dtype.kind in "iu":
            lengths = as_lengths(array)
            held[lengths_digest(lengths)] = lengths
        if "detdata.weighted/1" in formats:
            weights = WeightTable.of(array)
            held[weights.digest] = weights
        if "detdata.group_shuffle/1" in formats:
            labels = GroupIndex(as_labels(array))
            held[labels.digest] = labels
    return rebuild(spec, held)


def _formats(spec: object) -> Iterator[str]:
    """Yield the formats of all specs in a spec."""
    pending = [spec]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            if isinstance(one.get("format"), str):
                yield one["format"]
            pending += [value for value in one.values() if isinstance(value, (Mapping, list))]
        elif isinstance(one, list):
            pending += [value for value in one if isinstance(value, (Mapping, list))]
