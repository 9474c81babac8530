"""PlanMixture: plans mixed by weight, step by step, each batch whole from one of them.

So bucketed and packed sources stay bucketed and packed. Which plan gives a step is drawn as in a `Mixture`
(detdata.orders.timeline): exact quotas, mixed by a key. Step s is step r of its plan, r being how often that plan came
before; so where each plan stands follows from s alone, whatever was reweighted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, final

import numpy as np
import numpy.typing as npt

from detdata.checks import MAX_SIZE, as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.keys import fold
from detdata.orders.base import MAX_EPOCH
from detdata.orders.segments import MAX_DRAWS
from detdata.orders.timeline import Rules, lay_out
from detdata.plans.batch import Batch
from detdata.plans.composite import CompositePlan, documents_of, epochs_begun, first_use, last_step, rebuilt
from detdata.plans.pack_plan import PackPlan
from detdata.plans.plan import MAX_STEP
from detdata.plans.plan_mixture_terms import FORMAT, KEYS, Reweighting, arguments, as_changes, as_plans
from detdata.plans.protocol import AnyPlan
from detdata.plans.short_steps import short_steps
from detdata.records import Spec, canonical_json, register_format


@final
class PlanMixture(CompositePlan):
    """Plans drawn from by weight: every step is the next step of one of them.

    plans: name -> plan. weights: name -> integer, float or fraction, read exactly, of steps, not of samples; 0: not
    drawn until it is reweighted. seed: 0 … 2**63 - 1. size: how many steps an epoch of the mixture has. changes:
    (step, {name: weight}), rising, from which on those weights hold; see `reweighted`.

    After k steps of equal weights a plan of share w has had k·w steps, as exactly as a `Mixture` has draws. Each plan
    goes on by its own steps, epochs and tail; `Batch.epochs` and `Batch.start` stay the plan's own. Ids live in the
    concatenation of the plans' datasets, in the order given; of packed plans so do the documents of segments, and ids
    are numbers of sequences (`offsets`). Plans are packed all, or none.

    Immutable; equal exactly if the specs are equal. A step costs what it costs in its plan, and some 0.3 ms where no
    step near it was asked for before. Raises TypeError, ValueError.

    >>> from detdata import Plan, Shuffle
    >>> web, code = Plan(Shuffle(10**9), 512), Plan(Shuffle(10**6), 256)
    >>> plan = PlanMixture({"web": web, "code": code}, {"web": 3, "code": 1}, size=1000)
    >>> plan.counts(256), plan.source_at(10**9), plan.consumed(256)
    ({'web': 192, 'code': 64}, 'web', 114688)
    """

    def __init__(
        self,
        plans: Mapping[str, AnyPlan],
        weights: Mapping[str, Any],
        seed: int = 0,
        *,
        size: int,
        changes: Sequence[tuple[int, Mapping[str, Any]]] = (),
    ) -> None:
        self._named = as_plans(plans)
        self._names = tuple(self._named)
        self._plans = tuple(self._named.values())
        self._seed = as_seed(seed)
        self._size = as_int(size, "size", low=1, high=MAX_SIZE)
        self._weights, self._changes = as_changes(weights, changes, self._names)
        self._timeline = lay_out(self._rules())
        self._bases = (0, *accumulate(map(_width, self._plans)))
        counts = [documents_of(plan) for plan in self._plans]
        self._documents = None if None in counts else (0, *accumulate(count or 0 for count in counts))
        if self._bases[-1] > MAX_SIZE:
            raise ArgumentValueError(f"plans have {self._bases[-1]} samples together; at most 2**62 are possible")

    @property
    def plans(self) -> dict[str, AnyPlan]:
        """The plans by name, in the order of their ids."""
        return dict(self._named)

    @property
    def parts(self) -> tuple[AnyPlan, ...]:
        """The plans, in the order of their ids."""
        return self._plans

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the plans, in the order of their ids."""
        return self._names

    @property
    def seed(self) -> int:
        """The seed by which plans are mixed; they have their own."""
        return self._seed

    @property
    def size(self) -> int:
        """Steps of an epoch of the mixture."""
        return self._size

    @property
    def changes(self) -> tuple[Reweighting, ...]:
        """What `reweighted` has changed, in order of steps."""
        return self._changes

    @property
    def id_bound(self) -> int:
        """One more than the largest id: the length of the concatenated dataset, if the plans are not packed."""
        return self._bases[-1]

    @property
    def documents(self) -> int | None:
        """Of packed plans how many documents all have together; None of others."""
        return None if self._documents is None else self._documents[-1]

    @property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Of each plan its first id, and its first document; of plans that are not packed the two are equal."""
        documents = self._bases if self._documents is None else self._documents
        return dict(zip(self._names, zip(self._bases, documents, strict=True), strict=False))

    def _per_source(self, step: int) -> dict[str, int]:
        return self.consumed_per_source(step)

    def _short_steps(self, first: int, last: int) -> Iterator[int]:
        for source, (low, high) in enumerate(zip(self._counts(first), self._counts(last), strict=True)):
            for local in short_steps(self._plans[source], low, high):
                before, after = first, last  # the step at which this plan has come `local` times before, and comes
                while after - before > 1:
                    middle = (before + after) // 2
                    before, after = (middle, after) if self._counts(middle)[source] <= local else (before, middle)
                yield before

    def source_at(self, step: int) -> str:
        """Return the name of the plan that gives a step."""
        return self._names[self._at(step)[0]]

    def step_at(self, step: int) -> int:
        """Return which step of its plan a step is: how often that plan came before."""
        return self._at(step)[1]

    def counts(self, step: int) -> dict[str, int]:
        """Return how many steps each plan has given before a step, exactly. Cost: some 0.3 ms."""
        return dict(zip(self._names, self._counts(step), strict=True))

    def consumed_per_source(self, step: int) -> dict[str, int]:
        """Return how many samples of each plan all ranks have consumed before a step; their sum is `consumed(step)`.

        >>> from detdata import Plan, Shuffle
        >>> plan = PlanMixture({"a": Plan(Shuffle(99), 10), "b": Plan(Shuffle(99), 5)}, {"a": 1, "b": 1}, size=100)
        >>> plan.consumed_per_source(256)
        {'a': 1280, 'b': 640}
        """
        rows = zip(self._names, self._plans, self._counts(step), strict=True)
        return {name: plan.consumed(count) for name, plan, count in rows}

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: any step from 0 on, in any order of calls. `ids`: offset by its plan's."""
        source, local = self._at(step)
        return self._moved(source, step, self._plans[source].batch(local))

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step: that which the step's plan gives it. Raises as that does."""
        source, local = self._at(step)
        return self._moved(source, step, self._plans[source].shard(local, rank, world_size, micro_step, micro_steps))

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch, a short last one as if it were whole."""
        source, local = self._at(step)
        return self._plans[source].batch_size_at(local)

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1, ascending."""
        begin = self._drawn(first, "first")
        stop = min(max(as_int(last, "last", high=MAX_STEP), begin + 1), MAX_DRAWS)
        rows = zip(self._plans, self._counts(begin), self._counts(stop), strict=True)
        return tuple(sorted({size for plan, low, high in rows if low < high for size in plan.batch_sizes(low, high)}))

    def epoch(self, step: int) -> int:
        """Return the epoch of a step: `size` steps each."""
        return self._drawn(step) // self._size

    def first_step(self, epoch: int) -> int:
        """Return the first step of an epoch."""
        return as_int(epoch, "epoch", high=MAX_EPOCH + 1) * self._size

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count."""
        return sum(self.consumed_per_source(step).values())

    def reweighted(self, step: int, weights: Mapping[str, Any]) -> PlanMixture:
        """Return the mixture in which other weights hold from a step on; each plan goes on exactly where it was.

        weights: those left out stay, 0 takes a plan away. Steps before keep their batches; later changes are replaced.
        Raises TypeError, ValueError.

        >>> from detdata import Plan, Shuffle
        >>> plan = PlanMixture({"a": Plan(Shuffle(99), 9), "b": Plan(Shuffle(99), 9)}, {"a": 3, "b": 1}, size=100)
        >>> later = plan.reweighted(256, {"a": 1})
        >>> later.counts(256), later.counts(512)
        ({'a': 192, 'b': 64}, {'a': 320, 'b': 192})
        """
        at = self._drawn(step)
        kept = [(change.first, self._by_name(change.weights)) for change in self._changes if change.first < at]
        first = self._by_name(self._weights)
        return PlanMixture(self._named, first, self._seed, size=self._size, changes=[*kept, (at, weights)])

    def agrees(self, other: object, step: int) -> bool:
        """Return whether another plan has the same batches before a step, as far as specs tell.

        True for a mixture that was reweighted at that step or later: its run up to there may go on with this one.

        >>> from detdata import Plan, Shuffle
        >>> plan = PlanMixture({"a": Plan(Shuffle(99), 9), "b": Plan(Shuffle(99), 9)}, {"a": 3, "b": 1}, size=100)
        >>> later = plan.reweighted(64, {"a": 1})
        >>> later.agrees(plan, 64), later.agrees(plan, 65)
        (True, False)
        """
        number = self._drawn(step)
        if not isinstance(other, PlanMixture):
            return False
        without: Spec = {"changes": []} if number else {"changes": [], "weights": []}
        mine, theirs = ({**plan.spec(), **without} for plan in (self, other))
        changes = [[change for change in plan._changes if change.first < number] for plan in (self, other)]
        return canonical_json(mine) == canonical_json(theirs) and changes[0] == changes[1]

    def spec(self) -> Spec:
        """Return plain JSON that says what the mixture is: the plans' specs, weights as fractions, and the changes."""
        return {
            "format": FORMAT,
            "plans": [[name, plan.spec()] for name, plan in self._named.items()],
            "weights": [str(weight) for weight in self._weights],
            "seed": self._seed,
            "size": self._size,
            "changes": [[change.first, [str(weight) for weight in change.weights]] for change in self._changes],
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], lengths: Mapping[str, npt.ArrayLike]) -> PlanMixture:
        """Rebuild the mixture that `.spec()` described. lengths: name -> lengths, of the plans that are made of some.

        Raises UnknownFormat for another spec, ValueError where lengths lack or are others.

        >>> from detdata.plans.bucket_plan import BucketPlan
        >>> plan = PlanMixture({"a": BucketPlan([3, 4, 5], 2)}, {"a": 1}, size=10)
        >>> PlanMixture.from_spec(plan.spec(), {"a": [3, 4, 5]}) == plan
        True
        """
        if not isinstance(lengths, Mapping):
            raise ArgumentTypeError(f"lengths must be a dict of name: lengths, got {brief(lengths)}")
        plan: PlanMixture = rebuilt(spec, FORMAT, tuple(lengths.values()))
        return plan

    def _rules(self) -> Rules:
        changes, before = [], self._weights
        for change in self._changes:
            new = tuple((index, weight) for index, weight in enumerate(change.weights) if weight != before[index])
            changes.append((change.first, new))
            before = change.weights
        none, key = (None,) * len(self._names), fold(FORMAT, self._seed)
        return Rules(self._names, self._weights, tuple(changes), none, (1,) * len(none), None, key)

    def _by_name(self, weights: tuple[Fraction, ...]) -> dict[str, Fraction]:
        return dict(zip(self._names, weights, strict=True))

    def _at(self, step: int) -> tuple[int, int]:
        """Which plan gives a step, and which of its steps that is."""
        drawn = self._timeline.draw(np.array([self._drawn(step)], dtype=np.int64))
        return int(drawn.source[0]), int(drawn.rank[0])

    def _counts(self, step: int) -> list[int]:
        counts: list[int] = self._timeline.counts(as_int(step, "step", high=MAX_DRAWS)).tolist()
        return counts

    def _moved(self, source: int, step: int, batch: Batch) -> Batch:
        """Return a batch of a plan as one of the mixture."""
        segments = batch.segments
        if segments is not None and self._documents is not None:
            segments = segments.copy()
            segments["document"] += self._documents[source]
        number, ids = self._drawn(step), batch.ids + self._bases[source]
        return replace(batch, step=number, epoch=number // self._size, ids=ids, segments=segments)

    def _step_of(self, consumed: int) -> tuple[int, int]:
        step = last_step(self.consumed, consumed, MAX_DRAWS - 1)
        return step, consumed - self.consumed(step)

    def _when_from(self, number: int, epoch: int, first: int) -> int | None:
        edges = self._bases if self._documents is None else self._documents
        source = int(np.searchsorted(edges, number, side="right")) - 1
        stop = min(self.first_step(epoch) + self._size, MAX_DRAWS)
        begin = min(max(first, self.first_step(epoch)), stop)
        low, high = self._counts(begin)[source], self._counts(stop)[source]
        rank = first_use(self._plans[source], number - edges[source], low, high)
        return None if rank is None else int(self._timeline.find(source, np.array([rank], dtype=np.int64))[0])

    def _newest(self, step: int) -> int:
        return self.epoch(step)

    def _begun(self, step: int) -> int:
        return max(epochs_begun(plan, count) for plan, count in zip(self._plans, self._counts(step), strict=True))

    def _drawn(self, step: object, name: str = "step") -> int:
        return as_int(step, name, high=MAX_DRAWS - 1)


def _width(plan: AnyPlan) -> int:
    """How many ids a plan takes up: those of its dataset; packed, as many as its epochs may ever have sequences."""
    if isinstance(plan, PackPlan):
        return plan.tokens  # a sequence holds one token at least, whatever its length is changed to
    if isinstance(plan, CompositePlan) and plan.documents is not None and not isinstance(plan, PlanMixture):
        return max(map(_width, plan.parts))
    return plan.id_bound


def _build(spec: Spec) -> PlanMixture:
    plan = PlanMixture(**arguments(spec))
    own = plan.spec()
    for key in ("weights", "changes"):
        if canonical_json(spec[key]) != canonical_json(own[key]):
            raise UnknownFormat(f"{key} of a {FORMAT} spec must stand as {brief(own[key])}, got {brief(spec[key])}")
    return plan


register_format(FORMAT, KEYS, _build)
