"""What plans made of other plans share: chains, mixtures and views, whose steps are steps of their parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy.typing as npt
import xxhash

from detdata.arrays import as_int64
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, OutOfRange, UnknownFormat
from detdata.orders.base import MAX_EPOCH
from detdata.orders.mixture import Mixture
from detdata.orders.tables import Tables, rebuild
from detdata.plans.lengths import as_lengths, lengths_digest
from detdata.plans.pack_numbers import update_digest
from detdata.plans.pack_plan import PackPlan
from detdata.plans.plan import MAX_STEP, Plan
from detdata.plans.protocol import AnyPlan
from detdata.plans.stepped import SteppedPlan
from detdata.records import Spec


class CompositePlan(SteppedPlan):
    """A plan whose steps are steps of other plans, its parts. Immutable; equal exactly if the specs are equal."""

    @property
    @abstractmethod
    def id_bound(self) -> int:
        """One more than the largest id that a batch may hold."""

    @property
    @abstractmethod
    def documents(self) -> int | None:
        """Of packed plans how many documents there are; None of others."""

    @property
    @abstractmethod
    def parts(self) -> tuple[AnyPlan, ...]:
        """The plans that this one is made of, in order."""

    @abstractmethod
    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1, ascending."""

    @abstractmethod
    def agrees(self, other: object, step: int) -> bool:
        """Return whether another plan has the same batches before a step, as far as specs tell."""

    @abstractmethod
    def _when_from(self, number: int, epoch: int, first: int) -> int | None:
        """The first step from `first` on that uses a sample or document in an epoch; None if none does."""

    @abstractmethod
    def _newest(self, step: int) -> int:
        """The largest number of an epoch of this plan that a row of a step may belong to."""

    @abstractmethod
    def _begun(self, step: int) -> int:
        """A number above all `Batch.epochs` of the steps before, as small as can be told in O(batch)."""

    @abstractmethod
    def _short_steps(self, first: int, last: int) -> Iterator[int]:
        """Yield the steps of first … last - 1 that may be short."""

    def when(self, id: int, epoch: int = 0) -> int | None:
        """Return the first step that uses a sample (of packed plans: a document) in an epoch; None if none does.

        Raises IndexError for one that there is not. Cost: a look-up in a part for each of its epochs in this one.
        """
        packed = self.documents is not None
        below = self.id_bound if self.documents is None else self.documents
        what = "document" if packed else "sample id"
        checked = int(as_int64(as_int(id, "id"), "id", below=below, what=what))
        return self._when_from(checked, as_int(epoch, "epoch", high=MAX_EPOCH), 0)

    def digest(self, first: int, last: int) -> str:
        """Return the digest of the batches of steps first … last - 1: the same on any machine.

        As of a `Plan`, or as of a `PackPlan` where the parts are packed. Cost O(samples).
        """
        if self.documents is None:
            return super().digest(first, last)
        begin = self._step(first, "first")
        state = xxhash.xxh3_128()
        for step in range(begin, as_int(last, "last", low=begin, high=MAX_STEP)):
            update_digest(state, self.batch(step))
        return "xxh3-128:" + state.hexdigest()

    def revived(self, spec: Spec) -> AnyPlan:
        """Return the plan of a spec that names the same lengths and other tables as this one."""
        plan = rebuild(spec, self._tables())
        return as_plan(plan, "spec")

    def resized(self, step: int, batch_size: int | None = None, *, max_tokens: int | None = None) -> Any:
        """Raise ValueError: the parts are resized, each at its own steps."""
        self._refuse("resized", step, batch_size, max_tokens)

    def skipping(self, first: int, last: int) -> Any:
        """Raise ValueError: steps are skipped in the parts, each at its own steps."""
        self._refuse("skipping", first, last)

    def _refuse(self, name: str, *_: object) -> NoReturn:
        raise ArgumentValueError(
            f"{name}: a {type(self).__name__} has no one plan to change; make it anew of parts that are {name} "
            f"(`part.{name}(…)`, at the part's own steps)"
        )

    def _tables(self) -> Tables:
        return {digest: table for part in self.parts for digest, table in part._tables().items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (rebuild, (self.spec(), self._tables()))


def as_plan(value: object, name: str) -> AnyPlan:
    """Return `value` if it is a plan, else raise a TypeError that says how to make one."""
    if not isinstance(value, AnyPlan):
        raise ArgumentTypeError(
            f"{name} must be a plan, got {brief(value)} of type {type(value).__name__}; make one: "
            "Plan(order, batch_size)"
        )
    return value


def documents_of(plan: AnyPlan) -> int | None:
    """Return how many documents a packed plan has; None for a plan of samples."""
    return plan.documents if isinstance(plan, (PackPlan, CompositePlan)) else None


def newest_epoch(plan: AnyPlan, step: int) -> int:
    """Return the largest epoch that a row of a step belongs to, by the plan's own numbers. O(batch)."""
    return plan._newest(step) if isinstance(plan, CompositePlan) else int(plan.batch(step).epochs.max())


def epochs_begun(plan: AnyPlan, step: int) -> int:
    """Return a number above all `Batch.epochs` of the steps before one; 0 for step 0. O(batch).

    >>> from detdata import Sequential
    >>> [epochs_begun(Plan(Sequential(10), 4, "carry"), step) for step in (0, 1, 2, 3)]
    [0, 1, 1, 2]
    """
    if isinstance(plan, CompositePlan):
        return plan._begun(step)
    return 0 if step == 0 else int(plan.batch(step - 1).epochs.max()) + 1


def when_from(plan: AnyPlan, number: int, epoch: int, first: int) -> int | None:
    """Return the first step from `first` on that uses a sample (of a packed plan: a document) in an epoch."""
    if isinstance(plan, CompositePlan):
        return plan._when_from(number, epoch, first)
    try:
        step = plan.when(number, epoch)
    except OutOfRange:  # of a part that doesn't have it, as one over a Subset
        return None
    if step is None or step >= first:
        return step
    if isinstance(plan, PackPlan):  # a document may go on over many steps
        later = plan.skipping(0, first).when(number, epoch)
        return None if later is None else later + first
    if isinstance(plan, Plan) and isinstance(plan.order, Mixture):  # a sample may come again
        for position in plan.order.find_all(number, epoch).tolist():
            q = plan._epochs.q(epoch, position)
            step = None if q is None else plan._walk.step_at(epoch, q)
            if step is not None and step >= first:
                return step
    return None


def first_use(plan: AnyPlan, number: int, first: int, last: int) -> int | None:
    """Return the first of the steps first … last - 1 that uses a sample or document, in whatever epoch; else None.

    >>> from detdata import Sequential
    >>> first_use(Plan(Sequential(10), 5), 7, 4, 9), first_use(Plan(Sequential(10), 5), 7, 4, 5)
    (5, None)
    """
    if first >= last:
        return None
    for epoch in range(plan.epoch(first), newest_epoch(plan, last - 1) + 1):
        step = when_from(plan, number, epoch, first)
        if step is not None:
            return step if step < last else None
    return None


def last_step(consumed: Callable[[int], int], count: int, most: int) -> int:
    """Return the last step 0 … `most` before which at most `count` samples are consumed; each step consumes some.

    >>> last_step(lambda step: 3 * step, 7, 10)
    2
    """
    low, high = 0, 1
    while high <= most and consumed(high) <= count:
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if consumed(middle) <= count:
            low = middle
        else:
            high = middle
    return low


def rebuilt(spec: Mapping[str, Any], format: str, lengths: tuple[npt.ArrayLike, ...]) -> Any:
    """Return the plan of a spec of `format` whose parts name these lengths by their digests.

    Raises UnknownFormat for another format, ValueError where lengths that are named are not among these.
    """
    if not isinstance(spec, Mapping) or spec.get("format") != format:
        found = spec.get("format") if isinstance(spec, Mapping) else spec
        raise UnknownFormat(f"spec must be one of {format}, got {brief(found)}")
    arrays = [as_lengths(one) for one in lengths]
    return rebuild(spec, {lengths_digest(array): array for array in arrays})
