"""Batches of c groups with k samples each: contrastive, multi-view and metric learning.

Each epoch a group's members are shuffled and cut into tuples of k. The groups are laid in a line, in an order of their
own each epoch, each with its tuples one after another, and the line is dealt over the M batches of the epoch like cards
to players. A group has at most M tuples in it, so no two of them meet in a batch.

Dealt so, groups that lie alike on the line would meet in batch after batch. So batches are made in rounds of a few:
what falls to a round is laid in a line anew, in an order of its own, and dealt over them (detdata.orders.rounds).

What it cannot do: groups of unequal size that each stay whole in batches of one size (docs/groups.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, UInt64Array
from detdata.checks import as_int, as_seed
from detdata.errors import ArgumentValueError
from detdata.keys import GOLDEN, fold, mix64
from detdata.orders.base import Order
from detdata.orders.each import permute_each, unpermute_each
from detdata.orders.labels import GroupIndex, as_labels
from detdata.orders.rounds import Line, Rounds
from detdata.orders.tables import Tables, rebuild_with, table_at_hand
from detdata.permutation import permute, unpermute
from detdata.records import Spec, register_format

FORMAT = "detdata.group_shuffle/1"
MAX_BATCH = 2**31 - 1  # samples


@final
class GroupShuffle(Order):
    """Batches of `groups_per_batch` groups with `samples_per_group` samples each, other ones in each epoch.

    labels: the group of each sample, int[n], any integers. groups_per_batch: c; samples_per_group: k, both at least 1.
    Use it as `Plan(order, batch_size=order.batch_size)`; a multiple of that is so many group batches, one a micro step.
    ids: the samples that may be used (of a training part, say); None: all. seed: 0 … 2**63 - 1.

    Every batch has exactly c different groups with exactly k different members each; no sample comes twice in an epoch.
    Row s · c + g of a batch is sample s of its group g: rank r of a world size that divides c has whole groups. An
    epoch has as many batches as there can be; what it leaves out (`left_out`) is other samples in each epoch, and of
    these `find` raises IndexError. k=1: no two samples of one group in a batch. Groups of just k: pairs stay together.

    Memory 4 bytes a sample, twice that once `find` was asked, and O(groups). `take` costs about 1 ms a batch, and
    O(groups) more once an epoch. The spec holds the digest of the labels, not them: `GroupShuffle.from_spec`.
    Raises ValueError where fewer than c groups have k members, TypeError.

    >>> order = GroupShuffle([0, 0, 0, 1, 1, 2, 2, 2, 2], groups_per_batch=2, samples_per_group=2, seed=1)
    >>> order.batches, order.take(range(4)).tolist()
    (2, [6, 2, 5, 0])
    """

    __slots__ = ("_c", "_index", "_k", "_known", "_rounds", "_seed", "_tuples", "_usable")

    def __init__(
        self,
        labels: npt.ArrayLike | GroupIndex,
        groups_per_batch: int,
        samples_per_group: int,
        seed: int = 0,
        *,
        ids: npt.ArrayLike | range | None = None,
    ) -> None:
        self._c = as_int(groups_per_batch, "groups_per_batch", low=1)
        self._k = as_int(samples_per_group, "samples_per_group", low=1)
        as_int(self._c * self._k, "groups_per_batch x samples_per_group", high=MAX_BATCH)
        self._seed = as_seed(seed)
        self._index = labels if isinstance(labels, GroupIndex) else GroupIndex(as_labels(labels), ids)
        tuples = self._index.counts // self._k
        self._usable = np.flatnonzero(tuples)
        if self._usable.size < self._c:
            raise ArgumentValueError(
                f"groups_per_batch is {self._c}, but only {self._usable.size} of the {tuples.size} groups have "
                f"samples_per_group = {self._k} members or more; the largest has {int(self._index.counts.max())}"
            )
        batches = _most_batches(tuples[self._usable], self._c)
        self._tuples = np.minimum(tuples[self._usable], batches)
        self._rounds = Rounds.of(batches, self._c, int(self._usable.size))
        self._known: tuple[tuple[int, Line], ...] = ()

    @classmethod
    def from_spec(
        cls, spec: Mapping[str, Any], labels: npt.ArrayLike, *, ids: npt.ArrayLike | range | None = None
    ) -> GroupShuffle:
        """Return the order that `spec` describes, with its labels and ids, which the spec names by their digest.

        Raises ValueError for other labels or ids than those of the spec.

        >>> order = GroupShuffle([0, 1, 0, 1], 2, 1, seed=3)
        >>> GroupShuffle.from_spec(order.spec(), [0, 1, 0, 1]) == order
        True
        """
        return rebuild_with(spec, GroupIndex(as_labels(labels), ids), cls, FORMAT, "labels")

    @property
    def batches(self) -> int:
        """Batches of an epoch: the largest number for which every batch can have different groups."""
        return self._rounds.batches

    @property
    def batch_size(self) -> int:
        """Samples of a batch, groups_per_batch x samples_per_group: what a plan takes."""
        return self._c * self._k

    @property
    def size(self) -> int:
        """Samples in an epoch: batches x batch_size."""
        return self.batches * self.batch_size

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the order is for: the number of labels."""
        return self._index.size

    @property
    def left_out(self) -> int:
        """How many of the samples that may be used an epoch leaves out: as many in each epoch, other ones."""
        return int(self._index.counts.sum()) - self.size

    @property
    def seed(self) -> int:
        """The seed of the shuffle."""
        return self._seed

    def spec(self) -> Spec:
        """Return the spec: format, number of samples, shape of a batch, seed, and the digest of the labels."""
        return {
            "format": FORMAT,
            "groups_per_batch": self._c,
            "labels": self._index.digest,
            "n": self._index.size,
            "samples_per_group": self._k,
            "seed": self._seed,
        }

    def _take(self, positions: Int64Array, epoch: int) -> Int64Array:
        batch, row = np.divmod(positions.reshape(-1), self.batch_size)
        sample, slot = np.divmod(row, self._c)
        line = self._line(epoch)
        rounds, place = self._rounds.of_batch(batch)
        usable, turn = line.tuple_of(line.deal(rounds, slot * self._rounds.sizes(rounds) + place))
        group = self._usable[usable]
        rank = permute_each(turn * self._k + sample, self._index.counts[group], self._member_keys(group, epoch))
        return self._index.members(group, rank).reshape(positions.shape)

    def _find(self, ids: Int64Array, epoch: int) -> Int64Array:
        group, rank = self._index.find(ids.reshape(-1))
        usable = np.minimum(np.searchsorted(self._usable, group), self._usable.size - 1)
        used = np.flatnonzero(self._usable[usable] == group)
        group, usable = group[used], usable[used]
        place = unpermute_each(rank[used], self._index.counts[group], self._member_keys(group, epoch))
        turn, sample = np.divmod(place, self._k)
        line = self._line(epoch)
        at = unpermute(usable, self._usable.size, self._key("groups", epoch))
        number = line.number_of(at, turn)
        within = (turn < self._tuples[usable]) & (number < self.batches * self._c)
        rounds, inside = self._rounds.of_number(number[within])
        slot, place = np.divmod(line.undeal(rounds, inside), self._rounds.sizes(rounds))
        batch = self._rounds.first_batch(rounds) + place
        result = np.full(ids.size, -1, dtype=np.int64)
        result[used[within]] = batch * self.batch_size + sample[within] * self._c + slot
        return result.reshape(ids.shape)

    def _line(self, epoch: int) -> Line:
        """This epoch's line of groups; of the last two epochs asked for it is kept. O(groups)."""
        for known, line in self._known:
            if known == epoch:
                return line
        count = self._usable.size
        groups = permute(np.arange(count, dtype=np.int64), count, self._key("groups", epoch))
        line = Line(self._rounds, groups, self._tuples[groups], self._key("rounds", epoch))
        self._known = ((epoch, line), *self._known[:1])  # replaced whole, so threads see no half
        return line

    def _member_keys(self, group: Int64Array, epoch: int) -> UInt64Array:
        key = np.uint64(self._key("members", epoch))
        return mix64((group.astype(np.uint64) + np.uint64(1)) * GOLDEN + key)

    def _key(self, use: str, epoch: int) -> int:
        return fold(FORMAT, use, self._seed, epoch)

    def _uses_each_once(self) -> bool:
        return False

    def _tables(self) -> Tables:
        return {self._index.digest: self._index}


def _most_batches(tuples: Int64Array, c: int) -> int:
    """Return the largest M for which groups that give at most M tuples each fill M batches of c."""
    low, high = 1, int(tuples.sum()) // c  # 1 does, as there are c groups; the sum less c · M is concave in M
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(tuples, middle).sum()) >= c * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _build(spec: Spec) -> GroupShuffle:
    index = table_at_hand(spec["labels"], GroupIndex, "labels", "GroupShuffle.from_spec(spec, labels)")
    if as_int(spec["n"], "n", low=1) != index.size:
        raise ArgumentValueError(f"n is {spec['n']}, but the labels that the spec names are {index.size}")
    return GroupShuffle(index, spec["groups_per_batch"], spec["samples_per_group"], spec["seed"])


register_format(FORMAT, ("groups_per_batch", "labels", "n", "samples_per_group", "seed"), _build)
